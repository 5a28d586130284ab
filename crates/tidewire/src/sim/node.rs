//! A loop of a simulation: a production [`Reactor`] on the [simulated kernel](super::kernel), cut where
//! a real one might wait, so that others go on meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::build::relay::Relay;
use crate::build::threads::{Carried, Carrier};
use crate::driver::completion::{self, Abilities};
use crate::driver::readiness::epoll::Epoll;
use crate::driver::readiness::sockets::Sockets;
use crate::kernel::clock::Clock;
use crate::reach::waker::Waker;
use crate::reactor::Reactor;
use crate::reactor::core::Core;
use crate::reactor::driver::Driver;
use crate::reactor::host::Hosted;
use crate::reactor::life::Life;
use crate::reactor::random::Rng;
use crate::reactor::setup::{Listener, LoopSetup};
use crate::sim::kernel::queues::SimQueues;
use crate::sim::kernel::sys::SimSys;
use crate::sim::kernel::{Kernel, Parked, Shared};
use crate::vocabulary::time::Instant;
use std::sync::Arc;

/// The parts of which the loops of a simulation are made.
///
/// ```
/// use tidewire::sim::{Shape, Sim};
///
/// let mut sim = Sim::new(7);
/// sim.shape(Shape::Completion); // otherwise it is drawn from the seed
/// let at = sim.add_loop();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Loops that wait for readiness, as the epoll engine has them.
    Readiness,
    /// Loops that wait for completions, as the io_uring engine has them.
    Completion,
    /// A loop that accepts and dials, and a loop for each connection, as the threads engine has them.
    Threads,
}

/// A loop of any shape.
trait Turns {
    fn before_wait(&mut self) -> Option<Duration>;
    fn wait(&mut self, timeout: Option<Duration>);
    fn after_wait(&mut self);
    /// Whether the loop has come to its end; asked between two turns.
    fn is_over(&mut self, acceptor: Option<&Arc<Waker>>) -> bool;
    fn finish(self: Box<Self>);
    fn listen(&mut self, listener: Listener);
    fn has_more_to_do(&self) -> bool;
    fn core_mut(&mut self) -> &mut Core;
}

impl<D: Driver + 'static> Turns for Reactor<D> {
    fn before_wait(&mut self) -> Option<Duration> {
        let timeout = Reactor::before_wait(self);
        let waits = timeout != Some(Duration::ZERO);
        assert!(
            !waits || !self.driver.has_work(),
            "a loop waits with work in hand"
        );
        timeout
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

    fn listen(&mut self, listener: Listener) {
        Reactor::listen(self, listener).expect("the simulated kernel has room for a listener");
    }

    fn has_more_to_do(&self) -> bool {
        Reactor::has_more_to_do(self)
    }

    fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

enum Where {
    /// Between two turns.
    Between,
    /// About to wait for so long.
    Waiting(Option<Duration>),
    Parked(Parked),
    /// Stopped.
    Over,
}

/// A value that lives as long as its loop.
pub(super) enum Held {
    Thread(Carried),
    Loop { _life: Life },
}

pub(super) struct Node {
    /// The loop; gone once it has ended.
    reactor: Option<Box<dyn Turns>>,
    at: Where,
    held: Option<Held>,
    /// The relay; dropped as soon as it has stopped.
    relay: Option<Relay>,
    /// The node is not given a processor before that time, in nanoseconds; what happens meanwhile
    /// it finds all at once.
    stalled_until: u64,
}

impl Node {
    pub(super) fn new(
        kernel: &Shared,
        shape: Shape,
        setup: LoopSetup,
        waker: Arc<Waker>,
        core: Core,
        rng: &mut Rng,
    ) -> Node {
        let options = setup.dial_options.clone();
        kernel.borrow_mut().setting_up(true);
        let reactor = match shape {
            Shape::Completion => {
                let queues = SimQueues::new(kernel);
                let abilities = Abilities {
                    share: rng.below(2) == 0,
                    // No places, some, or enough for all.
                    places: [0, 3, 1024][rng.below(3) as usize],
                };
                completion::driver(queues, &core, options, abilities)
                    .and_then(|driver| Reactor::new(driver, core, setup, waker))
                    .map(|reactor| Box::new(reactor) as Box<dyn Turns>)
            }
            // The acceptor of the threads engine waits as epoll does.
            Shape::Readiness | Shape::Threads => Epoll::new(SimSys::new(kernel))
                .and_then(|poller| Reactor::new(Sockets::new(poller, options), core, setup, waker))
                .map(|reactor| Box::new(reactor) as Box<dyn Turns>),
        };
        kernel.borrow_mut().setting_up(false);
        Node {
            reactor: Some(reactor.expect("a kernel that has just started has room")),
            at: Where::Between,
            held: None,
            relay: None,
            stalled_until: 0,
        }
    }

    /// Adds a value that is dropped when the loop has ended.
    pub(super) fn holding(mut self, held: Held) -> Node {
        self.held = Some(held);
        self
    }

    /// With a cue to be given when it has stopped.
    pub(super) fn relaying(mut self, relay: Option<Relay>) -> Node {
        self.relay = relay;
        self
    }

    /// A loop for one connection.
    pub(super) fn thread(
        kernel: &Shared,
        carrier: Carrier,
        clock: Clock,
        rng: Rng,
    ) -> Option<Node> {
        // A service that panics here ends its thread, and nothing else.
        let begun = catch_unwind(AssertUnwindSafe(|| {
            carrier.begin(SimSys::new(kernel), clock, rng)
        }));
        let (reactor, carried) = begun.ok()?;
        Some(Node {
            reactor: Some(Box::new(reactor.ok()?)),
            at: Where::Between,
            held: Some(Held::Thread(carried)),
            relay: None,
            stalled_until: 0,
        })
    }

    /// Adds a service and returns its index.
    pub(super) fn host(&mut self, hosted: &Hosted) -> u16 {
        self.disturb();
        self.core_mut().host(hosted)
    }

    /// Tells the node of a service for whose loops it accepts.
    pub(super) fn know(&mut self, hosted: &Hosted) {
        self.disturb();
        self.core_mut().know_service(hosted);
    }

    pub(super) fn core_mut(&mut self) -> &mut Core {
        let reactor = self.reactor.as_mut();
        reactor.expect("it has not been ended").core_mut()
    }

    pub(super) fn listen(&mut self, kernel: &Shared, listener: Listener) {
        self.disturb();
        if let Some(reactor) = &mut self.reactor {
            kernel.borrow_mut().setting_up(true);
            reactor.listen(listener);
            kernel.borrow_mut().setting_up(false);
        }
    }

    /// Makes the loop begin its wait again.
    fn disturb(&mut self) {
        if !matches!(self.at, Where::Over) {
            self.at = Where::Between;
        }
    }

    /// Whether the loop has stopped.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.at, Where::Over)
    }

    /// When the loop goes on by itself.
    pub(super) fn until(&self, now_ns: u64) -> Option<Instant> {
        self.stalled(now_ns).or(match &self.at {
            Where::Parked(parked) => parked.until.map(Instant::from_nanos),
            _ => None,
        })
    }

    /// When the loop goes on by itself for more than the timers of its services.
    pub(super) fn deadline(&self, now_ns: u64) -> Option<Instant> {
        let reactor = self.reactor.as_ref()?;
        let stalled = self.stalled(now_ns);
        stalled.or_else(|| self.until(now_ns).filter(|_| reactor.has_more_to_do()))
    }

    /// Until when the loop waits for a processor, if it does.
    pub(super) fn stalled(&self, now_ns: u64) -> Option<Instant> {
        let stalls = self.stalled_until > now_ns && !self.is_over();
        stalls.then_some(Instant::from_nanos(self.stalled_until))
    }

    /// Makes the loop wait for a processor, if it would go on.
    pub(super) fn stall(&mut self, until_ns: u64) {
        self.stalled_until = until_ns;
    }

    /// Whether the loop would go on now.
    pub(super) fn goes_on(&self, kernel: &mut Kernel, now_ns: u64) -> bool {
        if self.stalled(now_ns).is_some() {
            return false;
        }
        match &self.at {
            Where::Over => false,
            Where::Between | Where::Waiting(_) => true,
            Where::Parked(p) => p.until.is_some_and(|t| t <= now_ns) || kernel.is_ready(p),
        }
    }

    /// Lets the loop go on to the next point where it may wait.
    pub(super) fn go_on(&mut self, kernel: &Shared, rng: &mut Rng) {
        let Some(reactor) = &mut self.reactor else {
            return;
        };
        if let Where::Between = self.at {
            let acceptor = match &self.held {
                Some(Held::Thread(carried)) => Some(carried.acceptor().clone()),
                _ => None,
            };
            if reactor.is_over(acceptor.as_ref()) {
                self.at = Where::Over;
                self.relay = None;
                return;
            }
            self.at = Where::Waiting(reactor.before_wait());
            // Other threads may come between here and the wait, but mostly do not.
            if rng.below(4) == 0 {
                return;
            }
        }
        match std::mem::replace(&mut self.at, Where::Between) {
            Where::Waiting(timeout) => {
                kernel.borrow_mut().parking(true);
                reactor.wait(timeout);
                let mut kernel = kernel.borrow_mut();
                kernel.parking(false);
                if let Some(parked) = kernel.parked() {
                    self.at = Where::Parked(parked);
                    return;
                }
            }
            Where::Parked(_) => reactor.wait(Some(Duration::ZERO)),
            at @ (Where::Between | Where::Over) => {
                self.at = at;
                return;
            }
        }
        reactor.after_wait();
    }

    /// Takes back from the kernel the memory that it still uses.
    pub(super) fn end(&mut self) {
        self.at = Where::Over;
        if let Some(reactor) = self.reactor.take() {
            reactor.finish();
        }
        drop(self.held.take());
        self.relay = None;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A test that fails says why, and nothing after that.
        if std::thread::panicking() {
            std::mem::forget(self.reactor.take());
            std::mem::forget(self.relay.take());
        } else {
            self.end();
        }
    }
}
