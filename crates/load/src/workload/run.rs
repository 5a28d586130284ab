//! One run: connect, warm up, measure, wait for what is outstanding, close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire::{
    Builder, Dial, EngineChoice, Layered, Limits, Running, Service, ServiceId, StartError,
    TcpOptions,
};
use tidewire_tls::TlsClient;

use super::Workload;
use super::ack::Acks;
use super::client::{Clients, Driver};
use super::discard::Discard;
use super::echo::Echo;
use super::http::Https;
use super::kv::Kv;
use super::native::Native;
use super::stage::{Counts, Phase, Round, Stage};
use crate::abba::Sample;
use crate::histogram::{Latencies, LatencySummary};
use crate::meter::{Meter, Metered};
use crate::procfs::{ProcError, Process};

/// Connections being established at a time, so that no accept queue overflows.
const DIALLING_MAX: usize = 256;
/// How long all connections may take to be established, and the loops to stop.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing may move on a connection that is owed something.
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
    #[error("wrong reply on connection {connection}: {what}")]
    WrongReply {
        /// The connection, from 0.
        connection: u64,
        /// What is wrong.
        what: String,
    },
    /// The server closed a connection that it owed something.
    #[error("connection {connection} was lost ({why}): {owed}")]
    Lost {
        /// The connection, from 0.
        connection: u64,
        /// How it ended.
        why: String,
        /// What was owed.
        owed: String,
    },
    /// Nothing came on a connection that was owed something.
    #[error("nothing moved on connection {connection} for {STALL:?}: {owed}")]
    Stalled {
        /// The connection, from 0.
        connection: u64,
        /// What was owed.
        owed: String,
    },
    /// The end did not come.
    #[error("{done} of {wanted} connections were done {STALL:?} after the end of the load")]
    Unfinished {
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
    /// From send to reply; absent if nothing is ever answered.
    pub latency: Option<LatencySummary>,
    /// CPU of both sides; absent without a process to measure.
    pub metered: Option<Metered>,
    /// Cores that the server may use.
    pub server_cores: usize,
    /// Rounds, if the workload has them.
    pub rounds: Vec<Round>,
    /// It was ended before its time.
    pub interrupted: bool,
    /// The generator's engine.
    pub client_engine: String,
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
        if let (Some(metered), true) = (&self.metered, self.bytes > 0) {
            let kib = self.bytes as f64 / 1024.0;
            let spent = metered.server.total_ns as f64;
            sample = sample.lower("server_cpu_ns_per_kib", spent / kib);
        }
        match &self.latency {
            Some(summary) => sample.latencies(summary),
            None => sample,
        }
    }
}

/// Runs `workload` on `connections` connections.
///
/// # Errors
/// [`Failure`]: the first thing that went wrong ends the run.
pub fn run(
    workload: &Workload,
    connections: usize,
    extent: Extent,
    generator: &Generator,
    target: &Target,
    watch: Watch<'_>,
) -> Result<Outcome, Failure> {
    let stage = Stage::new();
    // The last connections of a count that cannot be divided send one less.
    let count = move |connection: u64| match extent {
        Extent::Count(all) => {
            let (each, more) = (all / connections as u64, all % connections as u64);
            each + u64::from(connection < more)
        }
        Extent::Time { .. } => u64::MAX,
        Extent::Rounds => 0,
    };
    let run = Run {
        stage: &stage,
        connections,
        extent,
        generator,
        target,
    };
    match *workload {
        Workload::Echo(load) => {
            let make =
                move |connection| Echo::new(load, count(connection), connection, connections);
            run.go(Clients::new(&stage, target.addr, false, make), watch)
        }
        Workload::Ack(load) => {
            let make = move |connection| Acks::new(load, count(connection), connection);
            run.go(Clients::new(&stage, target.addr, false, make), watch)
        }
        Workload::Native(load) => {
            let make =
                move |connection| Native::new(load, count(connection), connection, connections);
            run.go(Clients::new(&stage, target.addr, false, make), watch)
        }
        Workload::Kv(load) => {
            let make = move |connection| Kv::new(load, count(connection), connection, connections);
            run.go(Clients::new(&stage, target.addr, false, make), watch)
        }
        Workload::Http(load) => {
            let all = Arc::new(Https::new(load, connections, count));
            let make = move |connection| all.connection(connection);
            run.go(Clients::new(&stage, target.addr, false, make), watch)
        }
        Workload::Discard(load) => {
            let make = move |connection| Discard::new(load, count(connection));
            run.go(Clients::new(&stage, target.addr, true, make), watch)
        }
    }
}

struct Run<'a> {
    stage: &'a Arc<Stage>,
    connections: usize,
    extent: Extent,
    generator: &'a Generator,
    target: &'a Target,
}

/// What was read between the two ends of the measured time.
struct Reading {
    counts: Counts,
    elapsed: Duration,
    metered: Option<Metered>,
    interrupted: bool,
}

impl Run<'_> {
    fn go<D: Driver>(&self, clients: Clients<D>, watch: Watch<'_>) -> Result<Outcome, Failure> {
        let limits = self.limits();
        match &self.generator.tls {
            Some(tls) => self.run(Layered::with_limits(tls.clone(), clients, limits), watch),
            None => self.run(clients, watch),
        }
    }

    fn run<S: Service>(&self, clients: S, watch: Watch<'_>) -> Result<Outcome, Failure> {
        let (running, service) = self.start(clients)?;
        let measured = self.connect(&running, service);
        let measured = measured.and_then(|()| self.measure(watch));
        let engine = running.engine().to_string();
        // Looked at before connections are cut, which would be failures too.
        let failure = self.stage.take_failure();
        running.stop(CONNECT_WITHIN);
        let (latencies, rounds) = self.stage.close();
        let reading = match (failure, measured) {
            (Some(failure), _) | (None, Err(failure)) => return Err(failure),
            (None, Ok(reading)) => reading,
        };
        Ok(self.outcome(reading, &latencies, rounds, engine))
    }

    fn limits(&self) -> Limits {
        Limits {
            connections: usize::MAX,
            output_hard: usize::MAX,
            idle: Some(STALL),
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
            let dial = Dial::to(self.target.addr).token(token as u64);
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
                let reading = meter.end(self.stage, interrupted)?;
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
                meter.end(self.stage, interrupted)
            }
        }
    }

    /// Waits, showing progress; false if the watcher wants no more. `to_done` also ends the wait
    /// when all connections are done; a failure always does.
    fn watched(&self, began: Instant, until: Instant, to_done: bool, watch: Watch<'_>) -> bool {
        let over = |stage: &Stage| to_done && stage.done_count() >= self.connections;
        loop {
            let next = until.min(Instant::now() + PROGRESS);
            if self.stage.wait_until(next, over) || self.stage.failed() || Instant::now() >= until {
                return true;
            }
            let progress = Progress {
                elapsed: began.elapsed(),
                requests: self.stage.counts().requests,
            };
            if !watch(progress) {
                return false;
            }
        }
    }

    fn begin(&self) -> Result<Begun, Failure> {
        let generator = Process::current();
        let meter = self.target.process.as_ref();
        let meter = meter.map(|server| Meter::start(server, &generator));
        self.stage.measure(true);
        Ok(Begun {
            meter: meter.transpose()?,
            counts: self.stage.counts(),
            began: Instant::now(),
        })
    }

    /// Ends the load and waits until everything is answered.
    fn finish(&self) -> Result<(), Failure> {
        self.stage.enter(Phase::Ending);
        let over = |stage: &Stage| stage.done_count() >= self.connections;
        if self.stage.wait_until(Instant::now() + STALL, over) {
            return Ok(());
        }
        Err(Failure::Unfinished {
            done: self.stage.done_count(),
            wanted: self.connections,
        })
    }

    fn outcome(
        &self,
        reading: Reading,
        latencies: &Latencies,
        rounds: Vec<Round>,
        client_engine: String,
    ) -> Outcome {
        Outcome {
            requests: reading.counts.requests,
            bytes: reading.counts.bytes,
            elapsed: reading.elapsed,
            latency: latencies.summary(),
            metered: reading.metered,
            server_cores: self.target.cores,
            rounds,
            interrupted: reading.interrupted,
            client_engine,
        }
    }
}

/// The beginning of the measured time.
struct Begun {
    meter: Option<Meter>,
    counts: Counts,
    began: Instant,
}

impl Begun {
    fn end(self, stage: &Stage, interrupted: bool) -> Result<Reading, Failure> {
        let counts = stage.counts();
        let elapsed = self.began.elapsed();
        stage.measure(false);
        let metered = self.meter.map(|meter| meter.stop()).transpose()?;
        Ok(Reading {
            counts: Counts {
                requests: counts.requests - self.counts.requests,
                bytes: counts.bytes - self.counts.bytes,
            },
            elapsed,
            metered,
            interrupted,
        })
    }
}
