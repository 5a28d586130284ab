//! Loops of a simulation, and services on them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::build::builder::Placement;
use crate::build::limits::Limits;
use crate::build::relay::Acceptors;
use crate::kernel::clock::Clock;
use crate::kernel::descriptor::Descriptor;
use crate::protocol::connection::Protocol;
use crate::protocol::service::Service;
use crate::reach::stop::StopClock;
use crate::reach::waker::{Command, INBOX, Stop, Unsent, Waker};
use crate::reactor::core::Plan;
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::host::{Hosted, host_of};
use crate::reactor::life::Life;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{Fleet, Listener, LoopSetup, Spread, Turn};
use crate::sim::net::address;
use crate::sim::node::{Held, Node, Shape};
use crate::sim::threads::Threads;
use crate::sim::world::{Actor, LoopId, Running, Sim, Team};
use crate::vocabulary::dial::Dial;
use crate::vocabulary::endpoint::{Endpoint, EndpointError};

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
    /// The loop of the service.
    ///
    /// ```
    /// use tidewire::sim::Sim;
    ///
    /// let mut sim = Sim::new(7);
    /// let first = sim.add_loop();
    /// let echo = sim.service(first, tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// assert_eq!(echo.at(), first);
    /// ```
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

impl Sim {
    /// Sets the shape of the loops added from now on. Unless it is said, the seed decides.
    pub fn shape(&mut self, shape: Shape) -> &mut Sim {
        self.shape = shape;
        self
    }

    /// The shape of the next loop.
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
        self.add_spreading(Spread::Here, Arc::default())
    }

    /// Adds `n` loops that carry connections together, placed as a [`Builder`](crate::Builder) places them, with a
    /// loop that accepts for them where it has one. The id stands for all of them, also in calls that stop or kill
    /// them. Threads are not placed: with [`Shape::Threads`] this is one acceptor loop, and one loop for each
    /// connection.
    ///
    /// # Panics
    /// Panics if `n` is 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::Placement;
    /// use tidewire::sim::{PlainState, Sim};
    ///
    /// let mut sim = Sim::new(7);
    /// let at = sim.add_loops(3, Placement::LeastConnections);
    /// let echo = tidewire::on_input(|input, link| link.forward_all(input));
    /// let echo = sim.service(at, echo, Default::default());
    /// let addr = sim.listen(echo);
    /// let peers: Vec<_> = (0..9).map(|_| sim.plain(&addr)).collect();
    /// sim.run_for(Duration::from_secs(1));
    /// assert!(peers.iter().all(|peer| sim.state(*peer) == PlainState::Open));
    /// assert_eq!(sim.counters(at).open, 9);
    /// ```
    pub fn add_loops(&mut self, n: usize, placement: Placement) -> LoopId {
        assert!(n > 0, "no loop carries connections");
        if n == 1 || self.shape == Shape::Threads {
            return self.add_loop();
        }
        let stop_clock = Arc::<StopClock>::default();
        let mut others: Vec<LoopId> = (0..n)
            .map(|_| self.add_spreading(Spread::Here, stop_clock.clone()))
            .collect();
        let turn = match placement {
            Placement::Acceptor => Some(Turn::Next),
            Placement::LeastConnections => Some(Turn::LeastConnections),
            Placement::Shared => None,
        };
        let named = match turn {
            None => others.remove(0),
            Some(turn) => {
                let wakers = others.iter().map(|at| self.running(*at).waker.clone());
                let loops = wakers.collect();
                self.add_spreading(Spread::Loops(Fleet { loops, turn }), stop_clock)
            }
        };
        let has_acceptor = turn.is_some();
        self.running(named).team = Team {
            others,
            has_acceptor,
            dials: 0,
        };
        named
    }

    fn add_spreading(&mut self, spread: Spread, stop_clock: Arc<StopClock>) -> LoopId {
        let loops = self.actors.iter().filter(|a| matches!(a, Actor::Loop(_)));
        let waker = Arc::new(Waker::of_loop(loops.count() as u32));
        let counters = Arc::new(LoopCounters::default());
        let plan = Plan {
            throttles: Arc::default(),
            log_connections: false,
            made: self.made,
            shares: SendShares::default(),
            received: ReceiveShares::default(),
            memory: self.memory.clone(),
            hosts: Vec::new(),
            chunk: self.conditions.chunk,
            buffers: self.conditions.buffers,
        };
        let setup = LoopSetup {
            plan: Arc::new(plan),
            dial_options: Arc::default(),
            names: self.names.clone(),
            busy_poll: Duration::ZERO,
            direct: false,
            clock: stop_clock.clone(),
            registry: Arc::default(),
            inbox: INBOX,
            listeners: Vec::new(),
            spread,
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
        let life = Life {
            registry: setup.registry.clone(),
            counters: counters.clone(),
            waker: waker.clone(),
            heir: None,
        };
        let acceptors = Acceptors::default();
        let relay = acceptors.relay(&waker, &setup.spread);
        let (kernel, rng) = (&self.kernel, &mut self.rng);
        let node = Node::new(kernel, self.shape, setup, waker.clone(), core, rng);
        let node = node.holding(Held::Loop { _life: life }).relaying(relay);
        let actor = self.actors.len();
        self.add(Actor::Loop(Box::new(Running {
            node,
            threads,
            waker,
            counters,
            stop_clock,
            acceptors,
            team: Team::default(),
        })));
        LoopId(actor)
    }

    /// Puts a service on a loop. To have one service on several loops, or to keep a reference to
    /// it, put an `Arc` of it there.
    ///
    /// # Panics
    /// If the limits cannot be meant: where a [`Builder`](crate::Builder) would not start.
    pub fn service<S: Service>(&mut self, at: LoopId, service: S, limits: Limits) -> SimService<S> {
        if let Err(why) = limits.check() {
            panic!("limits that cannot be meant: {why}");
        }
        let hosted = host_of(service, limits);
        let hosted = hosted.behind(hosted.door.service().into(), self.gates.clone());
        let team = &self.running(at).team;
        let (others, has_acceptor) = (team.others.clone(), team.has_acceptor);
        if has_acceptor {
            self.running(at).node.know(&hosted);
        }
        let carrying = others.into_iter().chain((!has_acceptor).then_some(at));
        let indices: Vec<u16> = carrying.map(|at| self.host(at, &hosted)).collect();
        let index = indices[0];
        let same = indices.into_iter().all(|other| other == index);
        assert!(
            same,
            "what loops carry together is put on them by their one name"
        );
        SimService {
            at,
            index,
            of: PhantomData,
        }
    }

    fn host(&mut self, at: LoopId, hosted: &Hosted) -> u16 {
        let running = self.running(at);
        if let Some(threads) = &mut running.threads {
            threads.host(hosted.clone());
        }
        running.node.host(hosted)
    }

    fn first_carrying(&mut self, at: LoopId) -> LoopId {
        let team = &self.running(at).team;
        match team.others[..] {
            [first, ..] if team.has_acceptor => first,
            _ => at,
        }
    }

    /// All loops that are meant by an id, it first.
    pub(super) fn team(&self, at: LoopId) -> Vec<LoopId> {
        let others = match &self.actors[at.0] {
            Actor::Loop(running) => &running.team.others[..],
            Actor::Plain(_) | Actor::Listener(_) => unreachable!("a loop's id names a loop"),
        };
        std::iter::once(at).chain(others.iter().copied()).collect()
    }

    /// Has a service accept connections; where, is the result.
    pub fn listen<S: Service>(&mut self, service: SimService<S>) -> Endpoint {
        let at = address(service.at.0, 1 + (self.listeners % 1000) as u16);
        self.listen_at(service, at.clone());
        at
    }

    /// Has a service accept connections at this endpoint, TCP or Unix. A former listener there is
    /// gone.
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
        self.kernel.borrow_mut().nobody_listens(&at);
        let has_acceptor = self.running(service.at).team.has_acceptor;
        let accepting = if has_acceptor {
            vec![service.at]
        } else {
            self.team(service.at)
        };
        for accepts in accepting {
            let socket = Arc::new(Descriptor::Simulated(self.kernel.borrow_mut().listen(&at)));
            let listener = Listener {
                socket,
                service: service.index,
                number,
                is_private: at.is_tcp(),
            };
            let kernel = self.kernel.clone();
            self.running(accepts).node.listen(&kernel, listener);
        }
    }

    /// Adds a loop with a service that accepts connections at the returned address.
    pub fn serve<S: Service>(&mut self, service: S, limits: Limits) -> Endpoint {
        let at = self.add_loop();
        let service = self.service(at, service, limits);
        self.listen(service)
    }

    /// Makes an outgoing connection of `service`; loops that carry connections together take turns.
    ///
    /// # Panics
    /// If more dials wait for a loop than a [`Builder`](crate::Builder) lets them by default.
    pub fn dial<S: Service>(&mut self, service: SimService<S>, dial: Dial) {
        let command = Command::Dial {
            service: service.index,
            dial,
        };
        let mut carrying = self.team(service.at);
        let team = &mut self.running(service.at).team;
        let turn = team.dials;
        team.dials += 1;
        if team.has_acceptor {
            carrying.remove(0);
        }
        let at = carrying[turn % carrying.len()];
        let sent = self.running(at).waker.send(command);
        sent.map_err(Unsent::into_not_dialled)
            .expect("room for a dial");
    }

    /// The service's state on its loop; of [`Shape::Threads`], on the loop that accepts; of [several
    /// loops](Sim::add_loops), on the first that carries connections.
    pub fn local<S: Service>(
        &mut self,
        service: SimService<S>,
    ) -> &mut <S::Conn as Protocol>::Local {
        let at = self.first_carrying(service.at);
        let local = self.running(at).node.core_mut().local(service.index);
        local.downcast_mut().expect("the id says what type it is")
    }

    /// The counters of one loop, or of [several](Sim::add_loops) together.
    #[must_use]
    pub fn counters(&self, at: LoopId) -> Counters {
        let mut sum = Counters::default();
        for at in self.team(at) {
            if let Actor::Loop(running) = &self.actors[at.0] {
                sum.merge(&running.counters.sum());
                if let Some(threads) = &running.threads {
                    sum.merge(&threads.counters());
                }
            }
        }
        sum
    }

    /// Begins a graceful stop of a loop, as [`Running::stop`](crate::Running::stop) does: no
    /// listening, every connection told; what is left after `deadline` is cut.
    pub fn stop(&mut self, at: LoopId, deadline: Duration) {
        let deadline = self.now() + deadline;
        let team = self.team(at);
        for at in &team {
            self.running(*at).stop_clock.set_at(deadline);
        }
        let wakers = team.iter().map(|at| self.running(*at).waker.clone());
        let wakers: Vec<Arc<Waker>> = wakers.collect();
        let running = self.running(at);
        let (acceptors, loops) = wakers.split_at(usize::from(running.team.has_acceptor));
        running.acceptors.stop(acceptors.iter(), loops.iter());
    }

    /// Ends a loop at once, as [`Stopper::stop_now`](crate::Stopper::stop_now) does: what is open is cut.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let echo = tidewire::on_input(|input, link| link.forward_all(input));
    /// let echo = sim.service(at, echo, Default::default());
    /// let addr = sim.listen(echo);
    /// let peer = sim.plain(addr);
    /// sim.run_for(Duration::from_secs(1));
    /// sim.stop(at, Duration::from_secs(60));
    /// sim.stop_now(at);
    /// sim.run_for(Duration::from_secs(1));
    /// assert!(sim.stopped(at) && matches!(sim.state(peer), PlainState::Failed(_)));
    /// ```
    pub fn stop_now(&mut self, at: LoopId) {
        let now = self.now();
        for at in self.team(at) {
            let running = self.running(at);
            running.stop_clock.set_at(now);
            running.waker.stop(Stop::Now);
        }
    }

    /// Gives a loop no processor for so long, and what happens meanwhile it finds all at once; `ZERO` gives it back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let echo = tidewire::on_input(|input, link| link.forward_all(input));
    /// let echo = sim.service(at, echo, Default::default());
    /// let addr = sim.listen(echo);
    /// sim.stall(at, Duration::from_secs(60));
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"hello");
    /// sim.run_for(Duration::from_secs(59));
    /// assert!(sim.received(peer).is_empty());
    /// sim.run_for(Duration::from_secs(2));
    /// assert_eq!(sim.received(peer), b"hello");
    /// ```
    pub fn stall(&mut self, at: LoopId, time: Duration) {
        let until = (self.now() + time).as_nanos();
        for at in self.team(at) {
            let nodes = self.running(at).nodes_mut();
            nodes.for_each(|node| node.stall(until));
        }
    }

    /// Whether a stop of this loop is over.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Shape, Sim};
    /// use tidewire::{Dial, on_input};
    ///
    /// let mut sim = Sim::under(7, Conditions::calm());
    /// sim.shape(Shape::Readiness);
    /// let server = sim.add_loop();
    /// let echo = sim.service(server, on_input(|input, link| link.forward_all(input)), Default::default());
    /// let addr = sim.listen(echo);
    /// let at = sim.add_loop();
    /// let client = sim.service(at, on_input(|input, link| link.forward_all(input)), Default::default());
    /// sim.dial(client, Dial::to(addr));
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!((sim.counters(server).open, *sim.local(echo)), (1, ()));
    ///
    /// // The client has said nothing, so the stop waits for it until its deadline.
    /// sim.stop(server, Duration::from_secs(5));
    /// sim.run_for(Duration::from_secs(6));
    /// assert!(sim.stopped(server));
    /// assert_eq!(sim.counters(at).open, 0);
    /// ```
    pub fn stopped(&mut self, at: LoopId) -> bool {
        let team = self.team(at);
        let over = |at| self.running(at).nodes().all(Node::is_over);
        team.into_iter().all(over)
    }
}
