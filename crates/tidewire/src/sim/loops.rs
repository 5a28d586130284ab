//! Loops of a simulation, and services on them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::build::dial::{Dial, NotDialled};
use crate::build::limits::Limits;
use crate::kernel::descriptor::Descriptor;
use crate::protocol::traits::{Protocol, Service};
use crate::reach::stop::StopClock;
use crate::reach::waker::{Command, INBOX, Stop, Waker};
use crate::reactor::core::Plan;
use crate::reactor::counters::{Counters, LoopCounters};
use crate::reactor::host::host_of;
use crate::reactor::random::Rng;
use crate::reactor::setup::{Listener, LoopSetup, Spread};
use crate::sim::net::address;
use crate::sim::node::{Node, Shape};
use crate::sim::threads::Threads;
use crate::sim::world::{Actor, Running, Sim};
use crate::vocabulary::endpoint::{Endpoint, EndpointError};
use crate::vocabulary::time::Clock;

/// A loop of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopId(pub(super) usize);

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

impl Sim {
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
}
