//! The time of blocking clients, which have no engine to be given it by.

use std::time::Duration;

use tidewire::Instant;

/// Counts from the moment at which the clock was made, so that instants of one clock compare.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(std::time::Instant);

#[allow(clippy::disallowed_methods, reason = "blocking clients run on no loop")]
impl Clock {
    pub(super) fn start() -> Clock {
        Clock(std::time::Instant::now())
    }

    pub(super) fn now(self) -> Instant {
        Instant::default() + self.0.elapsed()
    }

    /// Differs from one client to the next.
    pub(super) fn seed() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let nanos = since.map_or(0, |since| since.as_nanos() as u64);
        nanos ^ (u64::from(std::process::id()) << 40)
    }
}

/// `at` as a time to wait from `now` on, rounded up to whole milliseconds as `poll` takes them.
pub(super) fn until(at: Instant, now: Instant) -> Duration {
    let nanos = at.since(now).as_nanos() as u64;
    Duration::from_millis(nanos.div_ceil(1_000_000))
}
