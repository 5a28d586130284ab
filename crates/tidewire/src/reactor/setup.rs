//! The parts with which a loop is started.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::build::listen::TcpOptions;
use crate::kernel::clock::Clock;
use crate::kernel::descriptor::Descriptor;
use crate::reach::names::Names;
use crate::reach::stop::StopClock;
use crate::reach::sync::Mutex;
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::core::{Core, Plan};
use crate::reactor::counters::LoopCounters;
use crate::reactor::life::Registry;
use crate::reactor::random::Rng;

/// A listening socket of one loop.
pub(crate) struct Listener {
    /// The loop owns this socket and closes it. Other threads may look at the socket until then.
    pub(crate) socket: Arc<Descriptor>,
    pub(crate) service: u16,
    pub(crate) number: u32,
    /// A TCP listener that no other process shares: changes to it end with this loop.
    pub(crate) is_private: bool,
}

/// Loops that carry what another one accepts.
#[derive(Clone)]
pub(crate) struct Fleet {
    pub(crate) loops: Vec<Arc<Waker>>,
    pub(crate) turn: Turn,
}

/// How the next loop is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Connections go to the loops one after the other.
    Next,
    /// A connection goes to the loop that carries fewest.
    LeastConnections,
}

/// Starts the threads of connections on the threads engine.
pub(crate) trait Spawn: Send + Sync {
    /// Starts a thread that carries out `command` and lives until its connections are gone. The
    /// thread wakes `acceptor` when it ends, and leaves commands that came too late to it.
    fn spawn(&self, command: Command, acceptor: &Arc<Waker>) -> io::Result<()>;
    /// Stops all these threads, and later ones.
    fn stop(&self, how: Stop);
    /// How many there are.
    fn live(&self) -> usize;
}

/// The loop that carries an accepted connection.
#[derive(Clone)]
pub(crate) enum Spread {
    /// The accepting loop keeps its connections.
    Here,
    /// Connections go to these loops.
    Loops(Fleet),
    /// Each connection goes to a new thread.
    Threads(Arc<dyn Spawn>),
}

/// Everything that a loop is started with.
pub(crate) struct LoopSetup {
    pub(crate) plan: Arc<Plan>,
    pub(crate) dial_options: Arc<TcpOptions>,
    /// Looks up addresses for dials to hosts.
    pub(crate) names: Arc<Names>,
    pub(crate) busy_poll: Duration,
    /// Sockets stand in the table of an io_uring.
    pub(crate) direct: bool,
    pub(crate) clock: Arc<StopClock>,
    pub(crate) registry: Arc<Mutex<Registry>>,
    /// Commands that may wait for one loop.
    pub(crate) inbox: usize,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) spread: Spread,
    pub(crate) cpu: Option<usize>,
}

/// All but the listeners, which only one loop can have.
impl Clone for LoopSetup {
    fn clone(&self) -> LoopSetup {
        LoopSetup {
            plan: self.plan.clone(),
            dial_options: self.dial_options.clone(),
            names: self.names.clone(),
            busy_poll: self.busy_poll,
            direct: self.direct,
            clock: self.clock.clone(),
            registry: self.registry.clone(),
            inbox: self.inbox,
            listeners: Vec::new(),
            spread: self.spread.clone(),
            cpu: self.cpu,
        }
    }
}

impl LoopSetup {
    /// The core of this loop, to be made on its own thread. A loop that only accepts for other loops
    /// hosts no services; one that accepts for threads does, because no other lasts, and a service's
    /// timer may dial there.
    pub(crate) fn core(
        &self,
        waker: Arc<Waker>,
        counters: Arc<LoopCounters>,
        clock: Clock,
        rng: Rng,
    ) -> Core {
        let mut core = self.bare_core(waker, counters, clock, rng);
        core.names = self.names.clone();
        core
    }

    fn bare_core(
        &self,
        waker: Arc<Waker>,
        counters: Arc<LoopCounters>,
        clock: Clock,
        rng: Rng,
    ) -> Core {
        match self.spread {
            Spread::Here | Spread::Threads(_) => Core::new(&self.plan, waker, counters, clock, rng),
            Spread::Loops(_) => {
                let plan = Plan {
                    hosts: Vec::new(),
                    chunk: 1 << 10,
                    buffers: 1,
                    throttles: self.plan.throttles.clone(),
                    log_connections: false,
                    made: self.plan.made,
                    shares: self.plan.shares,
                    received: self.plan.received,
                    memory: self.plan.memory.clone(),
                };
                let mut core = Core::new(&plan, waker, counters, clock, rng);
                // The acceptor counts the refusals of all loops.
                self.plan
                    .hosts
                    .iter()
                    .for_each(|hosted| core.know_service(hosted));
                core
            }
        }
    }

    /// Pins the calling thread if that was asked for.
    pub(crate) fn pin(&self) {
        let Some(cpu) = self.cpu else { return };
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu);
        if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
            tracing::warn!(cpu, error = %e, "cannot pin the loop; it runs unpinned");
        }
    }
}
