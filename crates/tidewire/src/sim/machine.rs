//! A machine: production loops on a [simulated kernel](super::kernel), on one thread and on virtual
//! time. Which loop goes on is drawn from the seed, at every point where a real one might wait.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::build::threads::{Carried, Carrier, Spawner};
use crate::driver::completion::{self, Abilities};
use crate::driver::readiness::epoll::Epoll;
use crate::driver::readiness::sockets::Sockets;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::reach::stop::StopClock;
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Stop, Waker};
use crate::reactor::Reactor;
use crate::reactor::core::{Core, Plan};
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::driver::Driver;
use crate::reactor::host::MakeHost;
use crate::reactor::life::{Life, Registry};
use crate::reactor::random::Rng;
use crate::reactor::setup::{Listener, LoopSetup, Spread};
use crate::sim::conditions::Conditions;
use crate::sim::kernel::{self, Faults, Kernel, Parked, SimQueues, SimSys};
use crate::sim::net::Net;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::{Clock, Instant};

/// What the loops of a machine are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Loops that wait for readiness, as epoll has it.
    Readiness,
    /// Loops that wait for completions, as io_uring has them.
    Completion,
    /// A loop for each connection, as threads have it.
    Threads,
}

/// A loop, whatever it is made of.
trait Turns {
    fn before_wait(&mut self) -> Option<Duration>;
    fn wait(&mut self, timeout: Option<Duration>);
    fn after_wait(&mut self);
    /// Between two turns: whether it has come to its end.
    fn is_over(&mut self, acceptor: Option<&Arc<Waker>>) -> bool;
    fn finish(self: Box<Self>);
    fn core(&self) -> &Core;
}

impl<D: Driver + 'static> Turns for Reactor<D> {
    fn before_wait(&mut self) -> Option<Duration> {
        Reactor::before_wait(self)
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        if let Err(e) = self.driver.wait(timeout) {
            tracing::error!(error = %e, "cannot wait for the kernel");
        }
    }

    fn after_wait(&mut self) {
        Reactor::after_wait(self);
    }

    fn is_over(&mut self, acceptor: Option<&Arc<Waker>>) -> bool {
        match acceptor {
            Some(acceptor) => self.emptied(acceptor),
            None => self.stopped(),
        }
    }

    fn finish(self: Box<Self>) {
        let ended = self.driver.finish(self.core);
        ended.expect("the simulated kernel takes its buffers back");
    }

    fn core(&self) -> &Core {
        &self.core
    }
}

enum Where {
    /// Between two turns.
    Between,
    /// About to wait for so long.
    Waiting(Option<Duration>),
    Parked(Parked),
}

enum Held {
    Thread(Carried),
    Loop { _life: Life },
}

struct Loop {
    number: u32,
    /// Gone once it has ended.
    reactor: Option<Box<dyn Turns>>,
    at: Where,
    held: Option<Held>,
}

impl Loop {
    fn over(&mut self) -> bool {
        let acceptor = match &self.held {
            Some(Held::Thread(carried)) => Some(carried.acceptor().clone()),
            _ => None,
        };
        let reactor = self.reactor.as_mut();
        reactor.is_none_or(|reactor| reactor.is_over(acceptor.as_ref()))
    }
}

pub(crate) struct Machine {
    pub(crate) kernel: kernel::Shared,
    time: Rc<Cell<u64>>,
    rng: Rng,
    loops: Vec<Loop>,
    /// Threads that are to be started.
    starting: Arc<Mutex<Vec<Carrier>>>,
    wakers: Vec<Arc<Waker>>,
    stop_clock: Arc<StopClock>,
    registry: Arc<Mutex<Registry>>,
    turns: u64,
    /// Loops that serve; they come first.
    serving: usize,
}

/// What a machine is to run.
pub(crate) struct Program {
    pub(crate) shape: Shape,
    /// Loops that serve; more than one are handed connections by a loop that accepts, or
    /// (`shared`) accept for themselves.
    pub(crate) loops: usize,
    pub(crate) shared: bool,
    pub(crate) hosts: Vec<MakeHost>,
    /// Where the first service is reached.
    pub(crate) at: Endpoint,
    pub(crate) inbox: usize,
}

impl Machine {
    /// A machine that runs a program, on a network whose first actor it is.
    pub(crate) fn new(
        seed: u64,
        conditions: Conditions,
        faults: Faults,
        program: &Program,
    ) -> Machine {
        let time = Rc::new(Cell::new(0));
        let mut rng = Rng::from_seed(seed);
        let (chunk, buffers) = (conditions.chunk, conditions.buffers);
        let mut net = Net::new(time.clone(), Rng::from_seed(rng.next()), conditions);
        net.inboxes.push(std::collections::VecDeque::new());
        let kernel = Kernel::new(net, time.clone(), 0, Rng::from_seed(rng.next()), faults);
        let mut machine = Machine {
            kernel,
            time,
            rng,
            loops: Vec::new(),
            starting: Arc::new(Mutex::new(Vec::new())),
            wakers: Vec::new(),
            stop_clock: Arc::default(),
            registry: Arc::default(),
            turns: 0,
            serving: match program.shape {
                Shape::Threads => 1,
                _ => program.loops,
            },
        };
        let plan = Arc::new(Plan {
            hosts: program.hosts.clone(),
            chunk,
            buffers,
            refusals: Arc::default(),
            memory: Arc::default(),
        });
        machine.start(program, plan);
        machine
    }

    fn start(&mut self, program: &Program, plan: Arc<Plan>) {
        let setup = LoopSetup {
            plan,
            dial_options: Arc::default(),
            busy_poll: Duration::ZERO,
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
                spread: Spread::Threads(spawner),
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
                spread: Spread::Loops(wakers),
                ..setup
            };
            self.add(program.shape, acceptor, waker(program.loops));
        }
    }

    fn listeners(&mut self, at: &Endpoint) -> Vec<Listener> {
        let socket = self.kernel.borrow_mut().listen(at);
        vec![Listener {
            socket: Arc::new(Descriptor::Simulated(socket)),
            service: 0,
            number: 0,
        }]
    }

    fn add(&mut self, shape: Shape, setup: LoopSetup, waker: Arc<Waker>) {
        let counters = Arc::new(LoopCounters::default());
        lock(&self.registry).add(counters.clone());
        let life = Life {
            registry: self.registry.clone(),
            counters: counters.clone(),
            waker: waker.clone(),
            heir: None,
        };
        let (number, options) = (waker.number(), setup.dial_options.clone());
        self.wakers.push(waker.clone());
        let rng = Rng::from_seed(self.rng.next());
        let core = setup.core(waker.clone(), counters, self.clock(), rng);
        let reactor: io::Result<Box<dyn Turns>> = if shape == Shape::Completion {
            let queues = SimQueues::new(&self.kernel);
            let abilities = Abilities {
                share: self.rng.below(2) == 0,
            };
            let driver = completion::driver(queues, &core, options, abilities);
            driver
                .and_then(|driver| Reactor::new(driver, core, setup, waker))
                .map(|reactor| Box::new(reactor) as Box<dyn Turns>)
        } else {
            let poller = Epoll::new(SimSys::new(&self.kernel));
            let driver = poller.map(|poller| Sockets::new(poller, options));
            driver
                .and_then(|driver| Reactor::new(driver, core, setup, waker))
                .map(|reactor| Box::new(reactor) as Box<dyn Turns>)
        };
        self.loops.push(Loop {
            number,
            reactor: Some(reactor.expect("a kernel that has just started has room")),
            at: Where::Between,
            held: Some(Held::Loop { _life: life }),
        });
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(self.time.clone())
    }

    // ---- Time ----

    pub(crate) fn now(&self) -> Instant {
        Instant::from_nanos(self.time.get())
    }

    /// Turns that loops have had.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// When something happens by itself.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let arrival = self.kernel.borrow().net.next_arrival();
        let parked = self.loops.iter().filter_map(|l| match &l.at {
            Where::Parked(parked) => parked.until.map(Instant::from_nanos),
            _ => None,
        });
        parked.chain(arrival).min()
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
        let mut runnable = Vec::new();
        for (i, l) in self.loops.iter().enumerate() {
            let goes_on = match &l.at {
                _ if l.reactor.is_none() => false,
                Where::Between | Where::Waiting(_) => true,
                Where::Parked(p) => p.until.is_some_and(|t| t <= now) || kernel.is_ready(p),
            };
            if goes_on {
                runnable.push(i);
            }
        }
        runnable
    }

    fn start_thread(&mut self, carrier: Carrier) {
        let rng = Rng::from_seed(self.rng.next());
        let (reactor, carried) = carrier.begin(SimSys::new(&self.kernel), self.clock(), rng);
        if let Ok(reactor) = reactor {
            self.loops.push(Loop {
                number: self.loops.len() as u32,
                reactor: Some(Box::new(reactor)),
                at: Where::Between,
                held: Some(Held::Thread(carried)),
            });
        }
    }

    /// Has a loop go on to the next point where it may wait.
    pub(crate) fn go_on(&mut self, which: usize) {
        let this = &mut self.loops[which];
        self.kernel.borrow_mut().log.turn_of(this.number);
        match std::mem::replace(&mut this.at, Where::Between) {
            Where::Between => {
                if this.over() {
                    if let Some(reactor) = this.reactor.take() {
                        reactor.finish();
                    }
                    this.held = None;
                    return;
                }
                let Some(reactor) = &mut this.reactor else {
                    return;
                };
                let timeout = reactor.before_wait();
                this.at = Where::Waiting(timeout);
                // Others may come between here and the wait, but mostly do not.
                if self.rng.below(4) > 0 {
                    self.go_on(which);
                }
            }
            Where::Waiting(timeout) => {
                let Some(reactor) = &mut this.reactor else {
                    return;
                };
                self.kernel.borrow_mut().parking(true);
                reactor.wait(timeout);
                let mut kernel = self.kernel.borrow_mut();
                kernel.parking(false);
                let parked = kernel.parked();
                drop(kernel);
                match parked {
                    Some(parked) => this.at = Where::Parked(parked),
                    None => {
                        self.turns += 1;
                        reactor.after_wait();
                    }
                }
            }
            Where::Parked(_) => {
                let Some(reactor) = &mut this.reactor else {
                    return;
                };
                reactor.wait(Some(Duration::ZERO));
                self.turns += 1;
                reactor.after_wait();
            }
        }
    }

    // ---- Stopping ----

    /// Begins to stop, as a running server does: what is left at the deadline is cut.
    pub(crate) fn stop(&mut self, deadline: Instant) {
        self.stop_clock.set_at(deadline);
        // Who accepts is last, and stops first.
        for waker in self.wakers.iter().rev() {
            waker.stop(Stop::Graceful);
        }
    }

    pub(crate) fn ended(&self) -> bool {
        self.loops.iter().all(|l| l.reactor.is_none()) && lock(&self.starting).is_empty()
    }

    pub(crate) fn counters(&self) -> Counters {
        lock(&self.registry).sum()
    }

    /// Each loop's part that all engines share.
    pub(crate) fn cores(&self) -> impl Iterator<Item = &Core> {
        let reactors = self.loops.iter().filter_map(|l| l.reactor.as_deref());
        reactors.map(|reactor| reactor.core())
    }

    /// A loop that dials may be asked of, as a builder has it: one that serves.
    pub(crate) fn waker(&self, which: usize) -> &Arc<Waker> {
        &self.wakers[which % self.serving]
    }
}
