//! Adaptive busy-polling: look again for a while before going to sleep, as long as that pays.
//!
//! Waking an idle processor costs more than handling a small message. A loop that expects its next
//! event soon may poll instead. The loop learns whether that pays: a poll that found nothing halves
//! the time of the next poll, down to nothing; a sleep that was shorter than the setting, which a
//! poll would have avoided, restores it.

use std::time::Duration;

use crate::kernel::clock::Clock;
use crate::vocabulary::time::Instant;

pub(crate) struct BusyPoll {
    most: Duration,
    now: Duration,
}

impl BusyPoll {
    pub(crate) fn new(most: Duration) -> BusyPoll {
        BusyPoll { most, now: most }
    }

    /// Calls `look` until it finds something or the time is up; whether it found something.
    pub(crate) fn poll(&mut self, clock: &Clock, mut look: impl FnMut() -> bool) -> bool {
        if self.now.is_zero() {
            return false;
        }
        let until = clock.monotonic() + self.now;
        loop {
            if look() {
                self.now = self.most;
                return true;
            }
            if clock.monotonic() >= until {
                self.now = if self.now < self.most / 8 {
                    Duration::ZERO
                } else {
                    self.now / 2
                };
                return false;
            }
            std::hint::spin_loop();
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.most.is_zero()
    }

    /// The loop slept from `from` to `to`.
    pub(crate) fn slept(&mut self, from: Instant, to: Instant) {
        if to.since(from) < self.most {
            self.now = self.most;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn backs_off_to_nothing_and_comes_back() {
        let t = Rc::new(Cell::new(0u64));
        let clock = Clock::Virtual(t.clone());
        let mut busy = BusyPoll::new(Duration::from_micros(80));
        let mut looks = Vec::new();
        for _ in 0..8 {
            let mut n = 0;
            assert!(!busy.poll(&clock, || {
                n += 1;
                t.set(t.get() + 1_000);
                false
            }));
            looks.push(n);
        }
        assert_eq!(looks, [80, 40, 20, 10, 5, 0, 0, 0]);
        busy.slept(Instant::from_nanos(0), Instant::from_nanos(79_000));
        assert!(busy.poll(&clock, || true));
        busy.now = Duration::ZERO;
        busy.slept(Instant::from_nanos(0), Instant::from_nanos(80_000));
        assert!(
            !busy.poll(&clock, || true),
            "a long sleep would not have been spared"
        );
    }
}
