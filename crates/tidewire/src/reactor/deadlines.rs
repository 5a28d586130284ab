//! The deadlines of one connection, as numbers: the first byte, the rest of a request, taking output,
//! the end. All deadlines share the connection's one entry in the timer wheel.

use std::time::Duration;

use crate::build::limits::{Limits, READING_RATE};
use crate::vocabulary::time::Instant;

/// The next action that the peer owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    Nothing,
    /// A first byte, by this time.
    FirstByte,
    /// The rest of the carried input, which began at this time.
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
    pub(super) idle_ms: u32,
    pub(super) request_ms: u32,
    pub(super) write_ms: u32,
    /// See [`Awaited`]; nanoseconds.
    pub(super) at_ns: u64,
    /// When waiting output has waited for too long; `u64::MAX` if none waits.
    pub(super) write_ns: u64,
    /// Bytes that the kernel had and the peer had not taken, at the last look.
    untaken: Option<u32>,
    /// When the lifetime of a finished connection ends; `u64::MAX` if it has no limit.
    pub(super) lifetime_ns: u64,
}

/// A part of a limit on output, after which the kernel is first asked how much of it the peer has not
/// taken. The limit counts from there.
pub(crate) const FIRST_LOOK: u32 = 4;

/// Linger limit of a connection between two requests, at a stop without a successor: a round trip to far away, so that a
/// request on its way is seen.
pub(crate) const IDLE_LINGER: Duration = Duration::from_millis(250);

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

    /// Whether the peer has taken enough output since the last look, one `limit` ago. `untaken` is what
    /// the peer has not taken yet, or `None` if that cannot be seen. Returns `None` at the first look.
    /// Without a minimum rate, a peer that takes one byte in each limit would hold a connection for as
    /// many limits as the kernel's buffer has bytes.
    pub(crate) fn look(&mut self, untaken: Option<usize>, limit: Duration) -> Option<bool> {
        let untaken = untaken.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let before = self.untaken.replace(untaken.unwrap_or(0))?;
        let taken = before.saturating_sub(untaken.unwrap_or(before));
        let due = limit.as_millis() * READING_RATE / 1000;
        // The peer cannot take more than there was.
        Some(taken > 0 && (taken == before || u128::from(taken) >= due))
    }

    pub(crate) fn has_looked(&self) -> bool {
        self.untaken.is_some()
    }

    /// Output has left since, or is another.
    pub(crate) fn forget_look(&mut self) {
        self.untaken = None;
    }

    /// The connection finishes: its lifetime goes on beside the limit on finishing.
    pub(crate) fn keep_lifetime(&mut self, ends: Option<Instant>) {
        self.lifetime_ns = ends.map_or(u64::MAX, Instant::as_nanos);
    }

    pub(crate) fn lifetime_ns(&self) -> u64 {
        self.lifetime_ns
    }

    /// From now on the peer may take nothing for as long as it may.
    pub(crate) fn watch_again(&mut self, now: Instant) {
        // Without a limit on writing, the limit on idle connections counts.
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
pub(super) fn millis(limit: Option<Duration>) -> u32 {
    limit.map_or(0, |d| {
        u32::try_from(d.as_millis()).unwrap_or(u32::MAX).max(1)
    })
}

pub(super) fn later(now: Instant, ms: u32) -> u64 {
    now.as_nanos().saturating_add(u64::from(ms) * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The results of successive looks, given the bytes in the kernel's buffer at each look.
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
