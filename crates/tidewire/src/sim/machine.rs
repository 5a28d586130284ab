//! A machine: production loops on a [simulated kernel](super::kernel), on one thread and on virtual
//! time. The seed decides which loop goes on, at every point where a real one might wait.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::build::relay::Acceptors;
use crate::build::threads::{Carrier, Spawner};
use crate::kernel::calls::Sys;
use crate::kernel::clock::Clock;
use crate::kernel::descriptor::Descriptor;
use crate::reach::stop::StopClock;
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::Waker;
use crate::reactor::core::Plan;
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::host::Hosted;
use crate::reactor::life::{Life, Registered, Registry};
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{Fleet, Listener, LoopSetup, Spread, Turn};
use crate::sim::conditions::Conditions;
use crate::sim::kernel::sys::SimSys;
use crate::sim::kernel::{self, Kernel, KernelFaults};
use crate::sim::net::{self, Net, address};
use crate::sim::node::{Held, Node, Shape};
use crate::sim::trace::files;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;

/// Time that one look for events costs a loop that polls busily; nanoseconds.
const LOOK_NS: u64 = 1000;

/// A loop, and its thread as the machine schedules it.
struct Loop {
    number: u32,
    node: Node,
}

pub(crate) struct Machine {
    seed: u64,
    pub(crate) kernel: kernel::Shared,
    time: Rc<Cell<u64>>,
    rng: Rng,
    loops: Vec<Loop>,
    /// Threads that are to be started.
    starting: Arc<Mutex<Vec<Carrier>>>,
    wakers: Vec<Arc<Waker>>,
    stop_clock: Arc<StopClock>,
    registry: Arc<Mutex<Registry>>,
    /// Loops that serve; they come first.
    serving: usize,
    acceptors: Acceptors,
}

/// The program that a machine runs.
pub(crate) struct Program {
    pub(crate) shape: Shape,
    /// Loops that serve; more than one are handed connections by a loop that accepts, or
    /// (`shared`) accept for themselves.
    pub(crate) loops: usize,
    pub(crate) shared: bool,
    pub(crate) turn: Turn,
    pub(crate) hosts: Vec<Hosted>,
    /// The address of the first service.
    pub(crate) at: Endpoint,
    pub(crate) inbox: usize,
    pub(crate) made: MakeShares,
    pub(crate) shares: SendShares,
    pub(crate) received: ReceiveShares,
    pub(crate) busy_poll: Duration,
}

impl Machine {
    /// A machine that runs a program, on a network whose first actor it is.
    pub(crate) fn new(
        seed: u64,
        conditions: Conditions,
        faults: KernelFaults,
        program: &Program,
    ) -> Machine {
        let time = Rc::new(Cell::new(0));
        let mut rng = Rng::from_seed(seed);
        let (chunk, buffers) = (conditions.chunk, conditions.buffers);
        let mut net = Net::new(time.clone(), Rng::from_seed(rng.next()), conditions);
        net.inboxes.push(std::collections::VecDeque::new());
        if files::is_wanted() {
            net.trace.record();
        }
        let kernel = Kernel::new(net, time.clone(), 0, Rng::from_seed(rng.next()), faults);
        let mut machine = Machine {
            seed,
            kernel,
            time,
            rng,
            loops: Vec::new(),
            starting: Arc::new(Mutex::new(Vec::new())),
            wakers: Vec::new(),
            stop_clock: Arc::default(),
            registry: Arc::default(),
            serving: match program.shape {
                Shape::Threads => 1,
                _ => program.loops,
            },
            acceptors: Acceptors::default(),
        };
        let plan = Arc::new(Plan {
            hosts: program.hosts.clone(),
            chunk,
            buffers,
            throttles: Arc::default(),
            log_connections: false,
            made: program.made,
            shares: program.shares,
            received: program.received,
            memory: Arc::default(),
        });
        if !program.busy_poll.is_zero() {
            machine.kernel.borrow_mut().looks_take(LOOK_NS);
        }
        machine.start(program, plan);
        machine
    }

    fn start(&mut self, program: &Program, plan: Arc<Plan>) {
        let setup = LoopSetup {
            plan,
            dial_options: Arc::default(),
            names: Arc::default(),
            busy_poll: program.busy_poll,
            direct: false,
            clock: self.stop_clock.clone(),
            registry: self.registry.clone(),
            inbox: program.inbox,
            listeners: Vec::new(),
            spread: Spread::Here,
            cpu: None,
        };
        let waker = |number: usize| Arc::new(Waker::of_loop(number as u32).bounded(program.inbox));
        if program.shape == Shape::Threads {
            let stop = SimSys::new(&self.kernel).event();
            let starting = self.starting.clone();
            let start = move |carrier| {
                lock(&starting).push(carrier);
                Ok(())
            };
            let spawner = Spawner::starting(setup.clone(), Vec::new(), stop, Box::new(start));
            let acceptor = LoopSetup {
                listeners: self.listeners(&program.at),
                spread: Spread::Threads(Arc::new(spawner)),
                ..setup
            };
            return self.add(Shape::Readiness, acceptor, waker(0));
        }
        let wakers: Vec<Arc<Waker>> = (0..program.loops).map(waker).collect();
        let one = program.loops == 1 || program.shared;
        for waker in &wakers {
            let listeners = match one {
                true => self.listeners(&program.at),
                false => Vec::new(),
            };
            let setup = LoopSetup {
                listeners,
                ..setup.clone()
            };
            self.add(program.shape, setup, waker.clone());
        }
        if !one {
            let acceptor = LoopSetup {
                listeners: self.listeners(&program.at),
                spread: Spread::Loops(Fleet {
                    loops: wakers,
                    turn: program.turn,
                }),
                ..setup
            };
            self.add(program.shape, acceptor, waker(program.loops));
        }
    }

    /// Descriptors may be few, but not so few that the loops have all of them: no client would ever
    /// be served.
    pub(crate) fn leave_room_for_one(&self) {
        let mut kernel = self.kernel.borrow_mut();
        let least = kernel.open().len() + 1;
        let most = &mut kernel.faults.descriptors_max;
        *most = least.max(*most);
    }

    /// A place that is reached and does not answer.
    pub(crate) fn nobody_answers(&self) -> Endpoint {
        let at = address(0, 2);
        let listener = net::Listener {
            actor: 0,
            number: 0,
            backlog: 0,
        };
        self.kernel.borrow_mut().net.listen(at.clone(), listener);
        at
    }

    fn listeners(&mut self, at: &Endpoint) -> Vec<Listener> {
        let socket = self.kernel.borrow_mut().listen(at);
        vec![Listener {
            socket: Arc::new(Descriptor::Simulated(socket)),
            service: 0,
            number: 0,
            is_private: at.is_tcp(),
        }]
    }

    fn add(&mut self, shape: Shape, setup: LoopSetup, waker: Arc<Waker>) {
        let counters = Arc::new(LoopCounters::default());
        lock(&self.registry).add(Registered {
            name: "loop".into(),
            counters: counters.clone(),
            waker: waker.clone(),
            is_passing: false,
        });
        let life = Life {
            registry: self.registry.clone(),
            counters: counters.clone(),
            waker: waker.clone(),
            heir: None,
        };
        let relay = self.acceptors.relay(&waker, &setup.spread);
        let number = waker.number();
        self.wakers.push(waker.clone());
        let rng = Rng::from_seed(self.rng.next());
        let core = setup.core(waker.clone(), counters, self.clock(), rng);
        let node = Node::new(&self.kernel, shape, setup, waker, core, &mut self.rng);
        let node = node.holding(Held::Loop { _life: life }).relaying(relay);
        self.loops.push(Loop { number, node });
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(self.time.clone())
    }

    // ---- Time ----

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.time.get())
    }

    /// The time of the next event that comes by itself.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let arrival = self.kernel.borrow().net.next_arrival();
        let loops = self.loops.iter().filter(|l| !l.node.is_over());
        let own = loops.filter_map(|l| l.node.until(self.time.get()));
        own.chain(arrival).min()
    }

    /// Time passes, and what arrives at that time does.
    pub(crate) fn go_to(&mut self, at: Instant) {
        self.time.set(self.time.get().max(at.as_nanos()));
        let mut kernel = self.kernel.borrow_mut();
        if kernel.net.next_arrival().is_some_and(|next| next <= at) {
            kernel.net.arrive();
        }
        kernel.catch_up();
    }

    // ---- Turns ----

    /// Loops that would go on now.
    pub(crate) fn runnable(&mut self) -> Vec<usize> {
        let starting = std::mem::take(&mut *lock(&self.starting));
        for carrier in starting {
            self.start_thread(carrier);
        }
        let mut kernel = self.kernel.borrow_mut();
        let now = self.time.get();
        let loops = self.loops.iter().enumerate();
        let runnable = loops.filter(|(_, l)| l.node.goes_on(&mut kernel, now));
        runnable.map(|(i, _)| i).collect()
    }

    fn start_thread(&mut self, carrier: Carrier) {
        let rng = Rng::from_seed(self.rng.next());
        if let Some(node) = Node::thread(&self.kernel, carrier, self.clock(), rng) {
            let number = self.loops.len() as u32;
            self.loops.push(Loop { number, node });
        }
    }

    /// Has a loop go on to the next point where it may wait.
    pub(crate) fn go_on(&mut self, which: usize) {
        let Loop { number, node, .. } = &mut self.loops[which];
        self.kernel.borrow_mut().log.turn_of(*number);
        node.go_on(&self.kernel, &mut self.rng);
        if node.is_over() {
            node.end();
        }
    }

    /// Has a loop that would go on wait for its processor.
    pub(crate) fn stall(&mut self, which: usize, time: Duration) {
        let until = self.time.get() + time.as_nanos() as u64;
        self.loops[which].node.stall(until);
    }

    /// Makes all loops wait.
    pub(crate) fn stall_all(&mut self, time: Duration) {
        (0..self.loops.len()).for_each(|which| self.stall(which, time));
    }

    // ---- Stopping ----

    /// Begins to stop, as a running server does: what is left at the deadline is cut.
    pub(crate) fn stop(&mut self, deadline: Instant) {
        self.stop_clock.set_at(deadline);
        let (loops, acceptors) = self.wakers.split_at(self.serving);
        self.acceptors.stop(acceptors.iter(), loops.iter());
    }

    pub(crate) fn ended(&self) -> bool {
        self.loops.iter().all(|l| l.node.is_over()) && lock(&self.starting).is_empty()
    }

    pub(crate) fn counters(&self) -> Counters {
        lock(&self.registry).sum()
    }

    /// A loop that dials may be asked of, as a builder has it: one that serves.
    pub(crate) fn waker(&self, which: usize) -> &Arc<Waker> {
        &self.wakers[which % self.serving]
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The code that panicked may have held it.
        if let Ok(kernel) = self.kernel.try_borrow() {
            files::dropped(self.seed, &kernel.net.trace);
        }
    }
}
