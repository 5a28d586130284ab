//! Accepting: clients are taken from the kernel's queues, and let in or refused.

use std::sync::Arc;

use crate::kernel::accept::Accepted;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::Stop;
use crate::reactor::Reactor;
use crate::reactor::accepting::{Newcomer, Why};
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::Spread;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};

/// Connections taken from one listener in one turn.
const BATCH: usize = 64;
/// Most connections accepted at once where each needs a thread: starting a thread takes many times
/// as long as accepting. If many clients come at once, all are taken from the kernel's queue first:
/// a client that does not fit into the queue waits for seconds.
const CROWD: usize = 1 << 14;
/// Connections taken from one accept queue when a stop begins: more than any queue holds.
const SWEEP: usize = 1 << 16;
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
    /// A client has come, or an attempt to accept has failed.
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

    /// Lets in a connection that another process has accepted at the listener of this number.
    #[cold]
    pub(super) fn accept_from_elsewhere(&mut self, socket: Fd<D>, listener: u32) {
        let mut here = 0..self.accepting.listeners.len();
        let Some(which) = here.find(|which| self.accepting.listener(*which).0 == listener) else {
            let error = "no such listener";
            tracing::error!(listener, error, "a connection of another process is reset");
            return self.driver.sys().reset_on_close(&socket);
        };
        let peer = self.driver.sys().peer_name(&socket);
        self.look_at(which, socket, peer);
        self.crowd_over();
    }

    /// Lets a client in, here, where a refusal costs neither a thread nor a place in an inbox.
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
            Some(Some(words)) => self.accepting.parting.tell(sys, socket, &words, env.now),
            Some(None) => sys.reset_on_close(&socket),
            None => {
                env.counters.panics.add(1);
                tracing::error!(peer = %peer.endpoint, "a service panicked in `refusal_reply`");
                sys.reset_on_close(&socket);
            }
        }
    }

    /// Closes the sockets of refused clients that have had time to hear of it.
    #[inline]
    pub(super) fn part(&mut self) {
        if !self.accepting.parting.is_empty() {
            let now = self.core.env.now;
            self.accepting.parting.close_due(self.driver.sys(), now);
        }
    }

    /// Takes in clients that came together.
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
        // Descriptors that were closed before the pause do not end it.
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

    /// Lets no new handshake begin; returns whether some may be under way. A listener that a
    /// successor or a service manager shares is left alone: it lives on, and so does its queue.
    pub(super) fn begin_no_more(&mut self) -> bool {
        if self.setup.clock.is_shared() {
            return false;
        }
        let sys = self.driver.sys();
        let private = self.accepting.private.drain(..).filter_map(|s| s.upgrade());
        let begin_no_more = |socket: Arc<Descriptor>| {
            sys.begin_no_more(D::Sys::look(&socket)).unwrap_or_else(|e| {
                tracing::info!(error = %e, "a client that connects at the last moment of a stop may be reset");
                true
            })
        };
        private
            .map(begin_no_more)
            .fold(false, |any, some| any | some)
    }

    /// The last look into the queues, and the end of listening.
    pub(super) fn close_listeners(&mut self) {
        if !self.setup.clock.is_succeeded() && !mistaken(Mistake::LastLookLeftOut) {
            for which in 0..self.accepting.listeners.len() {
                self.empty_queue(which);
            }
            self.crowd_over();
        }
        self.driver.close_listeners();
        self.accepting.parting.close_all(self.driver.sys());
        if self.waiting.is_done() {
            self.accepting.pause.end();
            self.waker.take_nobody(false);
        }
    }

    /// Looks into the queues without having been told of a client.
    pub(super) fn accept_waiting_clients(&mut self) {
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
