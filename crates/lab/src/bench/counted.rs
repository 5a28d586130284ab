//! The instructions and system calls that a server spends on a message, counted instead of timed.
//!
//! The idea: a server is started under a tool that counts, and loaded in rounds ([`tidewire_load::count`]). Instructions come from
//! callgrind and system calls from strace, each from a start of its own.

use std::fmt::Write as _;
use std::path::Path;
use std::thread;

use serde::Serialize;
use tidewire_load::abba::{self, Comparison};
use tidewire_load::child::Launch;
use tidewire_load::count::callgrind::{self, Callgrind};
use tidewire_load::count::strace::{self, Strace};
use tidewire_load::count::verdict::{Agreement, Judgement, Spread};
use tidewire_load::count::{self as counting, Change, Counted, Counter, Profile, Sampling};
use tidewire_load::workload::{self, Arrivals, Extent, Generator, Options, Plan, Work};

use super::against::Against;
use super::generator::GeneratorArgs;
use super::scratch::Scratch;
use super::side::{Server, Side};
use super::target::Ready;
use super::watch::Watcher;
use super::{output, runs};
use tidewire_command::count;
use tidewire_command::exit::{Failure, UNTRUSTWORTHY};

/// How long a server under a tool may owe a reply: it is fifty times as slow.
const STALL: std::time::Duration = std::time::Duration::from_secs(20);
/// How long a server is looked at doing nothing.
const IDLE: std::time::Duration = std::time::Duration::from_millis(600);
/// Fewest and most segments of each start: more than the fewest where segments differ.
const SEGMENTS: u32 = 3;
const SEGMENTS_MOST: u32 = 16;
/// How well the mean of the segments has to be known.
const WITHIN: f64 = 0.004;
/// Fewest rounds of a segment.
const ROUNDS_MIN: u32 = 20;
/// Most rounds before anything is counted.
const WARM_UP_MAX: u32 = 100;
/// Starts of each server: seeds of hashes and addresses differ from one to the other.
pub(crate) const STARTS: usize = 2;
/// Messages of a run of connections that are opened and closed.
const RUN: u64 = 50;
/// A server is held still while so many bytes are sent: more may not fit into the kernel's buffers.
const HELD_MAX: usize = 256 << 10;
/// What arrives at once on loopback in any case.
const AT_ONCE: usize = 16 << 10;
/// Functions and calls that are shown.
const SHOWN: usize = 8;
/// Changes below this are not worth a line.
const CHANGE_MIN: f64 = 0.5;

/// Counting, on the command line.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CountArgs {
    /// Counts beside timing: the instructions of user code and the system calls that each server spends on a message,
    /// under valgrind (callgrind) and strace, which no neighbour on the machine disturbs. The load goes in rounds: each
    /// connection sends a pipeline or batch, and all replies are awaited before the next. Of native servers that are
    /// started here
    #[arg(long, conflicts_with = "duet")]
    count: bool,
    /// Counts, and does not time
    #[arg(long, conflicts_with_all = ["duet", "html"])]
    count_only: bool,
    /// Messages of a segment; there are at least three in each of two starts of a server
    #[arg(long, default_value = "200", value_name = "N", value_parser = count::some)]
    count_messages: u32,
}

/// What to count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want<'a> {
    /// Messages of a segment.
    pub(crate) messages: u32,
    /// System calls too, if there is strace.
    pub(crate) calls: bool,
    /// Another build of this command, which servers are run from.
    pub(crate) binary: Option<&'a Path>,
}

/// What messages cost one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Counts {
    /// Instructions of user code.
    pub(crate) instructions: Counted,
    /// System calls.
    pub(crate) calls: Option<Counted>,
    /// The load, not the clock, decides what a turn of the server finds.
    pub(crate) scripted: bool,
}

impl Want<'_> {
    /// Starts the server under each tool, and loads it.
    pub(crate) fn count(
        &self,
        args: &dyn Options,
        generator: &GeneratorArgs,
        side: &Side,
    ) -> Result<Counts, Failure> {
        let job = Job::of(args, generator, side, self)?;
        let missing = |e: counting::CountError| Failure::failed(e.to_string());
        callgrind::installed().map_err(missing)?;
        let calls = self.calls && strace::installed().is_ok();
        let (instructions, calls) = thread::scope(|scope| {
            let beside = calls && side.may_run_twice();
            let beside = beside.then(|| scope.spawn(|| job.calls()));
            let instructions = job.instructions();
            let calls = match beside {
                Some(running) => Some(joined(running)),
                None => calls.then(|| job.calls()),
            };
            (instructions, calls)
        });
        let (instructions, calls) = (instructions?, calls.transpose()?);
        Ok(Counts {
            scripted: job.rounds && !instructions.restless,
            instructions,
            calls,
        })
    }
}

/// Counts all these starts of servers at once, if the servers may run beside each other; otherwise one after the other.
/// Counts do not depend on other processes, and counting in parallel gets a larger share of a busy machine.
pub(crate) fn at_once<T: Sync>(
    all: &[T],
    servers: &[&Side],
    count: impl Fn(&T) -> Result<Counts, Failure> + Sync,
) -> Result<Vec<Counts>, Failure> {
    if !servers.iter().all(|side| side.may_run_twice()) {
        return all.iter().map(count).collect();
    }
    thread::scope(|scope| {
        let count = &count;
        let running: Vec<_> = all
            .iter()
            .map(|one| scope.spawn(move || count(one)))
            .collect();
        // All are waited for, whatever the first has come to.
        let ended: Vec<Result<Counts, Failure>> = running.into_iter().map(joined).collect();
        ended.into_iter().collect()
    })
}

fn joined<T>(running: thread::ScopedJoinHandle<'_, Result<T, Failure>>) -> Result<T, Failure> {
    let ended = running.join();
    ended.unwrap_or_else(|_| Err(Failure::failed("counting ended in a panic")))
}

/// A load to be counted on one server.
struct Job<'a> {
    args: &'a dyn Options,
    generator_args: &'a GeneratorArgs,
    generator: Generator,
    side: &'a Side,
    binary: Option<&'a Path>,
    plan: Plan,
    sampling: Sampling,
    /// The load goes in rounds; otherwise in runs of so many connections.
    rounds: bool,
}

impl<'a> Job<'a> {
    fn of(
        args: &'a dyn Options,
        generator_args: &'a GeneratorArgs,
        side: &'a Side,
        want: &'a Want<'a>,
    ) -> Result<Job<'a>, Failure> {
        native(side)?;
        if generator_args.has_rate() {
            return Err(Failure::usage(
                "--count goes in rounds, and not by the clock: leave --rate out",
            ));
        }
        let load = side.load(args.load()?.endless())?;
        let script = load.workload.counted().ok_or_else(|| {
            Failure::usage("--count goes in rounds that end with a reply, which this load has not")
        })?;
        let connections = generator_args.connections();
        let mut generator = generator_args.generator(&load)?;
        generator.stall = generator.stall.max(STALL);
        generator.connect_within = generator.connect_within.max(STALL);
        let each = match script.rounds {
            true => (connections as u64).saturating_mul(script.messages),
            false => RUN,
        };
        let rounds = u64::from(want.messages).div_ceil(each).try_into();
        let rounds = ROUNDS_MIN.max(rounds.unwrap_or(u32::MAX));
        let bytes = script.bytes.saturating_mul(connections);
        Ok(Job {
            args,
            generator_args,
            generator,
            side,
            binary: want.binary,
            plan: Plan {
                workload: script.workload,
                connections,
                arrivals: Arrivals::Closed,
                extent: Extent::Count(RUN),
            },
            sampling: Sampling {
                warm_up: rounds.div_ceil(4).clamp(3, WARM_UP_MAX),
                rounds,
                segments: SEGMENTS,
                segments_most: SEGMENTS_MOST,
                within: WITHIN,
                idle: IDLE,
                hold: script.rounds && (connections > 1 || bytes > AT_ONCE) && bytes <= HELD_MAX,
            },
            rounds: script.rounds,
        })
    }

    /// The server: of another build, if that was asked for. `tidewire serve` has no thread that watches its loops, which makes
    /// them turn by the clock, and one loop: under valgrind a loop that waits in io_uring would keep all others from running.
    fn server(&self, mut server: Launch) -> Launch {
        if let Server::Own(args) = &self.side.server {
            for (flag, value) in [("--stall-threshold", "0"), ("--workers", "1")] {
                if !args.iter().any(|arg| arg.starts_with(flag)) {
                    server = server.args([flag, value]);
                }
            }
        }
        match self.binary {
            Some(binary) => server.program(binary),
            None => server,
        }
    }

    fn instructions(&self) -> Result<Counted, Failure> {
        let scratch = Scratch::new(self.generator_args.data())?;
        let mut tool = Callgrind::new(scratch.path());
        let launch = |server| tool.launch(self.server(server));
        let workload = &self.plan.workload;
        let server = Ready::find_under(self.side, workload, self.generator_args, &launch)?;
        if let Some(pid) = server.pid() {
            tool.started(pid);
        }
        self.sample(&mut tool, server)
    }

    fn calls(&self) -> Result<Counted, Failure> {
        let scratch = Scratch::new(self.generator_args.data())?;
        let mut tool = Strace::new(scratch.path());
        let launch = |server| tool.launch(self.server(server));
        let workload = &self.plan.workload;
        let server = Ready::find_under(self.side, workload, self.generator_args, &launch)?;
        self.sample(&mut tool, server)
    }

    /// The server is killed at the end: under callgrind one that waits in io_uring cannot hear that it is to stop.
    fn sample(&self, tool: &mut dyn Counter, server: Ready) -> Result<Counted, Failure> {
        let pid = server.pid().unwrap_or_default();
        runs::first(self.args, self.generator_args, &self.generator, &server)?;
        let mut counted = Counted::default();
        let target = server.target();
        let mut work = Work::default();
        let done = match self.rounds {
            true => workload::in_rounds(&self.plan, &self.generator, target, &mut |play| {
                let sampling = &self.sampling;
                counted = counting::sample(tool, pid, sampling, &mut |sent| play.round(sent))?;
                Ok(())
            })
            .map(|of| work = of),
            false => {
                let mut answered = 0;
                let mut run = |_: Option<&mut dyn FnMut()>| {
                    let ran = workload::run(&self.plan, &self.generator, target, &mut |_| true)?;
                    answered += ran.requests;
                    work.add(&ran.work());
                    Ok(answered)
                };
                counting::sample(tool, pid, &self.sampling, &mut run).map(|of| counted = of)
            }
        };
        done.map_err(|e| runs::failed(&e, &server))?;
        counted.work = work;
        Ok(counted)
    }
}

/// Checks that the server is started here and is a native program, because only such servers can be
/// counted.
fn native(side: &Side) -> Result<(), Failure> {
    let program = match &side.server {
        Server::Own(_) => return Ok(()),
        Server::Program(words) | Server::ProgramAt { command: words, .. } => &words[0],
        Server::There { .. } => {
            return Err(Failure::usage(format!(
                "{}: --count starts the server itself, under a tool that counts; one that runs already cannot be counted",
                side.name
            )));
        }
    };
    counting::of_program(Path::new(program))
        .map_err(|e| Failure::usage(format!("{}: --count: {e}", side.name)))
}

/// Two servers counted.
#[derive(Debug, Serialize)]
pub(super) struct Pair {
    /// The tool that counts.
    tool: String,
    /// On both sides the load, not the clock, decides what a turn finds.
    scripted: bool,
    instructions: Half,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<Half>,
    /// The functions that differ most, in instructions of a message.
    changes: Vec<Change>,
    /// Why nothing should be said of the two, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    doubts: Vec<String>,
}

/// One count, on both sides.
#[derive(Debug, Serialize)]
struct Half {
    a: Spread,
    b: Spread,
    ratio: f64,
    judgement: Judgement,
    sentence: String,
    #[serde(skip)]
    profiles: [Profile; 2],
}

impl Half {
    fn of(what: &str, a: &[Counted], b: &[Counted]) -> Half {
        let (a, b) = (Counted::together(a), Counted::together(b));
        let [spread_a, spread_b] = [&a, &b].map(|side| Spread::of(&side.segments));
        let judgement = Judgement::of(&spread_a, &spread_b);
        Half {
            ratio: spread_b.median / spread_a.median.max(f64::MIN_POSITIVE),
            judgement,
            sentence: judgement.sentence(what, &spread_a, &spread_b),
            a: spread_a,
            b: spread_b,
            profiles: [a.profile, b.profile],
        }
    }
}

impl CountArgs {
    /// Whether times are not asked for.
    pub(super) fn is_only(&self) -> bool {
        self.count_only
    }

    /// Counts both servers, if the user asks for it. The servers are started in turns.
    pub(super) fn pair(
        &self,
        load: &dyn Options,
        generator: &GeneratorArgs,
        sides: [&Side; 2],
        watcher: &mut Watcher,
    ) -> Result<Option<Pair>, Failure> {
        if !self.count && !self.count_only {
            return Ok(None);
        }
        let want = Want {
            messages: self.count_messages,
            calls: true,
            binary: None,
        };
        // System calls do not differ from start to start.
        let later = Want {
            calls: false,
            ..want
        };
        let starts = (0..STARTS).flat_map(|start| [(start, 0), (start, 1)]);
        let starts: Vec<(usize, usize)> = starts.collect();
        watcher.show(&format!("counting both, {STARTS} starts of each"));
        let counted = at_once(&starts, &sides, |&(start, side)| {
            let want = if start == 0 { &want } else { &later };
            let (place, side) = (2 * start + side, sides[side]);
            let counted = want.count(load, &generator.elsewhere(place), side);
            counted.map_err(|mut failure| {
                failure.message = format!("counting {}: {}", side.name, failure.message);
                failure
            })
        });
        let interrupted = watcher.interrupted();
        watcher.done();
        if interrupted {
            return Err(Failure::failed("interrupted while counting"));
        }
        let mut counts: [Vec<Counts>; 2] = Default::default();
        for ((_, side), counted) in starts.iter().zip(counted?) {
            counts[*side].push(counted);
        }
        Ok(Some(Pair::of(&counts)))
    }
}

impl Pair {
    fn of(counts: &[Vec<Counts>; 2]) -> Pair {
        let [a, b] = counts.each_ref().map(|side| {
            let all = side.iter().map(|counts| counts.instructions.clone());
            all.collect::<Vec<Counted>>()
        });
        let mut against = Against::default();
        for (side, counted) in [(abba::Side::A, &a), (abba::Side::B, &b)] {
            against.take_work(side, &Counted::together(counted).work);
        }
        let instructions = Half::of("instructions", &a, &b);
        let [a, b] = counts.each_ref().map(|side| {
            let all = side.iter().filter_map(|counts| counts.calls.clone());
            all.collect::<Vec<Counted>>()
        });
        let calls = match a.is_empty() || b.is_empty() {
            true => None,
            false => Some(Half::of("system calls", &a, &b)),
        };
        let [before, after] = &instructions.profiles;
        let mut changes = Profile::changes(before, after);
        changes.retain(|change| change.by().abs() >= CHANGE_MIN);
        changes.truncate(SHOWN);
        let tools = [callgrind::installed(), strace::installed()];
        let tools: Vec<String> = tools.into_iter().flatten().collect();
        Pair {
            tool: tools.join(", "),
            scripted: counts.iter().flatten().all(|counts| counts.scripted),
            instructions,
            calls,
            changes,
            doubts: against.other_work(),
        }
    }

    /// What it comes to beside the times; figures alone where the two do not do the same work.
    pub(super) fn beside(&self, comparison: &Comparison, is_kept_back: bool) -> String {
        let mut text = self.to_string();
        if is_kept_back || !self.doubts.is_empty() {
            return text;
        }
        let timed = comparison.metric("server_cpu_ns_per_request");
        let half = &self.instructions;
        let agreement = Agreement::of(half.judgement, half.ratio, timed);
        // A string takes everything.
        let _ = writeln!(text, "counted      {}", half.sentence);
        match timed {
            Some(timed) => {
                let _ = writeln!(text, "timed        {} (CPU per request)", timed.sentence());
            }
            None => text.push_str("timed        no CPU time is known of both\n"),
        }
        let _ = writeln!(text, "verdict      {}", agreement.sentence);
        text
    }

    /// Shows it without times.
    pub(super) fn show_alone(&self, json: Option<&Path>) -> Result<(), Failure> {
        let environment = output::environment();
        show!("{environment}");
        show!("{self}");
        match self.doubts.is_empty() {
            true => show_line!("counted      {}", self.instructions.sentence),
            false => self.doubts.iter().for_each(|doubt| show_line!("{doubt}")),
        }
        if let Some(path) = json {
            output::write(path, "bench ab --count-only", environment, self)?;
        }
        match self.doubts.first() {
            None => Ok(()),
            Some(doubt) => Err(Failure {
                status: UNTRUSTWORTHY,
                message: doubt.clone(),
            }),
        }
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "counts       for each message; instructions of user code by callgrind, system calls by strace ({})",
            self.tool
        )?;
        if !self.scripted {
            writeln!(
                f,
                "             what a turn finds depends on the clock here: counts have the spread that is shown"
            )?;
        }
        let of = |half: &Half, side: usize| {
            let spread = [half.a, half.b][side];
            format!(
                "{:>10.1}  ({:.1} to {:.1}, {:.2} %)",
                spread.median,
                spread.min,
                spread.max,
                spread.share() * 100.0
            )
        };
        for (side, name) in [(0, "A"), (1, "B")] {
            writeln!(
                f,
                "{name}            {} instructions",
                of(&self.instructions, side)
            )?;
        }
        match &self.calls {
            None => writeln!(
                f,
                "             system calls are not counted: there is no strace here"
            )?,
            Some(half) => {
                for (side, name) in [(0, "A"), (1, "B")] {
                    let spread = [half.a, half.b][side];
                    let all = half.profiles[side].dearest();
                    let names = all.iter().filter(|(_, n)| *n >= 0.005).take(SHOWN);
                    let names: Vec<String> =
                        names.map(|(name, n)| format!("{name} {n:.2}")).collect();
                    let (median, names) = (spread.median, names.join(", "));
                    writeln!(f, "{name}            {median:>10.2}  system calls: {names}")?;
                }
            }
        }
        for change in &self.changes {
            writeln!(
                f,
                "             {:>+10.1}  {} ({:.1} to {:.1})",
                change.by(),
                change.function,
                change.before,
                change.after
            )?;
        }
        Ok(())
    }
}
