//! The simulation as tests see it: its parts, and its events. The [loops](super::loops),
//! [peers](super::peers) and [time](super::time) of a simulation are in modules beside this one.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::admission::Admission;
use crate::admission::door::Gate;
use crate::build::relay::Acceptors;
use crate::memory::budget::Memory;
use crate::reach::names::{LOOKUPS, Names, Resolver};
use crate::reach::stop::StopClock;
use crate::reach::waker::Waker;
use crate::reactor::counters::LoopCounters;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::sim::conditions::Conditions;
use crate::sim::kernel::{self, Kernel, KernelFaults};
use crate::sim::net::Net;
use crate::sim::node::{Node, Shape};
use crate::sim::plain::Plain;
use crate::sim::threads::Threads;
use crate::sim::trace::{Event, files};
use crate::vocabulary::endpoint::Endpoint;

/// Turns and arrivals in one run before it is given up. Default of [`Sim::steps_max`].
const STEPS_MAX: u64 = 20_000_000;

/// A loop of a simulation.
///
/// ```
/// use tidewire::sim::{LoopId, Sim};
///
/// let mut sim = Sim::new(1);
/// let at: LoopId = sim.add_loop();
/// assert_eq!(sim.counters(at).accepted, 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopId(pub(super) usize);

pub(super) enum Actor {
    Loop(Box<Running>),
    Plain(Plain),
    /// Listens here; clients that wait to be accepted stand in its inbox.
    Listener(Endpoint),
}

/// A loop, and the handle that reaches it.
pub(super) struct Running {
    pub(super) node: Node,
    /// Threads of its connections, if it is one of [`Shape::Threads`].
    pub(super) threads: Option<Threads>,
    pub(super) waker: Arc<Waker>,
    pub(super) counters: Arc<LoopCounters>,
    pub(super) stop_clock: Arc<StopClock>,
    /// The loop itself, if it accepts for other loops.
    pub(super) acceptors: Acceptors,
    pub(super) team: Team,
}

/// Loops that are reached by the name of one.
#[derive(Default)]
pub(super) struct Team {
    /// The loops that run in the same process.
    pub(super) others: Vec<LoopId>,
    /// The loop that gives the group its name accepts for the others, and has no connections.
    pub(super) has_acceptor: bool,
    /// How many dials the peers were asked for.
    pub(super) dials: usize,
}

impl Running {
    pub(super) fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        std::iter::once(&mut self.node).chain(self.threads.iter_mut().flat_map(Threads::nodes_mut))
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::once(&self.node).chain(self.threads.iter().flat_map(Threads::nodes))
    }
}

/// Number of the kernel's inbox on the network. The inbox of actor `i` is the one after number `i`.
const KERNEL: usize = 0;

/// A simulated network with loops on it. The simulation runs on one thread, on virtual time, with
/// one seed: equal seeds and equal calls give equal runs, to the nanosecond.
///
/// Virtual time moves only when no loop has anything to do, or the ones that have are
/// [late](Conditions::late_one_in); a turn of a loop takes none. Messages
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
    pub(super) time: Rc<Cell<u64>>,
    pub(super) rng: Rng,
    pub(super) actors: Vec<Actor>,
    pub(super) kernel: kernel::Shared,
    pub(super) shape: Shape,
    pub(super) conditions: Conditions,
    pub(super) listeners: u32,
    pub(super) steps_max: u64,
    pub(super) memory: Arc<Memory>,
    /// Shares of what a turn of a loop makes.
    pub(crate) made: MakeShares,
    pub(super) gates: Vec<Gate>,
    pub(super) names: Arc<Names>,
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
        if files::is_wanted() {
            net.trace.record();
        }
        let kernel_rng = Rng::from_seed(rng.next());
        let shape = match rng.below(2) {
            0 => Shape::Readiness,
            _ => Shape::Completion,
        };
        let faults = conditions.kernel.clone();
        Sim {
            kernel: Kernel::new(net, time.clone(), KERNEL, kernel_rng, faults),
            seed,
            shape,
            conditions,
            time,
            rng,
            actors: Vec::new(),
            listeners: 0,
            steps_max: STEPS_MAX,
            memory: Arc::new(Memory::new(usize::MAX)),
            made: MakeShares::default(),
            gates: Vec::new(),
            names: Arc::default(),
        }
    }

    /// Turns and arrivals after which a run is given up with
    /// [`Outcome::StepLimit`](super::Outcome::StepLimit). Default 20 million.
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

    /// Sets what loops that are added from now on ask for addresses of hosts, as
    /// [`Builder::resolver`](crate::Builder::resolver) says: mostly a [script](super::ScriptedNames). Without it no name but
    /// `localhost` is known.
    ///
    /// ```
    /// use tidewire::sim::{ScriptedNames, Sim};
    ///
    /// let mut sim = Sim::new(7);
    /// sim.resolver(ScriptedNames::default());
    /// let at = sim.add_loop(); // asks the script
    /// ```
    pub fn resolver(&mut self, resolver: impl Resolver) -> &mut Sim {
        self.names = Arc::new(Names::of(Arc::new(resolver), LOOKUPS));
        self
    }

    /// Applies these rules of admission to services that are added from now on, as
    /// [`Builder::admission`](crate::Builder::admission) does.
    pub fn admission(&mut self, admission: Admission) -> &mut Sim {
        self.gates.push((None, admission));
        self
    }

    /// Has services that are added from now on let in all clients again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let none = Rules { connections: Some(0), ..Rules::default() };
    /// sim.admission(Admission::new(none)).admit_all();
    /// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// let peer = sim.plain(addr);
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.state(peer), PlainState::Open);
    /// ```
    pub fn admit_all(&mut self) -> &mut Sim {
        self.gates.clear();
        self
    }

    // ---- Faults ----

    /// Has the network lose a stream: both ends see a reset. Streams are counted from 0 in the
    /// order of the attempts to connect.
    ///
    /// # Panics
    /// Panics if there is no such stream yet.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let rules = Rules { connections: Some(2), ..Rules::default() };
    /// sim.memory(10 << 20).admission(Admission::new(rules));
    /// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// let peers = [sim.plain(&addr), sim.plain(&addr), sim.plain(&addr)];
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.streams(), 3);
    /// let reset = |sim: &Sim| peers.iter().filter(|peer| matches!(sim.state(**peer), PlainState::Failed(_))).count();
    /// assert_eq!(reset(&sim), 1, "one is more than the rules let in");
    ///
    /// sim.set_conditions(Conditions { refuse_one_in: 1, ..sim.conditions().clone() });
    /// for stream in 0..sim.streams() {
    ///     sim.lose(stream);
    /// }
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(reset(&sim), 3);
    /// ```
    pub fn lose(&mut self, stream: u32) {
        self.kernel.borrow_mut().net.lose(stream);
    }

    /// Sets the kernel's faults from now on, in place of those of the conditions. The queues of loops of
    /// [`Shape::Completion`](super::Shape::Completion) stay as they were when the loop was added. All loops of a
    /// simulation share the kernel's descriptors; a loop that is added needs some.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{KernelFaults, Sim};
    ///
    /// for seed in 0..20 {
    ///     let mut sim = Sim::new(seed);
    ///     sim.kernel_faults(KernelFaults { interrupt_one_in: 2, ends_one_in: 2, ..KernelFaults::none() });
    ///     let echo = tidewire::on_input(|input, link| link.forward_all(input));
    ///     let addr = sim.serve(echo, Default::default());
    ///     let peer = sim.plain(addr);
    ///     sim.send(peer, b"hello");
    ///     sim.run_for(Duration::from_secs(10));
    ///     assert_eq!(sim.received(peer), b"hello", "seed {seed}");
    /// }
    /// ```
    pub fn kernel_faults(&mut self, faults: KernelFaults) -> &mut Sim {
        self.kernel.borrow_mut().be(faults.clone());
        self.conditions.kernel = faults;
        self
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
        let mut kernel = self.kernel.borrow_mut();
        kernel.net.conditions = conditions.clone();
        kernel.be(conditions.kernel.clone());
        drop(kernel);
        self.conditions = conditions;
    }

    /// The present conditions.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    // ---- What happened ----

    /// A hash of everything that happened on the network so far, bytes and times included. Equal
    /// seeds and equal calls give equal hashes.
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
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Outcome, Sim};
    ///
    /// let run = |seed| {
    ///     let mut sim = Sim::under(seed, Conditions { receive_max: 3, ..Conditions::from_seed(seed) });
    ///     sim.steps_max(1_000_000).record();
    ///     let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    ///     let peer = sim.plain(addr);
    ///     sim.send(peer, b"hello");
    ///     sim.finish(peer);
    ///     assert_eq!(sim.run_until_idle(Duration::from_secs(60)), Outcome::Idle);
    ///     assert!(sim.trace().count() > 0);
    ///     sim.trace_hash()
    /// };
    /// assert_eq!(run(7), run(7));
    /// assert_ne!(run(7), run(8));
    /// ```
    pub fn trace(&self) -> impl Iterator<Item = Event> {
        let events: Vec<Event> = self.kernel.borrow().net.trace.events().copied().collect();
        events.into_iter()
    }

    // ---- Inside ----

    pub(super) fn add(&mut self, actor: Actor) {
        self.actors.push(actor);
        self.kernel.borrow_mut().net.inboxes.push(VecDeque::new());
    }

    pub(super) fn running(&mut self, at: LoopId) -> &mut Running {
        match &mut self.actors[at.0] {
            Actor::Loop(running) => running,
            Actor::Plain(_) | Actor::Listener(_) => unreachable!("a loop's id names a loop"),
        }
    }
}
