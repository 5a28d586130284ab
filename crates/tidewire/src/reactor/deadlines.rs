//! What a connection's peer owes by when, as far as its record knows: the first byte, the rest of a
//! request, the taking of output, the end. All of them share the one entry of the connection in the
//! timer wheel.

use std::time::Duration;

use crate::build::limits::{Limits, READING_RATE, REQUEST_RATE};
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
    /// What the kernel had that the peer had not taken, when that was last looked at.
    untaken: Option<u32>,
    /// When the lifetime of a connection ends that has finished; `u64::MAX` if it never does.
    lifetime_ns: u64,
}

/// A part of a limit on output, after which the kernel is first asked how much of it the peer has not
/// taken. The limit counts from there.
pub(crate) const FIRST_LOOK: u32 = 4;

impl Deadlines {
    pub(crate) fn new(limits: &Limits) -> Deadlines {
        Deadlines {
            awaited: Awaited::Nothing,
            idle_ms: millis(limits.idle),
            request_ms: millis(limits.request),
            write_ms: millis(limits.write),
            at_ns: u64::MAX,
            write_ns: u64::MAX,
            untaken: None,
            lifetime_ns: u64::MAX,
        }
    }

    /// Whether the peer has taken enough since the last look, a limit ago, now that it has this much
    /// before it, or that cannot be seen; `None` if this is the first. Without a least rate, one that
    /// takes a byte each time would hold a connection for as many limits as the kernel's buffer has bytes.
    pub(crate) fn look(&mut self, untaken: Option<usize>, limit: Duration) -> Option<bool> {
        let untaken = untaken.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let before = self.untaken.replace(untaken.unwrap_or(0))?;
        let taken = before.saturating_sub(untaken.unwrap_or(before));
        let due = limit.as_millis() * READING_RATE / 1000;
        // More than there was it could not take.
        Some(taken > 0 && (taken == before || u128::from(taken) >= due))
    }

    pub(crate) fn has_looked(&self) -> bool {
        self.untaken.is_some()
    }

    /// Output has left since, or is another.
    pub(crate) fn forget_look(&mut self) {
        self.untaken = None;
    }

    /// The connection finishes: its lifetime goes on beside the limit on that.
    pub(crate) fn keep_lifetime(&mut self, ends: Option<Instant>) {
        self.lifetime_ns = ends.map_or(u64::MAX, Instant::as_nanos);
    }

    pub(crate) fn lifetime_ns(&self) -> u64 {
        self.lifetime_ns
    }

    /// From now on the peer may take nothing for as long as it may.
    pub(crate) fn watch_again(&mut self, now: Instant) {
        // Without a limit it is the one on idle connections that counts.
        let ms = if self.write_ms == 0 {
            u32::MAX
        } else {
            self.write_ms
        };
        self.write_ns = later(now, ms);
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

    pub(crate) fn write_limit(&self) -> Duration {
        Duration::from_millis(self.write_ms.into())
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
        } else if self.deadlines.write_ns == u64::MAX {
            self.begin_to_watch(now);
        }
    }

    /// The kernel takes no more. That alone says little of the peer: the kernel's buffer has megabytes, and
    /// a third of it must be free before it takes more.
    #[inline(never)]
    fn begin_to_watch(&mut self, now: Instant) {
        let limits = [self.deadlines.write_ms, self.deadlines.idle_ms];
        if let Some(least) = limits.into_iter().filter(|ms| *ms > 0).min() {
            self.deadlines.forget_look();
            self.deadlines.write_ns = later(now, least.div_ceil(FIRST_LOOK));
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

    /// The same of a connection that has finished, which need not be asked: whatever its peer still takes, it
    /// is made to end a while after its lifetime.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What the looks show, one after the other, at what the kernel has each time.
    fn looks<const N: usize>(untaken: [Option<usize>; N]) -> [Option<bool>; N] {
        let mut deadlines = Deadlines::new(&Limits::default());
        untaken.map(|n| deadlines.look(n, 5 * SECOND))
    }

    #[test]
    fn a_peer_that_takes_next_to_nothing_is_cut() {
        let least = 5 << 10;
        let all = 4 << 20;
        let after = |taken| looks([Some(all), Some(all - taken)])[1];
        assert_eq!(after(0), Some(false));
        assert_eq!(after(1), Some(false), "a byte each time");
        assert_eq!(after(least - 1), Some(false));
        assert_eq!(after(least), Some(true));
        assert_eq!(
            looks([Some(7), Some(0)]),
            [None, Some(true)],
            "all there was"
        );
    }

    #[test]
    fn a_look_that_fails_shows_nothing_taken() {
        assert_eq!(looks([Some(1 << 20), None]), [None, Some(false)]);
        assert_eq!(looks([None, None]), [None, Some(false)]);
        assert_eq!(looks([None, Some(1 << 20)]), [None, Some(false)]);
    }
}
