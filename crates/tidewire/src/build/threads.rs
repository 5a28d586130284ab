//! The threads engine: one thread for each connection. Each thread is a loop with one connection;
//! it waits on its socket, and on a wake-up descriptor that is made when a handle is taken.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver::readiness::poll::Poll;
use crate::driver::readiness::sockets::Sockets;
use crate::kernel::calls::Sys;
use crate::kernel::clock::Clock;
use crate::kernel::descriptor::Descriptor;
use crate::kernel::linux::Linux;
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::Reactor;
use crate::reactor::core::Plan;
use crate::reactor::life::{Life, Registered};
use crate::reactor::random::Rng;
use crate::reactor::setup::{LoopSetup, Spawn};

/// Address space for a connection's stack; pages are used as they are touched.
const STACK: usize = 512 << 10;

/// The threads that run.
struct Live {
    wakers: HashMap<u64, Arc<Waker>>,
    /// For threads that start once a stop has begun.
    stopping: Stop,
}

/// Starts the threads, and stops them.
#[derive(Clone)]
pub(crate) struct Spawner(Arc<Inner>);

/// Starts what carries a command; a thread, unless the threads are simulated.
pub(crate) type Start = Box<dyn Fn(Carrier) -> io::Result<()> + Send + Sync>;

struct Inner {
    setup: LoopSetup,
    cpus: Vec<usize>,
    next: AtomicU64,
    /// The name that all these threads share in metrics.
    name: Arc<str>,
    live: Mutex<Live>,
    /// Readable once all are to stop: threads without a wake-up descriptor wait on this too.
    stop: Result<Arc<Descriptor>, io::ErrorKind>,
    start: Start,
}

impl Spawner {
    pub(crate) fn new(setup: LoopSetup, cpus: Vec<usize>) -> Spawner {
        Spawner::starting(setup, cpus, Linux.event(), Box::new(start_thread))
    }

    /// An engine whose threads `spawn` starts; `stop` is the descriptor by which they are stopped.
    pub(crate) fn starting(
        setup: LoopSetup,
        cpus: Vec<usize>,
        stop: io::Result<Descriptor>,
        start: Start,
    ) -> Spawner {
        Spawner(Arc::new(Inner {
            setup,
            cpus,
            next: AtomicU64::new(0),
            name: "threads".into(),
            live: Mutex::new(Live {
                wakers: HashMap::new(),
                stopping: Stop::No,
            }),
            stop: stop.map(Arc::new).map_err(|e| e.kind()),
            start,
        }))
    }
}

impl Spawn for Spawner {
    fn spawn(&self, command: Command, acceptor: &Arc<Waker>) -> io::Result<()> {
        let number = self.0.next.fetch_add(1, Relaxed);
        let mut setup = self.0.setup.clone();
        if !self.0.cpus.is_empty() {
            setup.cpu = Some(self.0.cpus[number as usize % self.0.cpus.len()]);
        }
        let stop = match &self.0.stop {
            Ok(stop) => stop.clone(),
            Err(kind) => return Err((*kind).into()),
        };
        // Loop 0 is the acceptor.
        let loop_number = u32::try_from(number + 1).unwrap_or(u32::MAX);
        let waker = Arc::new(Waker::of_loop(loop_number).bounded(setup.inbox));
        let service = command.service();
        // A new inbox has room.
        let _ = waker.send(command);
        {
            let mut live = lock(&self.0.live);
            waker.stop(live.stopping);
            live.wakers.insert(number, waker.clone());
        }
        let carrier = Carrier {
            setup,
            service,
            stop,
            waker,
            ended: Ended {
                inner: self.0.clone(),
                number,
                acceptor: acceptor.clone(),
            },
        };
        (self.0.start)(carrier)
    }

    fn stop(&self, how: Stop) {
        {
            let mut live = lock(&self.0.live);
            live.stopping = live.stopping.max(how);
            for waker in live.wakers.values() {
                waker.stop(how);
            }
        }
        if let Ok(stop) = &self.0.stop {
            stop.notify();
        }
    }

    fn live(&self) -> usize {
        lock(&self.0.live).wakers.len()
    }
}

fn start_thread(carrier: Carrier) -> io::Result<()> {
    let thread = std::thread::Builder::new()
        .name(format!("tidewire-{}", carrier.ended.number))
        .stack_size(STACK);
    thread.spawn(move || carry(carrier)).map(drop)
}

/// The life of a connection's thread.
fn carry(carrier: Carrier) {
    carrier.setup.pin();
    carrier.setup.clock.runs_here();
    let (clock, rng) = (Clock::System, Rng::from_system());
    let (reactor, carried) = carrier.begin(Linux, clock, rng);
    let ran = reactor.and_then(|reactor| reactor.run_until_empty(carried.acceptor()));
    if let Err(e) = ran {
        tracing::error!(error = %e, "cannot set up a connection's thread");
    }
}

/// A connection and its thread, before the thread has begun.
pub(crate) struct Carrier {
    setup: LoopSetup,
    /// The service of the connection. No other will come, so no other service is hosted: one that
    /// keeps its handle would cost this connection a descriptor.
    service: u16,
    stop: Arc<Descriptor>,
    waker: Arc<Waker>,
    /// Dropped last, when the counters have been added up.
    ended: Ended,
}

/// To be held for as long as the loop lives.
pub(crate) struct Carried {
    _life: Life,
    ended: Ended,
}

impl Carried {
    /// The acceptor, which is left what comes too late.
    pub(crate) fn acceptor(&self) -> &Arc<Waker> {
        &self.ended.acceptor
    }
}

impl Carrier {
    /// Sets the services that the thread hosts, if they differ from the services of its spawner.
    pub(crate) fn hosting(mut self, plan: Arc<Plan>) -> Carrier {
        self.setup.plan = plan;
        self
    }

    /// The connection's loop, to be made on its own thread.
    pub(crate) fn begin<S: Sys>(
        self,
        sys: S,
        clock: Clock,
        rng: Rng,
    ) -> (io::Result<Reactor<Sockets<Poll<S>>>>, Carried) {
        let Carrier {
            mut setup,
            service,
            stop,
            waker,
            ended,
        } = self;
        let life = Life {
            registry: setup.registry.clone(),
            counters: Arc::default(),
            waker: waker.clone(),
            heir: Some(ended.acceptor.clone()),
        };
        lock(&setup.registry).add(Registered {
            name: ended.inner.name.clone(),
            counters: life.counters.clone(),
            waker: waker.clone(),
            is_passing: true,
        });
        setup.plan = Arc::new(setup.plan.only(service));
        let core = setup.core(waker.clone(), life.counters.clone(), clock, rng);
        let driver = Sockets::new(Poll::new(sys, stop), setup.dial_options.clone());
        let reactor = Reactor::new(driver, core, setup, waker);
        (reactor, Carried { _life: life, ended })
    }
}

/// Takes a thread off the list, also when it panics.
struct Ended {
    inner: Arc<Inner>,
    number: u64,
    acceptor: Arc<Waker>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        lock(&self.inner.live).wakers.remove(&self.number);
        self.acceptor.wake();
    }
}
