//! The course of a run, whatever is sent: all connections are made, the load begins, it is measured, and ends.
//!
//! The idea: a load says by [`Execution::go`] how it makes a connection of a given number; it is handed what belongs to that
//! number ([`Dealt`]): how many messages, and when.

use std::cell::{Cell, RefCell};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire::{Builder, Dial, Layered, Limits, Running, Service, ServiceId};

use super::arrivals::Arrivals;
use super::client::{Clients, Driver, Route};
use super::course::Course;
use super::extent::Extent;
use super::failure::Failure;
use super::flight::Flight;
use super::generator::{Generator, Progress, Target, Watch, now, now_ns, to_next_look};
use super::outcome::{Kernel, MemoryUse};
use super::pace::Pace;
use super::part::{Gate, Part, Share};
use super::play::{Play, Script};
use super::stage::{Counts, Phase, Stage};
use crate::meter::{Meter, Metered};
use crate::procfs::{ProcError, Process};
use crate::serving::{self, Serving};

/// Connections being established at a time, so that no accept queue overflows.
const DIALLING_MAX: usize = 256;
/// Connections from one address of this host, unless it is said.
const SOURCE_CONNECTIONS: usize = 20_000;
/// How long the loops may take to stop.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(30);

/// The other processes for which a run waits, beside its own connections.
pub(super) enum Led<'g> {
    /// The run waits for no other process.
    Freely,
    /// Other parts of the load.
    Gate(&'g mut dyn Gate),
    /// A script, round by round.
    Script(Script<'g>),
}

/// The properties of a connection that follow from its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dealt {
    /// Connections of all parts of the load.
    pub(super) connections: usize,
    arrivals: Arrivals,
    extent: Extent,
}

impl Dealt {
    /// Messages of a connection. The last connections of a count that cannot be divided send one less.
    pub(super) fn count(self, connection: u64) -> u64 {
        match self.extent {
            Extent::Count(all) => {
                let connections = self.connections as u64;
                let (each, more) = (all / connections, all % connections);
                each + u64::from(connection < more)
            }
            Extent::Time { .. } => u64::MAX,
            Extent::Rounds => 0,
        }
    }

    /// The times of a connection's messages, as one of `of` that send.
    pub(super) fn pace(self, connection: u64, of: usize) -> Option<Pace> {
        let rate = self.arrivals.rate();
        rate.map(|rate| Pace::new(rate, connection, of))
    }

    pub(super) fn flight(self, connection: u64) -> Flight {
        Flight::new(self.pace(connection, self.connections))
    }
}

/// One run.
pub struct Execution<'a, 'g> {
    stage: Arc<Stage>,
    part: Part,
    dealt: Dealt,
    /// Connections of this part.
    connections: usize,
    /// Whether connections may come and go during the measurement.
    renews: bool,
    generator: &'a Generator,
    target: &'a Target,
    course: RefCell<Course>,
    /// The serving process, as soon as all connections are there.
    server: RefCell<Option<Process>>,
    serving: RefCell<Serving>,
    /// Where this process waits for the others before the load begins, if there are others.
    gate: Cell<Option<&'g mut dyn Gate>>,
    /// The script that opens the rounds of a load in rounds.
    script: Cell<Option<Script<'g>>>,
}

/// The results of this process.
pub struct Made {
    pub(super) share: Share,
    pub(super) course: Vec<(f64, u64)>,
    pub(super) memory: Option<MemoryUse>,
    pub(super) kernel: Option<Kernel>,
    pub(super) metered: Option<Metered>,
    pub(super) serving: Serving,
}

/// The readings between the two ends of the measured time.
struct Reading {
    counts: Counts,
    elapsed: Duration,
    metered: Option<Metered>,
    /// The server's, at the end.
    memory: Option<u64>,
    kernel: Option<Kernel>,
    interrupted: bool,
}

impl<'a, 'g> Execution<'a, 'g> {
    /// A run of so many connections, at these times, for so long.
    pub(super) fn new(
        (connections, arrivals, extent): (usize, Arrivals, Extent),
        generator: &'a Generator,
        target: &'a Target,
        part: Part,
        led: Led<'g>,
        renews: bool,
    ) -> Execution<'a, 'g> {
        let stage = match led {
            Led::Script(_) => Stage::in_rounds(),
            Led::Freely | Led::Gate(_) => Stage::new(arrivals),
        };
        let (gate, script) = match led {
            Led::Freely => (None, None),
            Led::Gate(gate) => (Some(gate), None),
            Led::Script(script) => (None, Some(script)),
        };
        Execution {
            stage,
            part,
            dealt: Dealt {
                connections,
                arrivals,
                extent,
            },
            connections: part.connections(connections),
            renews,
            generator,
            target,
            course: RefCell::default(),
            server: RefCell::new(target.process.clone()),
            serving: RefCell::default(),
            gate: Cell::new(gate),
            script: Cell::new(script),
        }
    }

    /// The properties of each connection.
    pub(super) fn dealt(&self) -> Dealt {
        self.dealt
    }

    /// Makes the run. `silent` says that nothing is ever answered; `make` makes a connection of its number.
    pub(super) fn go<D: Driver>(
        &self,
        silent: bool,
        watch: Watch<'_>,
        make: impl Fn(u64) -> D + Send + Sync + 'static,
    ) -> Result<Made, Failure> {
        let clients = Clients::new(&self.stage, self.route(), silent, make);
        let limits = self.limits();
        match &self.generator.tls {
            Some(tls) => self.run(Layered::with_limits(tls.clone(), clients, limits), watch),
            None => self.run(clients, watch),
        }
    }

    fn route(&self) -> Route {
        let to = self.target.addr;
        let needed = match to.ip() == Ipv4Addr::LOCALHOST {
            true => self.dealt.connections.div_ceil(SOURCE_CONNECTIONS) as u32,
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
                body_bytes: None,
            },
        })
    }

    /// The server's present memory; `None` if its process is unknown or has ended, which other
    /// checks report.
    fn memory(&self) -> Option<u64> {
        self.server.borrow().as_ref()?.all_resident_bytes().ok()
    }

    /// Finds the process that holds the connections; returns whether it differs from the named one.
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
        if there(&self.stage) || self.stage.wait_until(deadline, there) {
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
                &self.stage,
                self.connections,
                self.generator.stall * 2,
            ))?;
            let reading = meter.end(self, false)?;
            self.finish()?;
            return Ok(reading);
        }
        match self.dealt.extent {
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
            let next = until.min(Instant::now() + to_next_look(self.generator.progress));
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

/// The beginning of the measured time.
struct Begun {
    meter: Option<Meter>,
    counts: Counts,
    began: Instant,
}

impl Begun {
    fn end(self, run: &Execution<'_, '_>, interrupted: bool) -> Result<Reading, Failure> {
        let stage = &run.stage;
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
