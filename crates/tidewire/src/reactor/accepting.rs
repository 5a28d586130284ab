//! Accepting of a loop and its pauses: when the process or the machine runs out of descriptors or memory,
//! when the kernel refuses for good, or when the loops fall behind.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::admission::door::Permit;
use crate::kernel::descriptor::Descriptor;
use crate::reactor::env::Env;
use crate::reactor::parting::Parting;
use crate::reactor::setup::Listener;
use crate::reactor::throttle::Throttle;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;

/// How long accepting pauses for want of descriptors or memory. A connection that closes ends the
/// pause early.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// Attempts in a row that may fail, each for a reason of its own as it seems, before accepting pauses.
/// From then on each that fails, and each attempt to end the pause that does, makes it twice as long, up to 1.6 s.
const FAILED: u32 = 16;
/// How often a loop that was full is looked at again.
const BEHIND: Duration = Duration::from_millis(1);
/// Between two log lines of one loop about pauses.
const SAID: Duration = Duration::from_secs(10);

/// Why accepting pauses.
#[derive(Debug)]
pub(crate) enum Why {
    /// The process or the machine has nothing left to take a connection in with, or the kernel says
    /// no to one after the other.
    Kernel(io::Error),
    /// No loop has room for the accepted connection.
    Behind,
}

/// Whether accepting is paused.
#[derive(Debug)]
pub(crate) struct Pause {
    until: Option<Instant>,
    /// Attempts in a row that failed.
    failed: u32,
    said: Throttle,
}

impl Default for Pause {
    fn default() -> Pause {
        Pause {
            until: None,
            failed: 0,
            said: Throttle::new(SAID),
        }
    }
}

impl Pause {
    /// Begins a pause, or prolongs it; true if accepting went on until now.
    pub(crate) fn begin(&mut self, env: &Env, why: &Why) -> bool {
        let begins = self.until.is_none();
        if begins {
            env.counters.accept_pauses.add(1);
            if let Some(held_back) = self.said.pass(env.now) {
                match why {
                    Why::Kernel(e) => {
                        tracing::warn!(error = %e, held_back, "accepting pauses until something is freed");
                    }
                    Why::Behind => {
                        tracing::warn!(held_back, "accepting pauses: the loops have not caught up");
                    }
                }
            }
        }
        let time = match why {
            Why::Kernel(_) => self.for_the_kernel(),
            Why::Behind => BEHIND,
        };
        self.until = Some(env.now + time);
        begins
    }

    /// The loops have no room yet: goes on with a pause that has just ended.
    pub(crate) fn go_on(&mut self, env: &Env) {
        self.until = Some(env.now + BEHIND);
    }

    /// The kernel does not let accepting go on yet: as [`go_on`](Pause::go_on), and for twice as long each time.
    pub(crate) fn prolong(&mut self, env: &Env, why: &io::Error) {
        if let Some(held_back) = self.said.pass(env.now) {
            tracing::warn!(error = %why, held_back, "accepting cannot go on yet, and is tried again");
        }
        self.failed = self.failed.max(FAILED - 1).saturating_add(1);
        self.until = Some(env.now + self.for_the_kernel());
    }

    /// How long to pause because of the kernel.
    fn for_the_kernel(&self) -> Duration {
        PAUSE * (1 << self.failed.saturating_sub(FAILED).min(4))
    }

    /// Ends a pause that has lasted long enough, or after a descriptor was freed; returns whether
    /// it did.
    pub(crate) fn ended(&mut self, env: &Env, freed: bool) -> bool {
        let over = self.until.is_some_and(|until| freed || until <= env.now);
        if over {
            self.until = None;
        }
        over
    }

    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// The time of the next look at the listeners.
    pub(crate) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends a pause at once.
    pub(crate) fn end(&mut self) {
        self.until = None;
    }

    /// A connection was accepted.
    #[inline]
    pub(crate) fn succeeded(&mut self) {
        self.failed = 0;
    }

    /// Counts a failed attempt to accept; returns whether too many have failed in a row. A security
    /// module or a sandbox that forbids accepting fails each time.
    pub(crate) fn too_many_failed(&mut self) -> bool {
        self.failed = self.failed.saturating_add(1);
        self.failed >= FAILED
    }
}

/// A client that was accepted and let in, on the way to the loop that will carry the connection.
pub(super) struct Newcomer<F> {
    pub(super) socket: F,
    pub(super) listener: u32,
    pub(super) service: u16,
    pub(super) peer: Endpoint,
    pub(super) permit: Permit,
}

/// The accepting state of a loop.
pub(super) struct Accepting<F> {
    /// Service and number of each listener.
    pub(super) listeners: Vec<(u16, u32)>,
    /// Listeners that are closed for good when this loop closes them.
    pub(super) private: Vec<Weak<Descriptor>>,
    pub(super) pause: Pause,
    /// Taken from the kernel's queue, for threads that are to be started.
    pub(super) crowd: Vec<Newcomer<F>>,
    pub(super) parting: Parting<F>,
}

impl<F> Default for Accepting<F> {
    fn default() -> Accepting<F> {
        Accepting {
            listeners: Vec::new(),
            private: Vec::new(),
            pause: Pause::default(),
            crowd: Vec::new(),
            parting: Parting::default(),
        }
    }
}

impl<F> Accepting<F> {
    /// Adds a listener; its socket belongs to the driver.
    pub(super) fn add(&mut self, listener: Listener) -> Arc<Descriptor> {
        self.listeners.push((listener.service, listener.number));
        if listener.is_private {
            self.private.push(Arc::downgrade(&listener.socket));
        }
        listener.socket
    }

    /// The listener's number among all, and its service.
    pub(super) fn listener(&self, which: usize) -> (u32, u16) {
        let (service, number) = self.listeners[which];
        (number, service)
    }

    /// Whether there is [nothing to look at](Accepting::next) by itself.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        !self.pause.is_on() && self.parting.is_empty()
    }

    /// When to look again whether accepting may go on, or when a refused client is to be closed.
    pub(super) fn next(&self) -> Option<Instant> {
        let (pause, parting) = (self.pause.until(), self.parting.next());
        [pause, parting].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::accept::{Accepted, classify};

    fn error(e: rustix::io::Errno) -> Accepted<()> {
        classify(e.into())
    }

    #[test]
    fn accepting_pauses_ever_longer_while_the_kernel_refuses() {
        use rustix::io::Errno;
        let mut pause = Pause::default();
        for e in [Errno::ACCESS, Errno::PERM, Errno::CONNABORTED] {
            assert!(matches!(error(e), Accepted::Gone(_)));
        }
        for _ in 1..FAILED {
            assert!(!pause.too_many_failed());
        }
        let mut core = crate::reactor::tests::core();
        let mut times = Vec::new();
        for _ in 0..7 {
            assert!(pause.too_many_failed());
            let why = Why::Kernel(Errno::ACCESS.into());
            assert!(pause.begin(&core.env, &why));
            let until = pause.until().expect("a pause");
            times.push(until.since(core.env.now).as_millis());
            core.env.now = until;
            assert!(pause.ended(&core.env, false));
        }
        assert_eq!(times, [100, 200, 400, 800, 1600, 1600, 1600]);
        assert_eq!(core.env.counters.accept_pauses.value(), 7);
        pause.succeeded();
        assert!(!pause.too_many_failed());
    }

    #[test]
    fn a_pause_that_cannot_end_is_prolonged_ever_longer_and_is_one_pause() {
        use rustix::io::Errno;
        let mut pause = Pause::default();
        let mut core = crate::reactor::tests::core();
        assert!(pause.begin(&core.env, &Why::Kernel(Errno::MFILE.into())));
        let mut times = Vec::new();
        for _ in 0..6 {
            core.env.now = pause.until().expect("a pause");
            assert!(pause.ended(&core.env, false));
            pause.prolong(&core.env, &Errno::NOSPC.into());
            let until = pause.until().expect("it goes on");
            times.push(until.since(core.env.now).as_millis());
        }
        assert_eq!(times, [100, 200, 400, 800, 1600, 1600]);
        assert_eq!(core.env.counters.accept_pauses.value(), 1);
    }
}
