//! Log lines that a flood must not turn into a flood of their own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::vocabulary::time::Instant;

/// Lets one log line through in each period and counts the others, on any number of threads.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Instant, Throttle};
///
/// let throttle = Throttle::new(Duration::from_secs(60));
/// let at = |s: u64| Instant::from_nanos(s * 1_000_000_000);
/// assert_eq!(throttle.pass(at(1)), Some(0));
/// assert_eq!(throttle.pass(at(2)), None);
/// // One was held back since the last that passed.
/// assert_eq!(throttle.pass(at(61)), Some(1));
/// ```
#[derive(Debug)]
pub struct Throttle {
    period: Duration,
    /// Nanoseconds of the clock from which on the next may pass.
    next: AtomicU64,
    held_back: AtomicU64,
}

impl Throttle {
    /// A throttle that lets at most one event pass in each `period`.
    #[must_use]
    pub const fn new(period: Duration) -> Throttle {
        Throttle {
            period,
            next: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written `now`; how many were held back since the last one.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let next = self.next.load(Relaxed);
        let after = (now + self.period).as_nanos();
        let ours = now.as_nanos() >= next
            && self
                .next
                .compare_exchange(next, after, Relaxed, Relaxed)
                .is_ok();
        if ours {
            return Some(self.held_back.swap(0, Relaxed));
        }
        self.held_back.fetch_add(1, Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_on_many_threads_one_passes_and_none_is_forgotten() {
        let throttle = Throttle::new(Duration::from_secs(1));
        let first = Instant::from_nanos(5);
        let passed: usize = std::thread::scope(|scope| {
            let flood = || (0..1000).filter(|_| throttle.pass(first).is_some()).count();
            let all: Vec<_> = (0..4).map(|_| scope.spawn(flood)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum()
        });
        assert_eq!(passed, 1);
        assert_eq!(throttle.pass(first + Duration::from_secs(1)), Some(3999));
    }
}
