//! Several processes that make one load: started, told when to begin, and their findings added up.
//!
//! The idea: one process holds at most as many connections as it may have descriptors, and one process cannot use many cores.
//! All processes begin at one time of the monotonic clock. The parent process measures the server, and the CPU of all
//! processes, between the two ends of the measured time; it sends nothing itself.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use super::course::Course;
use super::execution::STOP_WITHIN;
use super::extent::Extent;
use super::failure::Failure;
use super::generator::{Generator, Progress, Target, Watch, now_ns, to_next_look};
use super::member::{Order, Said, write_line};
use super::outcome::{Kernel, MemoryUse, Outcome};
use super::part::Share;
use super::plan::Plan;
use crate::histogram::Latencies;
use crate::meter::Meter;
use crate::procfs::Process;
use crate::serving::{self, Serving};

/// Time from the order to begin until it must have reached every part.
const LEAD: Duration = Duration::from_millis(100);
/// Longest line that is read: the rounds of many connections are in one.
const LINE_MAX: u64 = 64 << 20;
/// How much longer than its planned times a process may take.
const GRACE: Duration = Duration::from_secs(10);
/// A time that does not come.
const NEVER: u64 = u64::MAX;

/// Processes that make one load. Processes that still run when it is dropped are killed.
#[derive(Debug)]
pub struct Crew {
    members: Vec<Member>,
    said: Receiver<(usize, Option<Said>)>,
}

#[derive(Debug)]
struct Member {
    child: Child,
    orders: ChildStdin,
    connected: bool,
    measured: bool,
    requests: u64,
    latencies: Option<Latencies>,
    share: Option<Share>,
}

impl Crew {
    /// Starts the processes. Each command has to call [`serve_part`](super::serve_part) with the plan that [`Crew::run`] is
    /// given, a part of its own, its stdin and its stdout.
    ///
    /// # Errors
    /// One of the processes cannot be started.
    pub fn start(commands: impl IntoIterator<Item = Command>) -> io::Result<Crew> {
        let (tell, said) = channel();
        // The crew is made first, so that a failed start ends the processes that were started
        // before.
        let mut crew = Crew {
            members: Vec::new(),
            said,
        };
        for (number, mut command) in commands.into_iter().enumerate() {
            let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = piped.spawn()?;
            let (orders, out) = (child.stdin.take(), child.stdout.take());
            let (Some(orders), Some(out)) = (orders, out) else {
                return Err(io::Error::other("a child without pipes"));
            };
            crew.members.push(Member {
                child,
                orders,
                connected: false,
                measured: false,
                requests: 0,
                latencies: None,
                share: None,
            });
            let tell = tell.clone();
            // The thread is not joined: it ends with the child's stdout.
            thread::spawn(move || listen(out, number, &tell));
        }
        Ok(crew)
    }

    /// Makes the run, as [`run`](super::run()) does in one process.
    ///
    /// # Errors
    /// [`Failure`]: the first thing that goes wrong anywhere ends the run.
    pub fn run(
        mut self,
        plan: &Plan,
        generator: &Generator,
        target: &Target,
        watch: Watch<'_>,
    ) -> Result<Outcome, Failure> {
        let memory = |server: &Option<Process>| server.as_ref()?.all_resident_bytes().ok();
        let before = memory(&target.process);
        let counted = Kernel::of(target);
        self.gather(plan, generator, watch)?;
        let generators: Vec<u32> = self.processes().iter().filter_map(Process::pid).collect();
        let found = target.process.as_ref();
        let found = found.map(|named| serving::find(named, target.addr, &generators));
        let (server, serving) = match found {
            Some((server, serving)) => (Some(server), serving),
            None => (None, Serving::default()),
        };
        let before = before.filter(|_| server == target.process);
        let connected = memory(&server);
        let began = now_ns() + nanos(LEAD);
        self.order(&Order::Begin { at_ns: began });
        let mut look = Look {
            began,
            generator,
            server: server.clone(),
            course: Course::default(),
            watch,
        };
        let (from, until) = match plan.extent {
            Extent::Time { warm_up, measured } => {
                let from = began + nanos(warm_up);
                (from, from + nanos(measured))
            }
            Extent::Count(_) | Extent::Rounds => (began, NEVER),
        };
        let goes_on = self.pump(from, &|_| false, &mut look)?;
        let meter = server.as_ref();
        let meter = meter.map(|server| Meter::start(server, &self.processes()));
        let meter = meter.transpose()?;
        let measured = |crew: &Crew| crew.members.iter().all(|member| member.measured);
        let goes_on = goes_on && self.pump(until, &measured, &mut look)?;
        if !goes_on {
            self.order(&Order::Stop);
            self.hear_all(generator.stall, &measured)?;
        }
        let metered = meter.map(|meter| meter.stop()).transpose()?;
        let (end, kernel) = (memory(&server), Kernel::of(target));
        let course = look.course.points();
        self.hear_all(generator.stall, &|crew| {
            crew.members.iter().all(|member| member.share.is_some())
        })?;
        let processes = self.members.len();
        let mut shares = self
            .members
            .iter_mut()
            .filter_map(|member| member.share.take());
        let mut sum = shares.next().ok_or(Failure::Interrupted)?;
        shares.for_each(|share| sum.merge(share));
        let kernel = kernel.zip(counted);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Outcome {
            memory: MemoryUse::of(plan.connections, before, connected, end),
            kernel: kernel.map(|(end, begin)| end.since(&begin)),
            metered,
            serving,
            server_cores: target.cores,
            generator_loops: generator.loops,
            generator_processes: processes,
            generator_cores: (processes * generator.cores()).min(cores),
            ..sum.outcome(course)
        })
    }

    /// Waits until all connections are there.
    fn gather(
        &mut self,
        plan: &Plan,
        generator: &Generator,
        watch: Watch<'_>,
    ) -> Result<(), Failure> {
        let all = |crew: &Crew| crew.members.iter().all(|member| member.connected);
        let now = now_ns();
        let mut look = Look {
            began: now,
            generator,
            server: None,
            course: Course::default(),
            watch,
        };
        if !self.pump(
            now + nanos(generator.connect_within + GRACE),
            &all,
            &mut look,
        )? {
            return Err(Failure::Interrupted);
        }
        if all(self) {
            return Ok(());
        }
        let there = self.members.iter().filter(|member| member.connected);
        Err(Failure::ConnectSlow {
            opened: there.count() * plan.connections / self.members.len().max(1),
            wanted: plan.connections,
            within: generator.connect_within,
        })
    }

    /// Listens until a time has come or `over` says so; false if the watcher wants no more.
    fn pump(
        &mut self,
        until_ns: u64,
        over: &dyn Fn(&Crew) -> bool,
        look: &mut Look<'_>,
    ) -> Result<bool, Failure> {
        let every = look.generator.progress;
        let mut next_look = now_ns() + nanos(to_next_look(every));
        loop {
            let now = now_ns();
            if over(self) || now >= until_ns {
                return Ok(true);
            }
            if now >= next_look {
                next_look = now + nanos(to_next_look(every));
                if !look.at(self, now) {
                    return Ok(false);
                }
            }
            self.hear(Duration::from_nanos(next_look.min(until_ns) - now))?;
        }
    }

    /// Listens until `over` says so, which has to be before long.
    fn hear_all(&mut self, stall: Duration, over: &dyn Fn(&Crew) -> bool) -> Result<(), Failure> {
        let after = stall + STOP_WITHIN + GRACE;
        let deadline = now_ns() + nanos(after);
        while !over(self) {
            let left = deadline.saturating_sub(now_ns());
            if left == 0 {
                let done = self.members.iter().filter(|member| member.share.is_some());
                return Err(Failure::Unfinished {
                    after,
                    done: done.count(),
                    wanted: self.members.len(),
                });
            }
            self.hear(Duration::from_nanos(left))?;
        }
        Ok(())
    }

    /// Handles the next message of any process, if one comes in time.
    fn hear(&mut self, within: Duration) -> Result<(), Failure> {
        let (number, said) = match self.said.recv_timeout(within) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            // All processes have ended, and their ends were reported.
            Err(RecvTimeoutError::Disconnected) => return Err(Failure::Interrupted),
        };
        let member = &mut self.members[number];
        match said {
            Some(Said::Connected) => member.connected = true,
            Some(Said::Progress {
                requests,
                latencies,
            }) => {
                member.requests = requests;
                member.latencies = latencies;
            }
            Some(Said::Measured) => member.measured = true,
            Some(Said::Done(share)) => {
                member.requests = member.requests.max(share.requests);
                member.share = Some(*share);
            }
            Some(Said::Failed { wrong, what }) => {
                return Err(Failure::InProcess {
                    process: number + 1,
                    wrong,
                    what,
                });
            }
            None if member.share.is_some() => {}
            None => {
                return Err(Failure::InProcess {
                    process: number + 1,
                    wrong: false,
                    what: "it has ended without a word".into(),
                });
            }
        }
        Ok(())
    }

    fn order(&mut self, order: &Order) {
        for member in &mut self.members {
            // A member that has ended is heard of.
            let _ = write_line(&mut member.orders, order);
        }
    }

    /// All that the generator is: the one that measures too.
    fn processes(&self) -> Vec<Process> {
        let children = self.members.iter();
        let children = children.map(|member| Process::new(member.child.id()));
        children.chain([Process::current()]).collect()
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Killing and waiting fail only for a process that has ended.
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// The onlooker of a run.
struct Look<'a> {
    began: u64,
    generator: &'a Generator,
    server: Option<Process>,
    course: Course,
    watch: &'a mut dyn FnMut(Progress<'_>) -> bool,
}

impl Look<'_> {
    fn at(&mut self, crew: &Crew, now: u64) -> bool {
        let latencies = self.generator.live.then(|| {
            let mut all = Latencies::new();
            let shown = crew
                .members
                .iter()
                .filter_map(|member| member.latencies.as_ref());
            shown.for_each(|latencies| all.merge(latencies));
            all
        });
        let progress = Progress {
            server: self.server.as_ref(),
            elapsed: Duration::from_nanos(now.saturating_sub(self.began)),
            now_ns: now,
            requests: crew.members.iter().map(|member| member.requests).sum(),
            latencies: latencies.as_ref(),
        };
        self.course.note(&progress);
        (self.watch)(progress)
    }
}

/// Passes on what a process says, and then that it says no more.
fn listen(out: impl Read, number: usize, tell: &Sender<(usize, Option<Said>)>) {
    let mut out = BufReader::new(out);
    loop {
        let mut line = Vec::new();
        let read = (&mut out).take(LINE_MAX).read_until(b'\n', &mut line);
        let said = match read {
            Ok(1..) => serde_json::from_slice(&line).ok(),
            Ok(0) | Err(_) => None,
        };
        let over = said.is_none();
        if tell.send((number, said)).is_err() || over {
            return;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER / 4)
}
