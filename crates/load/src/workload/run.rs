//! One run: connect, warm up, measure, wait for what is outstanding, close.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tidewire::{
    Builder, Dial, EngineChoice, Layered, Limits, Running, Service, ServiceId, StartError,
    TcpOptions,
};
use tidewire_tls::TlsClient;

use super::ack::Acks;
use super::arrivals::Arrivals;
use super::client::{Clients, Driver, Route};
use super::connect::Connect;
use super::discard::Discard;
use super::echo::Echo;
use super::fault::Fault;
use super::flight::Flight;
use super::http::Https;
use super::kv::Kv;
use super::native::Native;
use super::pace::Pace;
use super::stage::{Counts, Phase, Round, Stage, Taken};
use super::turns::Slot;
use super::{EchoLoad, Workload};
use crate::abba::Sample;
use crate::histogram::{Latencies, LatencySummary, Mode, Quantile};
use crate::meter::{Meter, Metered};
use crate::procfs::{ListenQueues, ProcError, Process, TcpSegments};

/// Connections being established at a time, so that no accept queue overflows.
const DIALLING_MAX: usize = 256;
/// How long all connections may take to be established, and the loops to stop.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
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
    /// Loopback addresses that connections come from in turns, 127.0.0.1 and those behind it: each
    /// has some 28,000 ports to one server. 1 leaves it to the system.
    pub sources: u32,
    /// How long nothing may move on a connection that is owed something; 10 s by default.
    pub stall: Duration,
    /// How often progress is shown, at whole multiples of it on the monotonic clock, so that several runs are looked at
    /// in the same moments; at least 1 ms, 200 ms by default.
    pub progress: Duration,
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
            sources: 1,
            stall: STALL,
            progress: PROGRESS,
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
    /// Its process, if its CPU time is to be measured.
    pub process: Option<Process>,
    /// Cores that it may use.
    pub cores: usize,
}

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The generator could not be started.
    #[error("cannot start the load generator: {0}")]
    Start(#[from] StartError),
    /// A connection could not be established.
    #[error("cannot connect: {error}")]
    Connect {
        /// What the system said.
        error: String,
    },
    /// Not all connections were established in time.
    #[error("only {opened} of {wanted} connections were established within {CONNECT_WITHIN:?}")]
    ConnectSlow {
        /// Those that were.
        opened: usize,
        /// Those that were to be.
        wanted: usize,
    },
    /// A reply is not what it has to be.
    #[error("wrong reply on connection {connection}: {fault}: {what}")]
    WrongReply {
        /// The connection, from 0.
        connection: u64,
        /// What kind of fault it is.
        fault: Fault,
        /// What is wrong.
        what: String,
    },
    /// The server closed a connection that it owed something.
    #[error("connection {connection} was lost: close in the middle ({why}): {owed}")]
    Lost {
        /// The connection, from 0.
        connection: u64,
        /// How it ended.
        why: String,
        /// What was owed.
        owed: String,
    },
    /// Nothing came on a connection that was owed something.
    #[error("nothing moved on connection {connection} for {after:?}: {fault}: {owed}")]
    Stalled {
        /// The connection, from 0.
        connection: u64,
        /// What that looks like: a short reply, or none.
        fault: Fault,
        /// How long was waited.
        after: Duration,
        /// What was owed.
        owed: String,
    },
    /// The end did not come.
    #[error(
        "{done} of {wanted} connections were done {after:?} after the end of the load: no reply"
    )]
    Unfinished {
        /// How long was waited.
        after: Duration,
        /// Those that were.
        done: usize,
        /// Those that were to be.
        wanted: usize,
    },
    /// The server's figures could not be read.
    #[error("cannot measure the server: {0}")]
    Proc(#[from] ProcError),
}

impl Failure {
    /// Whether the server is to blame for what it answered, or for not answering, rather than the
    /// way the run was set up.
    pub fn is_wrong_answer(&self) -> bool {
        matches!(
            self,
            Failure::WrongReply { .. }
                | Failure::Lost { .. }
                | Failure::Stalled { .. }
                | Failure::Unfinished { .. }
        )
    }
}

/// How far a run has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the load began.
    pub elapsed: Duration,
    /// The monotonic clock, in ns: the same for all runs on a machine.
    pub now_ns: u64,
    /// Messages answered (or taken) so far, warm-up included.
    pub requests: u64,
}

/// Is shown progress now and then; answers whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(Progress) -> bool;

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Messages answered while it was measured; for discard, taken by the kernel.
    pub requests: u64,
    /// Their bytes, one way.
    pub bytes: u64,
    /// How long it was measured.
    pub elapsed: Duration,
    /// From the actual send to the reply; absent if nothing is ever answered.
    pub latency: Option<LatencySummary>,
    /// What only a load by the clock has.
    pub schedule: Option<Schedule>,
    /// The distribution: from when messages were due where they have times, else from their sends.
    pub spectrum: Vec<Quantile>,
    /// Its two summits, if it has two.
    pub modes: Vec<Mode>,
    /// Messages answered by then, seconds since the load began, every 200 ms; longer runs have fewer
    /// points.
    pub progress: Vec<(f64, u64)>,
    /// The server's memory, if its process is known.
    pub memory: Option<MemoryUse>,
    /// Both distributions in full.
    #[serde(skip)]
    pub histograms: Histograms,
    /// CPU of both sides; absent without a process to measure.
    pub metered: Option<Metered>,
    /// What the kernel counted from the first connection to the end; absent where it does not count.
    pub kernel: Option<Kernel>,
    /// Cores that the server may use.
    pub server_cores: usize,
    /// Rounds, if the workload has them.
    pub rounds: Vec<Round>,
    /// It was ended before its time.
    pub interrupted: bool,
    /// The generator's engine.
    pub client_engine: String,
    /// The generator's loops.
    pub generator_loops: usize,
}

/// The distributions of a run.
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    /// From the send to the reply.
    pub sent: Latencies,
    /// From when each message was due; absent without a schedule.
    pub intended: Option<Latencies>,
}

impl Histograms {
    /// That which a user would have felt: from when messages were due, if they had times.
    pub fn felt(&self) -> &Latencies {
        self.intended.as_ref().unwrap_or(&self.sent)
    }
}

/// Resident memory of the server, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MemoryUse {
    /// Before the first connection of this run.
    pub before_bytes: u64,
    /// With all connections, before anything was sent.
    pub connected_bytes: u64,
    /// At the end of what was measured.
    pub end_bytes: u64,
    /// What a connection that says nothing takes; absent for fewer than 100, where pages hide it.
    pub bytes_per_connection: Option<f64>,
}

/// Counters of a whole network namespace: the server's where its process is known, else the generator's. Of whoever
/// uses it besides, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Kernel {
    /// Segments of TCP.
    pub tcp: TcpSegments,
    /// Handshakes that were turned away.
    pub listen: ListenQueues,
}

impl Kernel {
    fn read(process: &Process) -> Option<Kernel> {
        Some(Kernel {
            tcp: process.tcp_segments().ok()?,
            listen: process.listen_queues().ok()?,
        })
    }

    fn since(&self, earlier: &Kernel) -> Kernel {
        Kernel {
            tcp: self.tcp.since(&earlier.tcp),
            listen: self.listen.since(&earlier.listen),
        }
    }
}

/// Connections below which their memory cannot be told from that of pages.
const MEMORY_CONNECTIONS: usize = 100;
/// Points of [`Outcome::progress`].
const PROGRESS_MAX: usize = 500;

/// How a load by the clock went.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// From the time at which each message was to be sent to its reply. Counts each message that was to
    /// be sent while it was measured, whenever it was answered; those never sent with the time that
    /// they had waited by the end. Absent if nothing is ever answered.
    pub latency: Option<LatencySummary>,
    /// From the time at which each message could have been sent (its time, or when the window had room
    /// again) to the send: the generator's own lateness.
    pub slip: Option<LatencySummary>,
    /// Messages that were due and had found no room when the measured time was over.
    pub unsent: u64,
}

impl Outcome {
    /// Messages a second.
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// MiB a second, one way.
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / (1 << 20) as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The figures as one run of a comparison.
    pub fn sample(&self) -> Sample {
        let mut sample = match &self.metered {
            Some(metered) => metered.sample(self.requests, self.server_cores),
            None => Sample::new().higher("requests_per_second", self.requests_per_second()),
        };
        sample = sample.higher("mib_per_second", self.mib_per_second());
        if let (Some(metered), true) = (&self.metered, self.requests > 0) {
            let each = |ns: u64| ns as f64 / self.requests as f64;
            sample = sample
                .lower("server_user_ns_per_request", each(metered.server.user_ns))
                .lower(
                    "server_system_ns_per_request",
                    each(metered.server.system_ns),
                );
        }
        if let Some(bytes) = self.memory.and_then(|memory| memory.bytes_per_connection) {
            sample = sample.lower("server_bytes_per_connection", bytes);
        }
        if let (Some(metered), true) = (&self.metered, self.bytes > 0) {
            let kib = self.bytes as f64 / 1024.0;
            let spent = metered.server.total_ns as f64;
            sample = sample.lower("server_cpu_ns_per_kib", spent / kib);
        }
        let scheduled = self.schedule.as_ref().and_then(|by| by.latency.as_ref());
        match scheduled.or(self.latency.as_ref()) {
            Some(summary) => sample.latencies(summary),
            None => sample,
        }
    }
}

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
    let Plan {
        connections,
        arrivals,
        extent,
        ..
    } = *plan;
    let stage = Stage::new(arrivals);
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
        connections,
        extent,
        generator,
        target,
        progress: RefCell::default(),
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
            let first = Arc::default();
            run.go(false, watch, move |connection| {
                let part = (connection, connections);
                Kv::new(load, count(connection), part, flight(connection), &first)
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

struct Run<'a> {
    stage: &'a Arc<Stage>,
    connections: usize,
    extent: Extent,
    generator: &'a Generator,
    target: &'a Target,
    progress: RefCell<Vec<(f64, u64)>>,
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

impl Run<'_> {
    /// `silent` says that nothing is ever answered; `make` makes a connection of its number.
    fn go<D: Driver>(
        &self,
        silent: bool,
        watch: Watch<'_>,
        make: impl Fn(u64) -> D + Send + Sync + 'static,
    ) -> Result<Outcome, Failure> {
        let clients = Clients::new(self.stage, self.route(), silent, make);
        let limits = self.limits();
        match &self.generator.tls {
            Some(tls) => self.run(Layered::with_limits(tls.clone(), clients, limits), watch),
            None => self.run(clients, watch),
        }
    }

    fn route(&self) -> Route {
        Route {
            to: self.target.addr,
            sources: self.generator.sources,
            stall: self.generator.stall,
        }
    }

    fn run<S: Service>(&self, clients: S, watch: Watch<'_>) -> Result<Outcome, Failure> {
        let (running, service) = self.start(clients)?;
        let before = self.memory();
        let counted = self.kernel();
        let measured = self.connect(&running, service);
        let connected = self.memory();
        let measured = measured.and_then(|()| self.measure(watch));
        let engine = running.engine().to_string();
        // Looked at before connections are cut, which would be failures too.
        let failure = self.stage.take_failure();
        running.stop(CONNECT_WITHIN);
        let (taken, rounds) = self.stage.close();
        let reading = match (failure, measured) {
            (Some(failure), _) | (None, Err(failure)) => return Err(failure),
            (None, Ok(reading)) => reading,
        };
        let memory = self.memory_use(before, connected, reading.memory);
        let kernel = reading.kernel.zip(counted);
        let kernel = kernel.map(|(end, begin)| end.since(&begin));
        Ok(Outcome {
            memory,
            kernel,
            ..self.outcome(reading, taken, rounds, engine)
        })
    }

    /// What the server has now; none if its process is not known or has gone, which others will say.
    fn memory(&self) -> Option<u64> {
        self.target.process.as_ref()?.resident_bytes().ok()
    }

    fn kernel(&self) -> Option<Kernel> {
        match &self.target.process {
            Some(server) => Kernel::read(server),
            None => Kernel::read(&Process::current()),
        }
    }

    fn memory_use(
        &self,
        before: Option<u64>,
        connected: Option<u64>,
        end: Option<u64>,
    ) -> Option<MemoryUse> {
        let (before_bytes, connected_bytes) = (before?, connected?);
        let more = connected_bytes.saturating_sub(before_bytes) as f64;
        let enough = self.connections >= MEMORY_CONNECTIONS;
        Some(MemoryUse {
            before_bytes,
            connected_bytes,
            end_bytes: end?,
            bytes_per_connection: enough.then(|| more / self.connections as f64),
        })
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
        let deadline = Instant::now() + CONNECT_WITHIN;
        for token in 0..self.connections {
            let first = (token + 1).saturating_sub(DIALLING_MAX);
            self.await_opened(first, deadline)?;
            let dial: Dial = self.route().dial(token as u64);
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
        })
    }

    fn measure(&self, watch: Watch<'_>) -> Result<Reading, Failure> {
        let began = Instant::now();
        match self.extent {
            Extent::Time { warm_up, measured } => {
                self.stage.enter(Phase::Sending);
                let mut interrupted = !self.watched(began, began + warm_up, false, watch);
                let meter = self.begin()?;
                let until = meter.began + measured;
                interrupted = interrupted || !self.watched(began, until, false, watch);
                let reading = meter.end(self, interrupted)?;
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
                meter.end(self, interrupted)
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
            let progress = Progress {
                elapsed: began.elapsed(),
                now_ns: now().since(tidewire::Instant::from_nanos(0)).as_nanos() as u64,
                requests: self.stage.counts().requests,
            };
            self.note(progress);
            if !watch(progress) {
                return false;
            }
        }
    }

    fn to_next_look(&self) -> Duration {
        let every = self
            .generator
            .progress
            .max(Duration::from_millis(1))
            .as_nanos() as u64;
        let since = now().since(tidewire::Instant::from_nanos(0)).as_nanos() as u64;
        Duration::from_nanos(every - since % every)
    }

    /// Keeps it for the course of the run; of long runs every second point, and so on.
    fn note(&self, progress: Progress) {
        let mut points = self.progress.borrow_mut();
        if points.len() >= PROGRESS_MAX {
            let mut number = 0u32;
            points.retain(|_| {
                number += 1;
                number.is_multiple_of(2)
            });
        }
        points.push((progress.elapsed.as_secs_f64(), progress.requests));
    }

    fn begin(&self) -> Result<Begun, Failure> {
        let generator = Process::current();
        let meter = self.target.process.as_ref();
        let meter = meter.map(|server| Meter::start(server, &generator));
        self.stage.measure_from(now());
        Ok(Begun {
            meter: meter.transpose()?,
            counts: self.stage.counts(),
            began: Instant::now(),
        })
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

    fn outcome(
        &self,
        reading: Reading,
        taken: Taken,
        rounds: Vec<Round>,
        client_engine: String,
    ) -> Outcome {
        let schedule = taken.scheduled.as_ref().map(|by| Schedule {
            latency: by.latencies.summary(),
            slip: by.slip.summary(),
            unsent: by.unsent,
        });
        let histograms = Histograms {
            sent: taken.latencies,
            intended: taken.scheduled.map(|by| by.latencies),
        };
        Outcome {
            requests: reading.counts.requests,
            bytes: reading.counts.bytes,
            elapsed: reading.elapsed,
            latency: histograms.sent.summary(),
            schedule,
            spectrum: histograms.felt().spectrum(),
            modes: histograms.felt().modes().into_iter().flatten().collect(),
            progress: self.progress.take(),
            memory: None,
            kernel: None,
            histograms,
            generator_loops: self.generator.loops,
            metered: reading.metered,
            server_cores: self.target.cores,
            rounds,
            interrupted: reading.interrupted,
            client_engine,
        }
    }
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
    fn end(self, run: &Run<'_>, interrupted: bool) -> Result<Reading, Failure> {
        let stage = run.stage;
        let counts = stage.counts();
        let elapsed = self.began.elapsed();
        stage.measure_until(now());
        let metered = self.meter.map(|meter| meter.stop()).transpose()?;
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
