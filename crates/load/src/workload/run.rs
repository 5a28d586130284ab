//! One run: connect, warm up, measure, wait for what is outstanding, close.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tidewire::{
    Builder, Dial, EngineChoice, Layered, Limits, Running, Service, ServiceId, TcpOptions,
};
use tidewire_tls::TlsClient;

use super::ack::Acks;
use super::arrivals::Arrivals;
use super::client::{Clients, Driver, Route};
use super::connect::Connect;
use super::course::Course;
use super::discard::Discard;
use super::echo::Echo;
use super::failure::Failure;
use super::flight::Flight;
use super::http::Https;
use super::kv::Kv;
use super::kv_mix::Mix;
use super::native::Native;
use super::outcome::{Kernel, MemoryUse, Outcome};
use super::pace::Pace;
use super::part::{Gate, Part, Share};
use super::rounds::{Play, Script};
use super::stage::{Counts, Phase, Stage};
use super::turns::Slot;
use super::{EchoLoad, Workload};
use crate::histogram::Latencies;
use crate::meter::{Meter, Metered};
use crate::procfs::{ProcError, Process};
use crate::serving::{self, Serving};

/// Connections being established at a time, so that no accept queue overflows.
const DIALLING_MAX: usize = 256;
/// Connections from one address of this host, unless it is said.
const SOURCE_CONNECTIONS: usize = 20_000;
/// How long all connections may take to be established, unless it is said.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long the loops may take to stop.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing may move on a connection that is owed something, unless it is said.
const STALL: Duration = Duration::from_secs(10);
/// How often progress is shown.
const PROGRESS: Duration = Duration::from_millis(200);

/// The engine that makes the load, and how it connects.
#[derive(Clone, Debug)]
pub struct Generator {
    /// What runs the loops.
    pub engine: EngineChoice,
    /// How many loops.
    pub loops: usize,
    /// Cores to pin them to; empty pins nothing.
    pub cpus: Vec<usize>,
    /// Longest time to poll before a loop sleeps.
    pub busy_poll: Duration,
    /// Options of the connections.
    pub tcp: TcpOptions,
    /// Speaks TLS, if it is there. A connection counts as established after its handshake.
    pub tls: Option<TlsClient>,
    /// Loopback addresses that connections come from in turns, 127.0.0.1 and the following ones:
    /// each has some 28,000 ports to one server. 1 leaves it to the system; absent, there is one
    /// for each 20,000 connections to a server on a loopback address.
    pub sources: Option<u32>,
    /// How long all connections may take to be established; 30 s by default.
    pub connect_within: Duration,
    /// How long nothing may move on a connection that is owed something; 10 s by default.
    pub stall: Duration,
    /// How often progress is shown, at whole multiples of it on the monotonic clock, so that several runs are looked at
    /// in the same moments; at least 1 ms, 200 ms by default.
    pub progress: Duration,
    /// Progress has the latencies so far.
    pub live: bool,
    /// A connection that the server ends is made again and counted, and what it owed is counted as lost, where that would
    /// else end the run.
    pub reconnect: bool,
}

impl Default for Generator {
    /// One epoll loop, not pinned.
    fn default() -> Generator {
        Generator {
            engine: EngineChoice::Epoll,
            loops: 1,
            cpus: Vec::new(),
            busy_poll: Duration::ZERO,
            tcp: TcpOptions::default(),
            tls: None,
            sources: None,
            connect_within: CONNECT_WITHIN,
            stall: STALL,
            progress: PROGRESS,
            live: false,
            reconnect: false,
        }
    }
}

impl Generator {
    /// Cores that its loops can keep busy, in each process that makes the load.
    pub fn cores(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.cpus.len() {
            0 => self.loops.min(cores),
            n => self.loops.min(n),
        }
    }
}

/// What to do: a load, on how many connections, when each message is sent, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What is sent.
    pub workload: Workload,
    /// How many connections there are, at least 1.
    pub connections: usize,
    /// When it is sent.
    pub arrivals: Arrivals,
    /// How long.
    pub extent: Extent,
}

impl Plan {
    /// One message in flight in all: neither side is busy, whatever is measured.
    pub fn is_lock_step(&self) -> bool {
        self.connections == 1
            && match self.workload {
                Workload::Echo(load) => load.pipeline == 1,
                Workload::Ack(load) => load.window == 1,
                Workload::Native(load) => load.window == 1,
                Workload::Kv(load) => load.pipeline == 1,
                Workload::Http(load) => load.pipeline == 1,
                Workload::Connect(_) => true,
                Workload::Discard(_) | Workload::Idle(_) => false,
            }
    }
}

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// By time.
    Time {
        /// Load that is not measured, before.
        warm_up: Duration,
        /// Load that is measured.
        measured: Duration,
    },
    /// So many messages, over all connections.
    Count(u64),
    /// The rounds that the workload names; nothing if it names none.
    Rounds,
}

/// The server to load.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The server's process, if its CPU time is to be measured.
    pub process: Option<Process>,
    /// Cores that it may use.
    pub cores: usize,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Since the load began.
    pub elapsed: Duration,
    /// The monotonic clock, in ns: one clock for all runs on a machine.
    pub now_ns: u64,
    /// Messages answered (or taken) so far, warm-up included.
    pub requests: u64,
    /// The server's process as it was found by its connections, if one is measured.
    pub server: Option<&'a Process>,
    /// Latencies that were measured by the look before this one, from when messages were due if they have times; absent
    /// unless [`Generator::live`].
    pub latencies: Option<&'a Latencies>,
}

/// Is shown progress now and then; answers whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Progress<'_>) -> bool;

/// Runs a plan.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong ends the run.
pub fn run(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    watch: Watch<'_>,
) -> Result<Outcome, Failure> {
    let made = make(plan, generator, target, Part::WHOLE, Led::Freely, watch)?;
    let mut outcome = made.share.outcome(made.course);
    outcome.serving = made.serving;
    outcome.memory = made.memory;
    outcome.kernel = made.kernel;
    outcome.metered = made.metered;
    outcome.server_cores = target.cores;
    outcome.generator_cores = generator.cores();
    outcome.generator_loops = generator.loops;
    Ok(outcome)
}

/// Makes one process's part of a plan, for a [`Crew`](super::Crew) in another process that measures the server.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong here ends the run.
pub(super) fn run_part(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    part: Part,
    gate: &mut dyn Gate,
    watch: Watch<'_>,
) -> Result<Share, Failure> {
    let made = make(plan, generator, target, part, Led::Gate(gate), watch)?;
    Ok(made.share)
}

/// Plays a load in rounds: in each, every connection sends as many messages as it may have in flight, or one batch. The script
/// says when a round begins; arrivals and extent of the plan are not looked at.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong, in the load or in the script.
pub fn in_rounds(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    script: Script<'_>,
) -> Result<(), Failure> {
    let plan = Plan {
        arrivals: Arrivals::Closed,
        extent: Extent::Time {
            warm_up: Duration::ZERO,
            measured: Duration::ZERO,
        },
        ..*plan
    };
    let led = Led::Script(script);
    make(&plan, generator, target, Part::WHOLE, led, &mut |_| true).map(drop)
}

/// What a run waits for, beside its own connections.
enum Led<'g> {
    /// Nothing.
    Freely,
    /// Other parts of the load.
    Gate(&'g mut dyn Gate),
    /// A script, round by round.
    Script(Script<'g>),
}

fn make(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    part: Part,
    led: Led<'_>,
    watch: Watch<'_>,
) -> Result<Made, Failure> {
    let Plan {
        connections,
        arrivals,
        extent,
        ..
    } = *plan;
    let stage = match led {
        Led::Script(_) => Stage::in_rounds(),
        Led::Freely | Led::Gate(_) => Stage::new(arrivals),
    };
    let (gate, script) = match led {
        Led::Freely => (None, None),
        Led::Gate(gate) => (Some(gate), None),
        Led::Script(script) => (None, Some(script)),
    };
    // The last connections of a count that cannot be divided send one less.
    let count = move |connection: u64| match extent {
        Extent::Count(all) => {
            let (each, more) = (all / connections as u64, all % connections as u64);
            each + u64::from(connection < more)
        }
        Extent::Time { .. } => u64::MAX,
        Extent::Rounds => 0,
    };
    let pace = move |connection: u64, of: usize| {
        let rate = arrivals.rate();
        rate.map(|rate| Pace::new(rate, connection, of))
    };
    let flight = move |connection| Flight::new(pace(connection, connections));
    let run = Run {
        stage: &stage,
        part,
        all_connections: connections,
        connections: part.connections(connections),
        extent,
        renews: matches!(plan.workload, Workload::Connect(_) | Workload::Http(_)),
        generator,
        target,
        course: RefCell::default(),
        server: RefCell::new(target.process.clone()),
        serving: RefCell::default(),
        gate: Cell::new(gate),
        script: Cell::new(script),
    };
    match plan.workload {
        Workload::Echo(load) => run.go(false, watch, move |connection| {
            Echo::new(load, count(connection), connection, flight(connection))
        }),
        Workload::Idle(load) => {
            let active = load.active_of(connections);
            let echo = EchoLoad {
                size: load.size,
                pipeline: 1,
                batch: 0,
            };
            run.go(false, watch, move |connection| {
                let sends = connection < active as u64;
                let pace = sends.then(|| pace(connection, active)).flatten();
                let count = if sends { count(connection) } else { 0 };
                Echo::new(echo, count, connection, Flight::new(pace))
            })
        }
        Workload::Connect(load) => {
            let slot = |connection| Slot::new(count(connection), pace(connection, connections));
            let slots: Arc<[Slot]> = (0..connections as u64).map(slot).collect();
            run.go(false, watch, move |connection| {
                Connect::new(load, &slots, connection)
            })
        }
        Workload::Ack(load) => run.go(false, watch, move |connection| {
            Acks::new(load, count(connection), connection, flight(connection))
        }),
        Workload::Native(load) => run.go(false, watch, move |connection| {
            Native::new(load, count(connection), connection, flight(connection))
        }),
        Workload::Kv(load) => {
            let firsts = Arc::new(load.command.map(Mix::firsts).unwrap_or_default());
            run.go(false, watch, move |connection| {
                let part = (connection, connections);
                Kv::new(load, count(connection), part, flight(connection), &firsts)
            })
        }
        Workload::Http(load) => {
            // With a connection for each request, what follows has the times.
            let (slots_pace, flights_pace): (bool, bool) = (load.close, !load.close);
            let slot = |connection| {
                let pace = slots_pace.then(|| pace(connection, connections));
                Slot::new(count(connection), pace.flatten())
            };
            let slots = (0..connections as u64).map(slot).collect();
            let all = Arc::new(Https::new(load, slots));
            run.go(false, watch, move |connection| {
                let pace = flights_pace.then(|| pace(connection, connections));
                all.connection(connection, Flight::new(pace.flatten()))
            })
        }
        Workload::Discard(load) => run.go(true, watch, move |connection| {
            Discard::new(load, count(connection), flight(connection))
        }),
    }
}

struct Run<'a, 'g> {
    stage: &'a Arc<Stage>,
    part: Part,
    /// Connections of all parts.
    all_connections: usize,
    /// Connections of this part.
    connections: usize,
    extent: Extent,
    /// Connections may come and go while it is measured.
    renews: bool,
    generator: &'a Generator,
    target: &'a Target,
    course: RefCell<Course>,
    /// The serving process, as soon as all connections are there.
    server: RefCell<Option<Process>>,
    serving: RefCell<Serving>,
    /// What has to be passed before the load begins, if others load too.
    gate: Cell<Option<&'g mut dyn Gate>>,
    /// What opens the rounds of a load in rounds.
    script: Cell<Option<Script<'g>>>,
}

/// What this process has found.
struct Made {
    share: Share,
    course: Vec<(f64, u64)>,
    memory: Option<MemoryUse>,
    kernel: Option<Kernel>,
    metered: Option<Metered>,
    serving: Serving,
}

/// What was read between the two ends of the measured time.
struct Reading {
    counts: Counts,
    elapsed: Duration,
    metered: Option<Metered>,
    /// The server's, at the end.
    memory: Option<u64>,
    kernel: Option<Kernel>,
    interrupted: bool,
}

impl Run<'_, '_> {
    /// `silent` says that nothing is ever answered; `make` makes a connection of its number.
    fn go<D: Driver>(
        &self,
        silent: bool,
        watch: Watch<'_>,
        make: impl Fn(u64) -> D + Send + Sync + 'static,
    ) -> Result<Made, Failure> {
        let clients = Clients::new(self.stage, self.route(), silent, make);
        let limits = self.limits();
        match &self.generator.tls {
            Some(tls) => self.run(Layered::with_limits(tls.clone(), clients, limits), watch),
            None => self.run(clients, watch),
        }
    }

    fn route(&self) -> Route {
        let to = self.target.addr;
        let needed = match to.ip() == Ipv4Addr::LOCALHOST {
            true => self.all_connections.div_ceil(SOURCE_CONNECTIONS) as u32,
            false => 1,
        };
        Route {
            to,
            sources: self.generator.sources.unwrap_or(needed),
            stall: self.generator.stall,
            reconnect: self.generator.reconnect,
        }
    }

    fn run<S: Service>(&self, clients: S, watch: Watch<'_>) -> Result<Made, Failure> {
        let (running, service) = self.start(clients)?;
        let before = self.memory();
        let counted = self.kernel();
        let measured = self.connect(&running, service);
        // Earlier readings of other processes say nothing about the processes that are measured
        // from now on.
        let before = before.filter(|_| !self.find_server());
        let connected = self.memory();
        let measured = measured.and_then(|()| self.measure(watch));
        let client_engine = running.engine().to_string();
        // Looked at before connections are cut, which would be failures too.
        let failure = self.stage.take_failure();
        running.stop(STOP_WITHIN);
        let (taken, rounds) = self.stage.close();
        let reading = match (failure, measured) {
            (Some(failure), _) | (None, Err(failure)) => return Err(failure),
            (None, Ok(reading)) => reading,
        };
        let kernel = reading.kernel.zip(counted);
        Ok(Made {
            memory: MemoryUse::of(self.connections, before, connected, reading.memory),
            kernel: kernel.map(|(end, begin)| end.since(&begin)),
            metered: reading.metered,
            serving: self.serving.take(),
            course: self.course.take().points(),
            share: Share {
                requests: reading.counts.requests,
                bytes: reading.counts.bytes,
                elapsed: reading.elapsed,
                interrupted: reading.interrupted,
                client_engine,
                taken,
                rounds,
            },
        })
    }

    /// What the server has now; none if its process is not known or has gone, which others will say.
    fn memory(&self) -> Option<u64> {
        self.server.borrow().as_ref()?.all_resident_bytes().ok()
    }

    /// Finds the process that holds the connections; returns whether it is another than the one
    /// that was named.
    fn find_server(&self) -> bool {
        let Some(named) = &self.target.process else {
            return false;
        };
        let (server, serving) = serving::find(named, self.target.addr, &[std::process::id()]);
        self.serving.replace(serving);
        let others = server != *named;
        self.server.replace(Some(server));
        others
    }

    /// Looks once more where connections have come and gone meanwhile.
    fn find_server_again(&self) {
        if let Some(server) = &*self.server.borrow()
            && self.renews
        {
            let found = serving::of(server, self.target.addr, &[std::process::id()]);
            self.serving.borrow_mut().add(&found);
        }
    }

    fn kernel(&self) -> Option<Kernel> {
        Kernel::of(self.target)
    }

    fn limits(&self) -> Limits {
        Limits {
            connections: usize::MAX,
            output_hard: usize::MAX,
            idle: Some(self.generator.stall),
            ..Limits::default()
        }
    }

    fn start<S: Service>(&self, clients: S) -> Result<(Running, ServiceId<S>), Failure> {
        let mut builder = Builder::new();
        builder
            .engine(self.generator.engine)
            .loops(self.generator.loops)
            .cpus(&self.generator.cpus)
            .busy_poll(self.generator.busy_poll)
            .dial_options(self.generator.tcp.clone());
        let service = builder.service_with(clients, self.limits());
        Ok((builder.start()?, service))
    }

    fn connect<S: Service>(&self, running: &Running, service: ServiceId<S>) -> Result<(), Failure> {
        let deadline = Instant::now() + self.generator.connect_within;
        for number in 0..self.connections {
            let first = (number + 1).saturating_sub(DIALLING_MAX);
            self.await_opened(first, deadline)?;
            let dial: Dial = self.route().dial(self.part.connection(number));
            let dial = dial.timeout(self.generator.connect_within);
            running.dial(service, dial).map_err(|e| Failure::Connect {
                error: e.to_string(),
            })?;
        }
        self.await_opened(self.connections, deadline)
    }

    fn await_opened(&self, wanted: usize, deadline: Instant) -> Result<(), Failure> {
        let there = |stage: &Stage| stage.opened_count() >= wanted;
        if there(self.stage) || self.stage.wait_until(deadline, there) {
            return Ok(());
        }
        // If something failed, that is what will be reported.
        Err(Failure::ConnectSlow {
            opened: self.stage.opened_count(),
            wanted: self.connections,
            within: self.generator.connect_within,
        })
    }

    fn measure(&self, watch: Watch<'_>) -> Result<Reading, Failure> {
        let mut gate = self.gate.take();
        if let Some(gate) = &mut gate {
            gate.connected(&|| self.stage.failed())?;
        }
        let is_measured = || {
            if let Some(gate) = gate {
                gate.measured();
            }
        };
        let began = Instant::now();
        if let Some(script) = self.script.take() {
            let meter = self.begin()?;
            self.stage.enter(Phase::Sending);
            script(&mut Play::new(
                self.stage,
                self.connections,
                self.generator.stall * 2,
            ))?;
            let reading = meter.end(self, false)?;
            self.finish()?;
            return Ok(reading);
        }
        match self.extent {
            Extent::Time { warm_up, measured } => {
                self.stage.enter(Phase::Sending);
                let mut interrupted = !self.watched(began, began + warm_up, false, watch);
                let meter = self.begin()?;
                let until = meter.began + measured;
                interrupted = interrupted || !self.watched(began, until, false, watch);
                let reading = meter.end(self, interrupted)?;
                is_measured();
                self.finish()?;
                Ok(reading)
            }
            Extent::Count(_) | Extent::Rounds => {
                let meter = self.begin()?;
                self.stage.enter(Phase::Sending);
                let for_ever = began + Duration::from_secs(1 << 32);
                let interrupted = !self.watched(began, for_ever, true, watch);
                if interrupted {
                    self.finish()?;
                }
                let reading = meter.end(self, interrupted)?;
                is_measured();
                Ok(reading)
            }
        }
    }

    /// Waits, showing progress; false if the watcher wants no more. `to_done` also ends the wait
    /// when all connections are done; a failure always does.
    fn watched(&self, began: Instant, until: Instant, to_done: bool, watch: Watch<'_>) -> bool {
        let over = |stage: &Stage| to_done && stage.done_count() >= self.connections;
        loop {
            let next = until.min(Instant::now() + self.to_next_look());
            if self.stage.wait_until(next, over) || self.stage.failed() || Instant::now() >= until {
                return true;
            }
            let latencies = self.generator.live.then(|| self.stage.look());
            let server = self.server.borrow();
            let progress = Progress {
                server: server.as_ref(),
                elapsed: began.elapsed(),
                now_ns: now_ns(),
                requests: self.stage.counts().requests,
                latencies: latencies.as_ref(),
            };
            self.course.borrow_mut().note(&progress);
            if !watch(progress) {
                return false;
            }
        }
    }

    fn to_next_look(&self) -> Duration {
        to_next_look(self.generator.progress)
    }

    fn begin(&self) -> Result<Begun, Failure> {
        let generator = [Process::current()];
        let server = self.server.borrow();
        let meter = server.as_ref().map(|server| {
            let meter = Meter::start(server, &generator)?;
            Ok::<_, ProcError>(meter.among(self.cores(server)))
        });
        self.stage.measure_from(now());
        Ok(Begun {
            meter: meter.transpose()?,
            counts: self.stage.counts(),
            began: Instant::now(),
        })
    }

    /// The cores that server and generator have; empty if they may be any.
    fn cores(&self, server: &Process) -> Vec<u32> {
        let own = self.generator.cpus.iter();
        let mut all: Vec<u32> = own.filter_map(|core| u32::try_from(*core).ok()).collect();
        if all.is_empty() {
            return all;
        }
        all.extend(server.cores().unwrap_or_default());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Ends the load and waits until everything is answered.
    fn finish(&self) -> Result<(), Failure> {
        self.stage.enter(Phase::Ending);
        let over = |stage: &Stage| stage.settled_count() >= self.connections;
        let after = self.generator.stall;
        if self.stage.wait_until(Instant::now() + after, over) {
            return Ok(());
        }
        Err(Failure::Unfinished {
            after,
            done: self.stage.settled_count(),
            wanted: self.connections,
        })
    }
}

/// The time to the next whole multiple of `every` on the monotonic clock.
pub(super) fn to_next_look(every: Duration) -> Duration {
    let every = every.max(Duration::from_millis(1)).as_nanos() as u64;
    Duration::from_nanos(every - now_ns() % every)
}

/// The monotonic clock, in ns.
pub(super) fn now_ns() -> u64 {
    now().as_nanos()
}

/// The present time of the clock that loops have.
fn now() -> tidewire::Instant {
    let now = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    tidewire::Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// The beginning of the measured time.
struct Begun {
    meter: Option<Meter>,
    counts: Counts,
    began: Instant,
}

impl Begun {
    fn end(self, run: &Run<'_, '_>, interrupted: bool) -> Result<Reading, Failure> {
        let stage = run.stage;
        let counts = stage.counts();
        let elapsed = self.began.elapsed();
        stage.measure_until(now());
        let metered = self.meter.map(|meter| meter.stop()).transpose()?;
        run.find_server_again();
        Ok(Reading {
            counts: Counts {
                requests: counts.requests - self.counts.requests,
                bytes: counts.bytes - self.counts.bytes,
            },
            elapsed,
            metered,
            memory: run.memory(),
            kernel: run.kernel(),
            interrupted,
        })
    }
}
