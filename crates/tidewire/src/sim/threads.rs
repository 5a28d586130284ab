//! A loop for each connection: the threads of a simulated process, each cut where it might wait.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::build::threads::{Carrier, Spawner};
use crate::kernel::calls::Sys;
use crate::kernel::clock::Clock;
use crate::reach::sync::{Mutex, lock};
use crate::reactor::core::Plan;
use crate::reactor::counters::Counters;
use crate::reactor::host::Hosted;
use crate::reactor::life::Registry;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{LoopSetup, Spread};
use crate::sim::kernel::Shared;
use crate::sim::kernel::sys::SimSys;
use crate::sim::node::Node;

pub(super) struct Threads {
    /// Threads that are to be started.
    starting: Arc<Mutex<Vec<Carrier>>>,
    nodes: Vec<Node>,
    registry: Arc<Mutex<Registry>>,
    /// The plan that each loop is started with. A simulation gets its services after its loops.
    plan: Arc<Plan>,
    hosts: Vec<Hosted>,
}

impl Threads {
    /// The threads of a loop with this setup; and the setup for the acceptor loop.
    pub(super) fn of(setup: LoopSetup, kernel: &Shared) -> (LoopSetup, Threads) {
        let starting = Arc::new(Mutex::new(Vec::new()));
        let start = {
            let starting = starting.clone();
            move |carrier| {
                lock(&starting).push(carrier);
                Ok(())
            }
        };
        let stop = SimSys::new(kernel).event();
        let spawner = Spawner::starting(setup.clone(), Vec::new(), stop, Box::new(start));
        let threads = Threads {
            starting,
            nodes: Vec::new(),
            registry: setup.registry.clone(),
            plan: setup.plan.clone(),
            hosts: Vec::new(),
        };
        let spread = Spread::Threads(Arc::new(spawner));
        (LoopSetup { spread, ..setup }, threads)
    }

    pub(super) fn host(&mut self, hosted: Hosted) {
        self.hosts.push(hosted);
        self.plan = Arc::new(Plan {
            hosts: self.hosts.clone(),
            chunk: self.plan.chunk,
            buffers: self.plan.buffers,
            throttles: self.plan.throttles.clone(),
            log_connections: false,
            made: MakeShares::default(),
            shares: SendShares::default(),
            received: self.plan.received,
            memory: self.plan.memory.clone(),
        });
    }

    /// Starts the threads that are to be started.
    pub(super) fn start(&mut self, kernel: &Shared, time: &Rc<Cell<u64>>, rng: &mut Rng) {
        let starting = std::mem::take(&mut *lock(&self.starting));
        for carrier in starting {
            let carrier = carrier.hosting(self.plan.clone());
            let clock = Clock::Virtual(time.clone());
            let rng = Rng::from_seed(rng.next());
            self.nodes.extend(Node::thread(kernel, carrier, clock, rng));
        }
    }

    pub(super) fn go_on(&mut self, which: usize, kernel: &Shared, rng: &mut Rng) {
        let node = &mut self.nodes[which];
        node.go_on(kernel, rng);
        if node.is_over() {
            node.end();
            self.nodes.remove(which);
        }
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter()
    }

    pub(super) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.nodes.iter_mut()
    }

    pub(super) fn counters(&self) -> Counters {
        lock(&self.registry).sum()
    }

    /// All threads end at once.
    pub(super) fn end(&mut self) {
        self.nodes.iter_mut().for_each(Node::end);
        self.nodes.clear();
        lock(&self.starting).clear();
    }
}
