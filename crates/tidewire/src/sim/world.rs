//! The simulation as tests see it: loops, services, peers, and the clock that moves only when
//! nothing else can.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::Admission;
use crate::admission::door::Gate;
use crate::build::dial::{Dial, NotDialled};
use crate::build::limits::Limits;
use crate::kernel::descriptor::Descriptor;
use crate::memory::budget::Memory;
use crate::protocol::traits::{Protocol, Service};
use crate::reach::stop::StopClock;
use crate::reach::waker::{Command, INBOX, Stop, Waker};
use crate::reactor::core::Plan;
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::host::host_of;
use crate::reactor::random::Rng;
use crate::reactor::setup::{Listener, LoopSetup, Spread};
use crate::sim::conditions::Conditions;
use crate::sim::kernel::{self, Faults, Kernel};
use crate::sim::net::{Net, Owner, address, near};
use crate::sim::node::{Node, Shape};
use crate::sim::plain::{Plain, PlainState};
use crate::sim::threads::Threads;
use crate::sim::trace::{self, Event};
use crate::vocabulary::endpoint::{Endpoint, EndpointError};
use crate::vocabulary::time::{Clock, Instant};

/// Turns and arrivals in one run before it is given up. Default of [`Sim::steps_max`].
const STEPS_MAX: u64 = 20_000_000;

/// A loop of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopId(usize);

/// A plain peer of a simulation: no protocol, driven by the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainId(usize);

/// A service on a loop of a simulation.
///
/// ```
/// use tidewire::sim::Sim;
///
/// let mut sim = Sim::new(7);
/// let first = sim.add_loop();
/// let echo = tidewire::on_input(|input, link| link.forward_all(input));
/// let echo = sim.service(first, echo, Default::default());
/// let at = sim.listen(echo);
/// let peer = sim.plain(at);
/// sim.send(peer, b"hello");
/// ```
pub struct SimService<S> {
    at: LoopId,
    index: u16,
    of: PhantomData<fn() -> S>,
}

impl<S> SimService<S> {
    /// The loop that it is on.
    #[must_use]
    pub fn at(self) -> LoopId {
        self.at
    }
}

impl<S> Clone for SimService<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for SimService<S> {}
impl<S> fmt::Debug for SimService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimService({:?}, {})", self.at, self.index)
    }
}

/// How a run ended.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Outcome, Sim};
///
/// let mut sim = Sim::new(7);
/// let echo = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
/// let peer = sim.plain(echo);
/// sim.send(peer, b"hello");
/// sim.finish(peer);
/// assert_eq!(sim.run_until_idle(Duration::from_secs(60)), Outcome::Idle, "the seed was 7");
/// ```
#[must_use = "a run that did not come to rest is often a failure"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It came to rest: there is nothing more to happen.
    Idle,
    /// The virtual time allowed has passed, and there is more to come.
    TimeUp,
    /// Something goes on and on: see [`Sim::steps_max`].
    StepLimit,
}

enum Actor {
    Loop(Box<Running>),
    Plain(Plain),
}

/// A loop, and how it is reached.
pub(super) struct Running {
    pub(super) node: Node,
    /// Those of its connections, if it is one of [`Shape::Threads`].
    pub(super) threads: Option<Threads>,
    waker: Arc<Waker>,
    counters: Arc<LoopCounters>,
    stop_clock: Arc<StopClock>,
}

impl Running {
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.node).chain(self.threads.iter().flat_map(Threads::nodes))
    }
}

/// Whose inbox on the network is the kernel's. That of actor `i` is the one after number `i`.
const KERNEL: usize = 0;

/// A simulated network with loops on it. Single-threaded, on virtual time, everything drawn from
/// one seed: the same seed and the same calls give the same run, to the nanosecond.
///
/// Virtual time moves only when no loop has anything to do; a turn of a loop takes none. Messages
/// and signals posted by other threads arrive, but a run that depends on them does not repeat.
///
/// ```
/// use std::time::Duration;
/// use tidewire::Limits;
/// use tidewire::sim::{Outcome, Sim};
/// # use tidewire::*;
/// # struct Echo;
/// # impl Service for Echo { type Conn = Conn; fn on_loop(&self, _: LoopHandle<()>) {}
/// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) } }
/// # struct Conn;
/// # impl Protocol for Conn { type Local = (); type Message = ();
/// #   fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
/// #     let n = input.len(); cx.link.forward(input, n); Next::More } }
///
/// let mut sim = Sim::new(42);
/// let addr = sim.serve(Echo, Limits::default());
/// let peer = sim.plain(addr);
/// sim.send(peer, b"hello");
/// sim.finish(peer);
/// assert_eq!(sim.run_until_idle(Duration::from_secs(10)), Outcome::Idle);
/// assert_eq!(sim.received(peer), b"hello");
/// ```
pub struct Sim {
    pub(super) seed: u64,
    time: Rc<Cell<u64>>,
    rng: Rng,
    actors: Vec<Actor>,
    pub(super) kernel: kernel::Shared,
    shape: Shape,
    conditions: Conditions,
    listeners: u32,
    steps_max: u64,
    memory: Arc<Memory>,
    gates: Vec<Gate>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim({:?}, {} actors)", self.now(), self.actors.len())
    }
}

impl Sim {
    /// A network under conditions that are drawn from the seed too.
    #[must_use]
    pub fn new(seed: u64) -> Sim {
        Sim::under(seed, Conditions::from_seed(seed))
    }

    /// A network under these conditions.
    ///
    /// # Panics
    /// If the conditions are impossible: a size of zero, an empty range.
    #[must_use]
    pub fn under(seed: u64, conditions: Conditions) -> Sim {
        let time = Rc::new(Cell::new(0));
        let mut rng = Rng::from_seed(seed);
        let net_rng = Rng::from_seed(rng.next());
        let mut net = Net::new(time.clone(), net_rng, conditions.clone());
        net.inboxes.push(VecDeque::new());
        if trace::is_wanted() {
            net.trace.record();
        }
        let kernel_rng = Rng::from_seed(rng.next());
        let shape = match rng.below(2) {
            0 => Shape::Readiness,
            _ => Shape::Completion,
        };
        Sim {
            kernel: Kernel::new(net, time.clone(), KERNEL, kernel_rng, Faults::none()),
            seed,
            shape,
            conditions,
            time,
            rng,
            actors: Vec::new(),
            listeners: 0,
            steps_max: STEPS_MAX,
            memory: Arc::new(Memory::new(usize::MAX)),
            gates: Vec::new(),
        }
    }

    /// Turns and arrivals after which a run is given up with [`Outcome::StepLimit`]. Default 20
    /// million.
    pub fn steps_max(&mut self, steps: u64) -> &mut Sim {
        self.steps_max = steps;
        self
    }

    /// Memory that all connections of the loops that are added from now on may hold together, as
    /// [`Builder::memory`](crate::Builder::memory) says. Without it there is no limit.
    pub fn memory(&mut self, bytes: usize) -> &mut Sim {
        self.memory = Arc::new(Memory::new(bytes));
        self
    }

    /// Has services that are added from now on let in only whom these rules let in, as
    /// [`Builder::admission`](crate::Builder::admission) does.
    pub fn admission(&mut self, admission: Admission) -> &mut Sim {
        self.gates.push((None, admission));
        self
    }

    // ---- Loops and services ----

    /// What the loops added from now on are made of. Unless it is said, the seed decides.
    pub fn shape(&mut self, shape: Shape) -> &mut Sim {
        self.shape = shape;
        self
    }

    /// What the next loop is made of.
    ///
    /// ```
    /// use tidewire::sim::{Shape, Sim};
    ///
    /// let drawn: Vec<Shape> = (0..20).map(|seed| Sim::new(seed).next_shape()).collect();
    /// assert!(drawn.contains(&Shape::Readiness) && drawn.contains(&Shape::Completion));
    /// ```
    #[must_use]
    pub fn next_shape(&self) -> Shape {
        self.shape
    }

    /// Adds a loop.
    pub fn add_loop(&mut self) -> LoopId {
        let loops = self.actors.iter().filter(|a| matches!(a, Actor::Loop(_)));
        let waker = Arc::new(Waker::of_loop(loops.count() as u32));
        let counters = Arc::new(LoopCounters::default());
        let plan = Plan {
            refusals: Arc::default(),
            memory: self.memory.clone(),
            hosts: Vec::new(),
            chunk: self.conditions.chunk,
            buffers: self.conditions.buffers,
        };
        let stop_clock = Arc::<StopClock>::default();
        let setup = LoopSetup {
            plan: Arc::new(plan),
            dial_options: Arc::default(),
            busy_poll: Duration::ZERO,
            direct: false,
            clock: stop_clock.clone(),
            registry: Arc::default(),
            inbox: INBOX,
            listeners: Vec::new(),
            spread: Spread::Here,
            cpu: None,
        };
        let (setup, threads) = match self.shape {
            Shape::Threads => {
                let (setup, threads) = Threads::of(setup, &self.kernel);
                (setup, Some(threads))
            }
            _ => (setup, None),
        };
        let core = setup.core(
            waker.clone(),
            counters.clone(),
            Clock::Virtual(self.time.clone()),
            Rng::from_seed(self.rng.next()),
        );
        let (kernel, rng) = (&self.kernel, &mut self.rng);
        let node = Node::new(kernel, self.shape, setup, waker.clone(), core, rng);
        let actor = self.actors.len();
        self.add(Actor::Loop(Box::new(Running {
            node,
            threads,
            waker,
            counters,
            stop_clock,
        })));
        LoopId(actor)
    }

    /// Puts a service on a loop. To have the same service on several, or to keep a hold of it, put
    /// an `Arc` of it there.
    ///
    /// # Panics
    /// If the limits cannot be meant: where a [`Builder`](crate::Builder) would not start.
    pub fn service<S: Service>(&mut self, at: LoopId, service: S, limits: Limits) -> SimService<S> {
        if let Err(why) = limits.check() {
            panic!("limits that cannot be meant: {why}");
        }
        let hosted = host_of(service, limits);
        let hosted = hosted.behind(hosted.door.service().into(), self.gates.clone());
        let running = self.running(at);
        if let Some(threads) = &mut running.threads {
            threads.host(hosted.clone());
        }
        SimService {
            at,
            index: running.node.host(&hosted),
            of: PhantomData,
        }
    }

    /// Has a service accept connections; where, is the result.
    pub fn listen<S: Service>(&mut self, service: SimService<S>) -> Endpoint {
        let at = address(service.at.0, 1 + (self.listeners % 1000) as u16);
        self.listen_at(service, at.clone());
        at
    }

    /// Has a service accept connections at this endpoint, TCP or Unix. Whoever listened there
    /// before no longer does.
    ///
    /// # Panics
    /// If text was given that is no endpoint.
    pub fn listen_at<S: Service, E>(&mut self, service: SimService<S>, at: E)
    where
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        let at = at.try_into().map_err(Into::into);
        let number = self.listeners;
        self.listeners += 1;
        let at = at.unwrap_or_else(|e: EndpointError| panic!("{e}"));
        let socket = {
            let mut kernel = self.kernel.borrow_mut();
            kernel.nobody_listens(&at);
            Arc::new(Descriptor::Simulated(kernel.listen(&at)))
        };
        self.running(service.at).node.listen(Listener {
            socket,
            service: service.index,
            number,
            is_private: at.is_tcp(),
        });
    }

    /// Adds a loop with a service that accepts connections at the returned address.
    pub fn serve<S: Service>(&mut self, service: S, limits: Limits) -> Endpoint {
        let at = self.add_loop();
        let service = self.service(at, service, limits);
        self.listen(service)
    }

    /// Makes an outgoing connection of `service`.
    ///
    /// # Panics
    /// If more dials wait for a loop than a [`Builder`](crate::Builder) lets them by default.
    pub fn dial<S: Service>(&mut self, service: SimService<S>, dial: Dial) {
        let command = Command::Dial {
            service: service.index,
            dial,
        };
        let sent = self.running(service.at).waker.send(command);
        sent.map_err(NotDialled::from_unsent)
            .expect("room for a dial");
    }

    /// The service's state on its loop; of [`Shape::Threads`], on the loop that accepts.
    pub fn local<S: Service>(
        &mut self,
        service: SimService<S>,
    ) -> &mut <S::Conn as Protocol>::Local {
        let local = self
            .running(service.at)
            .node
            .core_mut()
            .local(service.index);
        local.downcast_mut().expect("the id says what type it is")
    }

    /// What one loop counted.
    #[must_use]
    pub fn counters(&self, at: LoopId) -> Counters {
        match &self.actors[at.0] {
            Actor::Loop(running) => {
                let mut sum = Counters::default();
                sum.merge(&running.counters.sum());
                if let Some(threads) = &running.threads {
                    sum.merge(&threads.counters());
                }
                sum
            }
            Actor::Plain(_) => unreachable!("a loop's id names a loop"),
        }
    }

    /// Begins a graceful stop of a loop, as [`Running::stop`](crate::Running::stop) does: no
    /// listening, every connection told; what is left after `deadline` is cut.
    pub fn stop(&mut self, at: LoopId, deadline: Duration) {
        let deadline = self.now() + deadline;
        let running = self.running(at);
        running.stop_clock.set_at(deadline);
        running.waker.stop(Stop::Graceful);
    }

    /// Whether a stop of this loop is over.
    pub fn stopped(&mut self, at: LoopId) -> bool {
        self.running(at).nodes().all(Node::is_over)
    }

    // ---- Plain peers ----

    /// Connects a plain peer to an endpoint. It reads all that comes.
    ///
    /// # Panics
    /// If text was given that is no endpoint.
    pub fn plain<E>(&mut self, to: E) -> PlainId
    where
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        let to = to.try_into().map_err(Into::into);
        let to = to.unwrap_or_else(|e: EndpointError| panic!("{e}"));
        let actor = self.actors.len();
        let owner = Owner {
            actor: actor + 1,
            conn: 0,
            generation: 0,
        };
        let from = near(&to, actor, 1024);
        let end = self.kernel.borrow_mut().net.connect(owner, from, to);
        self.add(Actor::Plain(Plain::new(end)));
        PlainId(actor)
    }

    /// Has the peer send `bytes`, as soon as the network takes them. Nothing bounds what waits.
    pub fn send(&mut self, peer: PlainId, bytes: &[u8]) {
        self.on_plain(peer, |plain, net| plain.send(net, bytes));
    }

    /// Bytes that the peer was told to send and the network has not taken yet.
    pub fn unsent(&mut self, peer: PlainId) -> usize {
        self.on_plain(peer, |plain, _| plain.unsent())
    }

    /// Has the peer half-close once all is sent. It goes on reading.
    pub fn finish(&mut self, peer: PlainId) {
        self.on_plain(peer, Plain::finish);
    }

    /// Has the peer close, in order or with a reset. As in TCP, closing with unread input resets.
    pub fn close(&mut self, peer: PlainId, reset: bool) {
        self.on_plain(peer, |plain, net| plain.close(net, reset));
    }

    /// Whether the peer reads. If not, the network fills up behind it.
    pub fn reading(&mut self, peer: PlainId, on: bool) {
        self.on_plain(peer, |plain, net| {
            plain.reading = on;
            plain.go_on(net);
        });
    }

    /// All that the peer has read so far.
    #[must_use]
    pub fn received(&self, peer: PlainId) -> &[u8] {
        &self.plain_peer(peer).received
    }

    /// How the peer's connection stands.
    #[must_use]
    pub fn state(&self, peer: PlainId) -> PlainState {
        self.plain_peer(peer).state
    }

    // ---- Faults ----

    /// Has the network lose a stream: both ends see a reset. Streams are counted from 0 in the
    /// order of the attempts to connect.
    ///
    /// # Panics
    /// If there is no such stream yet.
    pub fn lose(&mut self, stream: u32) {
        self.kernel.borrow_mut().net.lose(stream);
    }

    /// How many attempts to connect there have been.
    #[must_use]
    pub fn streams(&self) -> u32 {
        self.kernel.borrow().net.streams()
    }

    /// Changes the conditions from now on. Buffers of streams, and of loops, stay as they are.
    ///
    /// # Panics
    /// As [`Sim::under`].
    pub fn set_conditions(&mut self, conditions: Conditions) {
        conditions.check();
        self.kernel.borrow_mut().net.conditions = conditions.clone();
        self.conditions = conditions;
    }

    /// The present conditions.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    // ---- Time ----

    /// The virtual time. Begins at 0.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.time.get())
    }

    /// One turn of a loop or a peer that has something to do (which one, is drawn), or else one
    /// step of time to the next arrival or deadline. False if nothing is left to happen.
    ///
    /// # Panics
    /// If a driver asks of the kernel what no kernel lets pass, such as two sends of one connection
    /// at once. So does everything that runs a simulation.
    pub fn step(&mut self) -> bool {
        self.run_one() || self.next_time_or_timer().is_some_and(|at| self.go_to(at))
    }

    /// Runs until nothing is left to happen, or `most` has passed. Deadlines count: an open
    /// connection has an idle limit, and is closed by it. Timers of services alone do not keep a run
    /// going, for many never end: see [`run_for`](Sim::run_for).
    pub fn run_until_idle(&mut self, most: Duration) -> Outcome {
        self.run(most, |sim| sim.next_time())
    }

    /// Runs until nothing is under way on the network and no loop has anything to do but wait for
    /// its deadlines, or `most` has passed.
    pub fn run_until_quiet(&mut self, most: Duration) -> Outcome {
        self.run(most, |sim| {
            let arrival = sim.next_arrival()?;
            sim.next_time().map(|at| at.min(arrival))
        })
    }

    /// Runs for a time, and lets all of it pass even if nothing happens.
    ///
    /// # Panics
    /// At the limit of steps.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now() + time;
        let outcome = self.run(time, Sim::next_time_or_timer);
        assert_ne!(outcome, Outcome::StepLimit, "the simulation spins");
        self.time.set(self.time.get().max(until.as_nanos()));
    }

    /// Runs until `done` says so; false if nothing is left to happen or `most` has passed first.
    pub fn run_until(&mut self, most: Duration, mut done: impl FnMut(&mut Sim) -> bool) -> bool {
        let until = self.now() + most;
        for _ in 0..self.steps_max {
            if done(self) {
                return true;
            }
            if self.run_one() {
                continue;
            }
            match self.next_time_or_timer() {
                Some(at) if at <= until => self.go_to(at),
                _ => return false,
            };
        }
        false
    }

    // ---- What happened ----

    /// A hash of everything that happened on the network so far, bytes and times included. The
    /// same seed and the same calls give the same hash.
    #[must_use]
    pub fn trace_hash(&self) -> u64 {
        self.kernel.borrow().net.trace.hash()
    }

    /// Keeps the events from now on, the last 65,536 of them, for [`Sim::trace`], and what was said, up to
    /// 16 MiB, for [`Sim::words`] and [`Sim::pcap`]. Wherever the environment has `TIDEWIRE_TRACE`, from the start.
    pub fn record(&mut self) -> &mut Sim {
        self.kernel.borrow_mut().net.trace.record();
        self
    }

    /// The events kept, oldest first.
    pub fn trace(&self) -> impl Iterator<Item = Event> {
        let events: Vec<Event> = self.kernel.borrow().net.trace.events().copied().collect();
        events.into_iter()
    }

    // ---- Inside ----

    fn run(&mut self, most: Duration, next: impl Fn(&Sim) -> Option<Instant>) -> Outcome {
        let until = self.now() + most;
        for _ in 0..self.steps_max {
            if self.run_one() {
                continue;
            }
            match next(self) {
                None => return Outcome::Idle,
                Some(at) if at > until => {
                    self.time.set(until.as_nanos());
                    return Outcome::TimeUp;
                }
                Some(at) => self.go_to(at),
            };
        }
        Outcome::StepLimit
    }

    /// Gives one actor that has something to do its turn.
    fn run_one(&mut self) -> bool {
        let runnable = self.runnable();
        if runnable.is_empty() {
            return false;
        }
        let (chosen, which) = runnable[self.rng.below(runnable.len() as u64) as usize];
        match &mut self.actors[chosen] {
            Actor::Loop(running) => {
                match &mut running.threads {
                    Some(threads) if which > 0 => {
                        threads.go_on(which - 1, &self.kernel, &mut self.rng);
                    }
                    _ => running.node.go_on(&self.kernel, &mut self.rng),
                }
                let kernel = self.kernel.borrow();
                let wrongs = kernel.wrongs();
                assert!(wrongs.is_empty(), "what no kernel lets pass: {wrongs:?}");
            }
            Actor::Plain(plain) => {
                let net = &mut self.kernel.borrow_mut().net;
                let notices = std::mem::take(&mut net.inboxes[chosen + 1]);
                plain.turn(net, notices);
            }
        }
        true
    }

    /// Actors that have something to do; of a loop, it (0) or one of its connections'.
    fn runnable(&mut self) -> Vec<(usize, usize)> {
        let time = &self.time;
        for actor in &mut self.actors {
            if let Actor::Loop(running) = actor
                && let Some(threads) = &mut running.threads
            {
                threads.start(&self.kernel, time, &mut self.rng);
            }
        }
        let kernel = &mut *self.kernel.borrow_mut();
        kernel.catch_up();
        let now = self.time.get();
        let mut runnable = Vec::new();
        for (i, actor) in self.actors.iter().enumerate() {
            match actor {
                Actor::Loop(running) => {
                    let nodes = running.nodes().enumerate();
                    let on = nodes.filter(|(_, node)| node.goes_on(kernel, now));
                    runnable.extend(on.map(|(which, _)| (i, which)));
                }
                Actor::Plain(_) if !kernel.net.inboxes[i + 1].is_empty() => runnable.push((i, 0)),
                Actor::Plain(_) => {}
            }
        }
        runnable
    }

    fn next_time(&self) -> Option<Instant> {
        let deadlines = self.nodes().filter_map(Node::deadline);
        deadlines.chain(self.next_arrival()).min()
    }

    fn next_time_or_timer(&self) -> Option<Instant> {
        let times = self.nodes().filter_map(Node::until);
        times.chain(self.next_arrival()).min()
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.kernel.borrow().net.next_arrival()
    }

    /// Time passes, and what arrives at that time does.
    fn go_to(&mut self, at: Instant) -> bool {
        self.time.set(self.time.get().max(at.as_nanos()));
        let net = &mut self.kernel.borrow_mut().net;
        if net.next_arrival().is_some_and(|next| next <= at) {
            net.arrive();
        }
        true
    }

    fn add(&mut self, actor: Actor) {
        self.actors.push(actor);
        self.kernel.borrow_mut().net.inboxes.push(VecDeque::new());
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let running = self.actors.iter().filter_map(|actor| match actor {
            Actor::Loop(running) => Some(running),
            Actor::Plain(_) => None,
        });
        running.flat_map(|running| running.nodes())
    }

    pub(super) fn running(&mut self, at: LoopId) -> &mut Running {
        match &mut self.actors[at.0] {
            Actor::Loop(running) => running,
            Actor::Plain(_) => unreachable!("a loop's id names a loop"),
        }
    }

    fn plain_peer(&self, peer: PlainId) -> &Plain {
        match &self.actors[peer.0] {
            Actor::Plain(plain) => plain,
            Actor::Loop(_) => unreachable!("a plain peer's id names a plain peer"),
        }
    }

    fn on_plain<R>(&mut self, peer: PlainId, f: impl FnOnce(&mut Plain, &mut Net) -> R) -> R {
        match &mut self.actors[peer.0] {
            Actor::Plain(plain) => f(plain, &mut self.kernel.borrow_mut().net),
            Actor::Loop(_) => unreachable!("a plain peer's id names a plain peer"),
        }
    }
}
