//! The next action of a connection's peer and its deadline, as far as the connection's record
//! knows, and whether the peer is late.

use std::time::Duration;

use crate::build::limits::REQUEST_RATE;
use crate::reactor::deadlines::{Awaited, FIRST_LOOK, later, millis};
use crate::reactor::facts::{Appetite, Flag, Hint, Phase};
use crate::reactor::state::State;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::time::Instant;

impl State {
    /// The connection was accepted: the peer shall say something within `limit`, and nothing was served yet.
    pub(crate) fn await_first_byte(&mut self, now: Instant, limit: Option<Duration>) {
        self.flags.add(Flag::Unserved);
        if let ms @ 1.. = millis(limit) {
            self.deadlines.awaited = Awaited::FirstByte;
            self.deadlines.at_ns = later(now, ms);
        }
    }

    /// A request has begun whose end the protocol will tell.
    pub(crate) fn request_began(&mut self, now: Instant) {
        if self.is_open() && self.deadlines.request_ms > 0 {
            self.deadlines.awaited = Awaited::Request;
            self.deadlines.at_ns = later(now, self.deadlines.request_ms);
        }
    }

    pub(crate) fn request_ended(&mut self) {
        self.flags.remove(Flag::Unserved);
        self.deadlines.awaited = Awaited::Nothing;
    }

    /// `received` has returned. Unconsumed bytes wait for the rest of a request: so a request has
    /// begun, unless the protocol itself says when requests begin.
    #[inline]
    pub(crate) fn note_request(&mut self, now: Instant, progress: bool) {
        let owes_nothing = self.carry.is_empty() && self.deadlines.awaited == Awaited::Nothing;
        if owes_nothing && !self.flags.has(Flag::Unserved) {
            return;
        }
        self.note_partial(now, progress);
    }

    fn note_partial(&mut self, now: Instant, progress: bool) {
        let waits = matches!(self.appetite, Appetite::Bytes(_)) && !self.is_paused();
        let partial = waits && !self.carry.is_empty() && self.deadlines.request_ms > 0;
        match self.deadlines.awaited {
            Awaited::Request | Awaited::InnerFirstByte | Awaited::InnerRequest => {}
            Awaited::Carried if partial && !progress => {}
            _ if partial => {
                self.deadlines.awaited = Awaited::Carried;
                self.deadlines.at_ns = now.as_nanos();
            }
            _ => self.deadlines.awaited = Awaited::Nothing,
        }
        if progress {
            self.flags.remove(Flag::Unserved);
        }
    }

    /// Notes whether output waits that is not taken, after the kernel was offered it.
    #[inline]
    pub(crate) fn watch_output(&mut self, now: Instant) {
        if !self.out.may_send() {
            self.deadlines.write_ns = u64::MAX;
        } else if self.deadlines.write_ns == u64::MAX {
            self.begin_to_watch(now);
        }
    }

    /// The kernel takes no more. That alone says little about the peer: the kernel's buffer has megabytes,
    /// and a third of it must be free before the kernel takes more.
    #[inline(never)]
    fn begin_to_watch(&mut self, now: Instant) {
        // On a ring this is called for nearly every message: its send is under way.
        let least = match (self.deadlines.write_ms, self.deadlines.idle_ms) {
            (0, 0) => return,
            (0, only) | (only, 0) => only,
            (write, idle) => write.min(idle),
        };
        self.deadlines.forget_look();
        self.deadlines.write_ns = later(now, least.div_ceil(FIRST_LOOK));
    }

    /// When what the peer owes is late; `u64::MAX` if it owes nothing.
    fn awaited_ns(&self) -> u64 {
        match self.deadlines.awaited {
            Awaited::Nothing => u64::MAX,
            Awaited::Carried => {
                let earned = self.carry.len() as u64 * (1_000_000_000 / REQUEST_RATE);
                let limit = u64::from(self.deadlines.request_ms) * 1_000_000;
                self.deadlines
                    .at_ns
                    .saturating_add(limit)
                    .saturating_add(earned)
            }
            _ => self.deadlines.at_ns,
        }
    }

    /// The earliest deadline of the peer's while the connection is open.
    #[inline]
    pub(crate) fn peer_deadline_ns(&self) -> u64 {
        let awaited = match self.deadlines.awaited {
            Awaited::Nothing => u64::MAX,
            _ => self.awaited_ns(),
        };
        awaited.min(self.deadlines.write_ns)
    }

    /// Whether the peer has taken none of the output for as long as it may.
    pub(crate) fn has_stalled(&self, now: Instant) -> bool {
        self.out.may_send() && self.deadlines.write_ns <= now.as_nanos()
    }

    /// Whether the peer had no output to take because the connection's turn to send has not come. If so, the time that the
    /// peer has counts from now on.
    pub(crate) fn excuses_peer(&mut self, now: Instant) -> bool {
        let is_ours = self.flags.has(Flag::AwaitsTurn);
        if is_ours {
            self.last_progress = now;
            self.deadlines.forget_look();
        }
        is_ours
    }

    /// The action with which the peer is late; `None` while the loop does not read from the peer,
    /// because then the peer is not to blame.
    pub(crate) fn is_late(&mut self, now: Instant) -> Option<Hint> {
        if self.awaited_ns() > now.as_nanos() {
            return None;
        }
        let hint = match self.deadlines.awaited {
            Awaited::Nothing => return None,
            Awaited::FirstByte | Awaited::InnerFirstByte => Hint::FirstByte,
            Awaited::Carried | Awaited::Request | Awaited::InnerRequest => Hint::Request,
        };
        if !self.wants_input() || self.flags.has(Flag::AwaitsMemory) {
            self.deadlines.at_ns = later(now, self.deadlines.request_ms.max(1000));
            if self.deadlines.awaited == Awaited::Carried {
                self.deadlines.at_ns = now.as_nanos();
            }
            return None;
        }
        self.deadlines.awaited = Awaited::Nothing;
        Some(hint)
    }

    /// A layer's connection is late when the protocol inside is, and has the limits that that one has
    /// set.
    pub(crate) fn follow_deadlines(&mut self, inner: &mut State) {
        if inner.flags.remove(Flag::OwnLimits) {
            self.deadlines.idle_ms = inner.deadlines.idle_ms;
            self.deadlines.write_ms = inner.deadlines.write_ms;
            self.deadlines.write_ns = u64::MAX;
            if inner.is_open() && !self.flags.has(Flag::Outlived) {
                self.phase_ends = inner.phase_ends;
            }
        }
        let ns = inner.awaited_ns();
        let awaited = match inner.deadlines.awaited {
            Awaited::FirstByte | Awaited::InnerFirstByte => Awaited::InnerFirstByte,
            _ if ns < u64::MAX => Awaited::InnerRequest,
            _ => Awaited::Nothing,
        };
        let own = !matches!(
            self.deadlines.awaited,
            Awaited::InnerFirstByte | Awaited::InnerRequest
        );
        if awaited == Awaited::Nothing {
            if !own {
                self.deadlines.awaited = Awaited::Nothing;
            }
            return;
        }
        self.deadlines.awaited = awaited;
        self.deadlines.at_ns = ns;
    }

    /// The connection has lived for as long as it may: it is asked to end, and a while later it is
    /// made to.
    pub(crate) fn outlive(&mut self, now: Instant, grace: Duration) -> bool {
        if self.phase != Phase::Open || self.phase_ends.is_none_or(|t| t > now) {
            return false;
        }
        if self.flags.has(Flag::Outlived) {
            self.kill(Closed::Lifetime);
            return false;
        }
        self.flags.add(Flag::Outlived);
        self.phase_ends = Some(now + grace);
        true
    }

    /// Ends a finished connection a while after its lifetime, whatever its peer still takes; it
    /// need not be asked.
    pub(crate) fn outlive_finished(&mut self, now: Instant, grace: Duration) {
        if self.deadlines.lifetime_ns > now.as_nanos() {
            return;
        }
        if self.flags.has(Flag::Outlived) {
            let reset = matches!(self.phase, Phase::Finishing(_));
            return self.end(Closed::Lifetime, reset);
        }
        self.flags.add(Flag::Outlived);
        self.deadlines.keep_lifetime(Some(now + grace));
    }
}
