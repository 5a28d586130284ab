//! How long to try to reach a server, and how to space the attempts.

use std::time::Duration;

/// Connecting and connecting again.
///
/// The pause after a failed attempt doubles from `first` up to `longest`; the one taken is drawn
/// evenly from its upper half, so that clients that lost a server together do not come back together.
/// Attempts count from the moment the connection was lost, and start over after every welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistence {
    /// Attempts before giving up; 1 is no second one. Default unlimited.
    pub attempts: u32,
    /// How long to go on trying; an attempt that waits for an answer is broken off then. Default 60 s.
    pub within: Duration,
    /// The first pause; default 50 ms.
    pub first: Duration,
    /// The longest pause; default 5 s.
    pub longest: Duration,
    /// How long one attempt may take to connect; default 10 s.
    pub timeout: Duration,
    /// Whether to try again also when the very first attempt fails; default not.
    pub at_first: bool,
    /// How long a server that is connected may go on refusing messages for now (its disk is full, or
    /// a quota is used up) without taking any. Default: for ever.
    pub refused: Option<Duration>,
    /// How often the producer follows a server that names another server. After so many moves the producer
    /// pauses, as after a failed attempt, and begins with the first server again. With 0 the producer never
    /// follows. Default 4.
    pub moves: u32,
}

impl Default for Persistence {
    fn default() -> Persistence {
        Persistence {
            attempts: u32::MAX,
            within: Duration::from_secs(60),
            first: Duration::from_millis(50),
            longest: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            at_first: false,
            refused: None,
            moves: 4,
        }
    }
}

impl Persistence {
    /// One attempt, and no other when the connection breaks.
    #[must_use]
    pub fn once() -> Persistence {
        Persistence {
            attempts: 1,
            ..Persistence::default()
        }
    }
}

/// An attempt that is begun is given so long, however little time is left.
const LEAST: Duration = Duration::from_millis(250);
/// The longest time-out of an attempt, in effect none.
const MOST: Duration = Duration::from_secs(86_400);

impl Persistence {
    /// How long an attempt may take that begins `elapsed` after the first failure; `None` if only the attempt's own time-outs
    /// bound it, as for a single attempt.
    pub(super) fn left(&self, elapsed: Duration) -> Option<Duration> {
        let left = self.within.saturating_sub(elapsed).clamp(LEAST, MOST);
        (self.attempts > 1).then_some(Duration::from_millis(
            (left.as_micros() as u64).div_ceil(1000),
        ))
    }
}

/// Attempts since the last success.
#[derive(Debug)]
pub(super) struct Backoff {
    settings: Persistence,
    failed: u32,
    /// State of a generator of pauses (SplitMix64); anything that differs between clients will do.
    random: u64,
}

impl Backoff {
    pub(super) fn new(settings: Persistence, seed: u64) -> Backoff {
        Backoff {
            settings,
            failed: 0,
            random: seed,
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.failed = 0;
    }

    /// Attempts that failed.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    /// Counts a failed attempt, or a lost connection, `elapsed` after the first failure; returns how long to pause, or
    /// `None` to give up. If the server asks for a longer pause, the pause is as long, but never longer than the
    /// remaining time.
    pub(super) fn after_failure(&mut self, elapsed: Duration, asked: Duration) -> Option<Duration> {
        self.failed += 1;
        if self.failed >= self.settings.attempts || elapsed >= self.settings.within {
            return None;
        }
        let doubled = self
            .settings
            .first
            .saturating_mul(1 << (self.failed - 1).min(20));
        let whole = doubled.min(self.settings.longest).as_nanos() as u64;
        let pause = whole / 2 + self.draw() % (whole / 2 + 1);
        let left = self.settings.within - elapsed;
        Some(Duration::from_nanos(pause).max(asked).min(left))
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_what_is_left_of_the_time_for_all_of_them() {
        let at = Duration::from_secs;
        let some = Persistence {
            within: at(10),
            ..Persistence::default()
        };
        assert_eq!(some.left(at(0)), Some(at(10)));
        assert_eq!(some.left(at(7)), Some(at(3)));
        assert_eq!(some.left(at(10)), Some(LEAST));
        let for_ever = Persistence {
            within: Duration::MAX / 2,
            ..some
        };
        assert_eq!(for_ever.left(at(7)), Some(MOST));
        assert_eq!(Persistence::once().left(at(0)), None);
    }

    #[test]
    fn pauses_grow_to_the_longest_and_end_in_time() {
        let settings = Persistence {
            attempts: 100,
            ..Persistence::default()
        };
        let mut backoff = Backoff::new(settings, 1);
        for whole in [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let pause = backoff
                .after_failure(Duration::ZERO, Duration::ZERO)
                .unwrap();
            let whole = Duration::from_millis(whole);
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?}");
        }
        let none = Duration::ZERO;
        assert_eq!(backoff.after_failure(settings.within, none), None);
        let short = backoff.after_failure(settings.within - Duration::from_millis(1), none);
        assert_eq!(short, Some(Duration::from_millis(1)));
        // The server says "later", which is beyond the time there is.
        let later = Duration::from_secs(600);
        let elapsed = Duration::from_secs(10);
        let pause = backoff.after_failure(elapsed, later);
        assert_eq!(pause, Some(settings.within - elapsed));
    }

    #[test]
    fn attempts_are_counted_since_the_last_success() {
        let settings = Persistence {
            attempts: 2,
            ..Persistence::default()
        };
        let mut backoff = Backoff::new(settings, 1);
        assert!(
            backoff
                .after_failure(Duration::ZERO, Duration::ZERO)
                .is_some()
        );
        backoff.succeeded();
        assert!(
            backoff
                .after_failure(Duration::ZERO, Duration::ZERO)
                .is_some()
        );
        assert!(
            backoff
                .after_failure(Duration::ZERO, Duration::ZERO)
                .is_none()
        );
        assert_eq!(backoff.failed(), 2);
    }
}
