//! Accepting: when it pauses, because the process or the machine runs out of descriptors or memory,
//! the kernel refuses for good, or the loops fall behind.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::admission::door::Permit;
use crate::kernel::accept::Accepted;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::Stop;
use crate::reactor::Reactor;
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::env::Env;
use crate::reactor::parting::Parting;
use crate::reactor::setup::{Listener, Spread};
use crate::reactor::throttle::Throttle;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// Connections taken from one listener in one turn.
const BATCH: usize = 64;
/// The same, where each needs a thread: starting one takes many times as long as accepting. If a crowd
/// comes, all of it is taken from the kernel's queue first: who does not fit in there waits for seconds.
const CROWD: usize = 1 << 14;
/// Connections taken from one accept queue when a stop begins: more than any queue holds.
const SWEEP: usize = 1 << 16;
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
    /// No loop has room for what was accepted.
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

    /// Ends a pause that has lasted long enough, or if something was freed; true if it did.
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

    /// When to look again.
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

    /// An attempt has failed, and the next may not; whether too many have, one after the other. A
    /// security module or a sandbox that forbids accepting says so each time.
    pub(crate) fn too_many_failed(&mut self) -> bool {
        self.failed = self.failed.saturating_add(1);
        self.failed >= FAILED
    }
}

/// Somebody who was accepted and let in, on the way to the loop that will carry the connection.
pub(super) struct Newcomer<F> {
    pub(super) socket: F,
    pub(super) listener: u32,
    pub(super) service: u16,
    pub(super) peer: Endpoint,
    pub(super) permit: Permit,
}

/// What a loop accepts.
pub(super) struct Accepting<F> {
    /// Service and number of each listener.
    listeners: Vec<(u16, u32)>,
    /// Those that are closed for good when this loop closes them.
    private: Vec<Weak<Descriptor>>,
    pause: Pause,
    /// Taken from the kernel's queue, for threads that are to be started.
    crowd: Vec<Newcomer<F>>,
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
    /// Adds a listener; its socket is the driver's.
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

    /// When to look again whether accepting may go on, or who is to be closed.
    pub(super) fn next(&self) -> Option<Instant> {
        let (pause, parting) = (self.pause.until(), self.parting.next());
        [pause, parting].into_iter().flatten().min()
    }
}

impl Spread {
    /// Connections to take from one listener in one turn.
    pub(super) fn batch(&self) -> usize {
        match self {
            Spread::Threads(_) => CROWD,
            Spread::Here | Spread::Loops(_) => BATCH,
        }
    }
}

impl<D: Driver> Reactor<D> {
    /// Somebody has come, or an attempt to accept has failed.
    pub(super) fn accepted(&mut self, which: usize, accepted: Accepted<Fd<D>>) {
        match accepted {
            Accepted::Connection(socket, peer) => {
                self.accepting.pause.succeeded();
                self.look_at(which, socket, peer);
            }
            Accepted::None => {}
            Accepted::Gone(e) => {
                if self.accepting.pause.too_many_failed() {
                    self.pause_accepting(Why::Kernel(e));
                }
            }
            Accepted::Exhausted(e) => self.pause_accepting(Why::Kernel(e)),
            Accepted::Broken(e) => {
                let (listener, _) = self.accepting.listener(which);
                tracing::error!(error = %e, listener, "a listener is broken; nothing is accepted on it");
                self.driver.leave_listener(which);
            }
        }
    }

    /// Lets somebody in, here, where being turned away costs neither a thread nor a place in an inbox.
    fn look_at(&mut self, which: usize, socket: Fd<D>, peer: Endpoint) {
        let (listener, service) = self.accepting.listener(which);
        let env = &self.core.env;
        match env.door(service).admit(listener, &peer, env.now) {
            Ok(permit) => {
                let newcomer = Newcomer {
                    socket,
                    listener,
                    service,
                    peer,
                    permit,
                };
                match self.setup.spread {
                    Spread::Threads(_) => self.accepting.crowd.push(newcomer),
                    Spread::Here | Spread::Loops(_) => self.take_in(newcomer),
                }
            }
            Err(why) => {
                let peer = Peer::new(peer, Origin::Accepted(listener));
                self.turn_away(service, socket, &peer, why);
            }
        }
    }

    /// Turns an accepted connection away: in the service's words if it has any, else by a reset.
    #[cold]
    pub(super) fn turn_away(&mut self, service: u16, socket: Fd<D>, peer: &Peer, why: Refusal) {
        self.core.refuse_accepted(service, why, peer);
        let env = &self.core.env;
        let sys = self.driver.sys();
        match env.door(service).reply(why, peer) {
            Ok(Some(words)) => self.accepting.parting.tell(sys, socket, &words, env.now),
            Ok(None) => sys.reset_on_close(&socket),
            Err(_) => {
                env.counters.panics.add(1);
                tracing::error!(peer = %peer.endpoint, "a service panicked in `refusal_reply`");
                sys.reset_on_close(&socket);
            }
        }
    }

    /// Closes the sockets of those who were turned away and have had time to hear of it.
    #[inline]
    pub(super) fn part(&mut self) {
        if !self.accepting.parting.is_empty() {
            let now = self.core.env.now;
            self.accepting.parting.close_due(self.driver.sys(), now);
        }
    }

    /// Takes in those who came together.
    #[inline(always)]
    pub(super) fn crowd_over(&mut self) {
        if !self.accepting.crowd.is_empty() {
            self.take_in_crowd();
        }
    }

    #[inline(never)]
    fn take_in_crowd(&mut self) {
        for newcomer in std::mem::take(&mut self.accepting.crowd) {
            self.take_in(newcomer);
        }
    }

    pub(super) fn pause_accepting(&mut self, why: Why) {
        if self.accepting.pause.begin(&self.core.env, &why) {
            self.driver.pause_accepting();
            if matches!(why, Why::Kernel(_)) {
                self.accepting.parting.close_all(self.driver.sys());
            }
        }
        // What was closed before does not end the pause.
        self.driver.take_closed();
    }

    #[inline]
    pub(super) fn resume_accepting(&mut self) {
        if self.accepting.pause.is_on() {
            self.try_to_resume();
        }
    }

    #[cold]
    fn try_to_resume(&mut self) {
        let closed = self.driver.take_closed();
        if !self.accepting.pause.ended(&self.core.env, closed) {
            return;
        }
        if !self.hand_over() {
            return self.accepting.pause.go_on(&self.core.env);
        }
        self.waker.take_nobody(false);
        if self.core.draining() || mistaken(Mistake::AcceptPausedForEver) {
            return;
        }
        if let Err(e) = self.driver.resume_accepting()
            && !mistaken(Mistake::ResumingNotRetried)
        {
            self.accepting.pause.prolong(&self.core.env, &e);
        }
    }

    /// Lets no handshake begin any more; whether some may be under way. What a successor or a service
    /// manager has too is left alone: it lives on, and so does its queue.
    pub(super) fn begin_no_more(&mut self) -> bool {
        if self.setup.clock.is_shared() {
            return false;
        }
        let sys = self.driver.sys();
        let private = self.accepting.private.drain(..).filter_map(|s| s.upgrade());
        let begin_no_more = |socket: Arc<Descriptor>| {
            sys.begin_no_more(D::Sys::look(&socket)).unwrap_or_else(|e| {
                tracing::info!(error = %e, "who connects at the last moment of a stop may be reset");
                true
            })
        };
        private
            .map(begin_no_more)
            .fold(false, |any, some| any | some)
    }

    /// The last look into the queues, and the end of listening.
    pub(super) fn close_listeners(&mut self) {
        if !self.setup.clock.is_succeeded() {
            for which in 0..self.accepting.listeners.len() {
                self.empty_queue(which);
            }
            self.crowd_over();
        }
        self.driver.close_listeners();
        self.accepting.parting.close_all(self.driver.sys());
        if self.hand_over.is_done() {
            self.accepting.pause.end();
            self.waker.take_nobody(false);
        }
    }

    /// Looks into the queues without having been told of anybody.
    pub(super) fn take_in_who_waits(&mut self) {
        if self.accepting.pause.is_on() || self.waker.stopping() != Stop::No {
            return;
        }
        for which in 0..self.accepting.listeners.len() {
            for _ in 0..SWEEP {
                let accepted = self.driver.accept_now(which);
                let goes_on = matches!(accepted, Accepted::Connection(..));
                self.accepted(which, accepted);
                if !goes_on {
                    break;
                }
            }
        }
        self.crowd_over();
    }

    fn empty_queue(&mut self, which: usize) {
        for _ in 0..SWEEP {
            let lost = match self.driver.accept_now(which) {
                there @ Accepted::Connection(..) => {
                    self.accepted(which, there);
                    continue;
                }
                Accepted::Gone(e) if self.accepting.pause.too_many_failed() => e,
                Accepted::Gone(_) => continue,
                Accepted::Exhausted(e) => e,
                Accepted::None | Accepted::Broken(_) => return,
            };
            tracing::warn!(error = %lost, "connections that waited to be accepted are lost");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::accept::classify;

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
