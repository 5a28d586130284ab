//! How long requests that are pipelined may keep the loop to themselves.

use std::time::Duration;

use tidewire::Instant;

/// Time for the answers of one turn; the first answer, and answers after the last look
/// at the clock, come on top.
const TURN: Duration = Duration::from_millis(1);
/// Requests between two looks at the clock, at most.
const UNWATCHED: u32 = 8;

/// The time of the loop that requests of one batch have used. Reading the clock costs as much as a tenth of
/// a small request, so the clock is read less often while requests are quick.
#[derive(Debug, Default)]
pub(crate) struct Share {
    began: Option<Instant>,
    answered: u32,
    look_at: u32,
}

impl Share {
    /// A request was answered, and more are there: whether it is other connections' turn.
    #[inline]
    pub(crate) fn is_over(&mut self, clock: impl FnOnce() -> Instant) -> bool {
        self.answered += 1;
        if self.answered < self.look_at {
            return false;
        }
        let now = clock();
        let spent = now - *self.began.get_or_insert(now);
        // Answers that follow without a look at the clock take an eighth of the time, if they
        // cost as much as the ones before.
        let quick = spent * UNWATCHED <= TURN / 8 * self.answered;
        self.look_at = self.answered
            + if quick {
                self.answered.min(UNWATCHED)
            } else {
                1
            };
        spent >= TURN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many requests of `cost` each it is over, and how often the clock was looked at.
    fn run(cost: Duration) -> (u32, u32) {
        let mut share = Share::default();
        let (mut now, mut looks) = (Instant::from_nanos(0), 0);
        for answered in 1..100_000 {
            now = now + cost;
            let clock = || {
                looks += 1;
                now
            };
            if share.is_over(clock) {
                return (answered, looks);
            }
        }
        panic!("it is never over");
    }

    #[test]
    fn it_is_over_when_its_time_is() {
        assert_eq!(run(Duration::from_millis(5)), (2, 2));
        assert_eq!(run(Duration::from_micros(500)), (3, 3));
        let (answered, looks) = run(Duration::from_micros(1));
        assert!((1001..=1001 + UNWATCHED).contains(&answered), "{answered}");
        assert!(looks < 200, "{looks}");
        let (answered, looks) = run(Duration::from_nanos(100));
        assert!((10_001..=10_001 + UNWATCHED).contains(&answered));
        assert!(looks < 1500, "{looks}");
    }
}
