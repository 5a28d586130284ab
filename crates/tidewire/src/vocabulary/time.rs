//! Time as protocols see it: given by the engine, never taken.
//!
//! An [`Instant`] is a point on the loop's monotonic clock. On the real engines that clock
//! is `CLOCK_MONOTONIC`, so instants of different loops compare; on the simulated network it is virtual and moves
//! only when nothing is left to do.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in monotonic time, in nanoseconds. Made only by an engine (or, in tests, by hand).
///
/// ```
/// use std::time::Duration;
/// use tidewire::Instant;
///
/// let start = Instant::from_nanos(5_000);
/// let end = start + Duration::from_micros(1);
/// assert_eq!(end - start, Duration::from_micros(1));
/// assert_eq!(start - end, Duration::ZERO);
/// ```
///
/// An `Option` of one takes no more than itself, because each connection has some.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

const _: () = assert!(size_of::<Option<Instant>>() == 8);

impl Default for Instant {
    fn default() -> Instant {
        Instant::from_nanos(0)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Instant({})", self.as_nanos())
    }
}

impl Instant {
    /// An instant from nanoseconds of the clock. The last one there could be is taken for the one
    /// before it.
    #[inline]
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Instant {
        Instant(NonZeroU64::MIN.saturating_add(ns))
    }

    /// Nanoseconds of the clock.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// The time from `earlier` to this instant, zero if `earlier` is later.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::Instant;
    ///
    /// let (early, late) = (Instant::from_nanos(1_000), Instant::from_nanos(3_500));
    /// assert_eq!(late.since(early), Duration::from_nanos(late.as_nanos() - early.as_nanos()));
    /// assert_eq!(early.since(late), Duration::ZERO);
    /// ```
    #[must_use]
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.as_nanos().saturating_sub(earlier.as_nanos()))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the end of time (584 years).
    fn add(self, d: Duration) -> Instant {
        let more = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        Instant(self.0.saturating_add(more))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}
