//! What a connection's peer owes by when, as far as its record knows: the first byte, the rest of a
//! request, the taking of output, the end. All of them share the one entry of the connection in the
//! timer wheel.

use std::time::Duration;

use crate::build::limits::{Limits, REQUEST_RATE};
use crate::reactor::facts::{Appetite, Flag, Hint, Phase};
use crate::reactor::state::State;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::time::Instant;

/// What the peer owes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Nothing,
    /// A first byte, by this time.
    FirstByte,
    /// The rest of what is carried, which began at this time.
    Carried,
    /// The rest of a request, by this time: the protocol said that it began.
    Request,
    /// As `FirstByte` and `Request`, of the protocol inside a layer.
    InnerFirstByte,
    InnerRequest,
}

/// The deadlines of a connection, beside the protocol's timer. 0 is no limit.
#[derive(Debug)]
pub(crate) struct Deadlines {
    pub(crate) awaited: Awaited,
    /// Time without progress.
    idle_ms: u32,
    request_ms: u32,
    write_ms: u32,
    /// See [`Awaited`]; nanoseconds.
    at_ns: u64,
    /// When output that nobody takes has waited for too long; `u64::MAX` if none waits.
    write_ns: u64,
}

impl Deadlines {
    pub(crate) fn new(limits: &Limits) -> Deadlines {
        Deadlines {
            awaited: Awaited::Nothing,
            idle_ms: millis(limits.idle),
            request_ms: millis(limits.request),
            write_ms: millis(limits.write),
            at_ns: u64::MAX,
            write_ns: u64::MAX,
        }
    }

    /// Output has left.
    #[inline]
    pub(crate) fn took(&mut self) {
        self.write_ns = u64::MAX;
    }

    #[inline]
    pub(crate) fn idle_ns(&self) -> u64 {
        u64::from(self.idle_ms) * 1_000_000
    }

    pub(crate) fn set_idle(&mut self, limit: Option<Duration>) {
        self.idle_ms = millis(limit);
    }

    pub(crate) fn set_request(&mut self, limit: Option<Duration>) {
        self.request_ms = millis(limit);
        if self.request_ms == 0 && self.awaited != Awaited::FirstByte {
            self.awaited = Awaited::Nothing;
        }
    }

    pub(crate) fn set_write(&mut self, limit: Option<Duration>) {
        self.write_ms = millis(limit);
        self.write_ns = u64::MAX;
    }
}

/// At least one, at most 49 days.
fn millis(limit: Option<Duration>) -> u32 {
    limit.map_or(0, |d| {
        u32::try_from(d.as_millis()).unwrap_or(u32::MAX).max(1)
    })
}

fn later(now: Instant, ms: u32) -> u64 {
    now.as_nanos().saturating_add(u64::from(ms) * 1_000_000)
}

impl State {
    /// The peer shall say something by then.
    pub(crate) fn await_first_byte(&mut self, now: Instant, limit: Option<Duration>) {
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
        self.deadlines.awaited = Awaited::Nothing;
    }

    /// `received` has returned. What it left waits for the rest: that is a request that has begun,
    /// unless the protocol says itself when they do.
    #[inline]
    pub(crate) fn note_request(&mut self, now: Instant, progress: bool) {
        if self.carry.is_empty() && self.deadlines.awaited == Awaited::Nothing {
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
    }

    /// Whether output waits that nobody takes, after the kernel was offered it.
    #[inline]
    pub(crate) fn watch_output(&mut self, now: Instant) {
        if !self.out.may_send() {
            self.deadlines.write_ns = u64::MAX;
        } else if self.deadlines.write_ns == u64::MAX && self.deadlines.write_ms > 0 {
            self.deadlines.write_ns = later(now, self.deadlines.write_ms);
        }
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

    /// What the peer is late with, if it is to blame: while nothing is read from it, it is not.
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
            if !self.flags.has(Flag::Outlived) {
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
}
