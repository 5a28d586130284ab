//! How long bytes of a file have been waiting for their acknowledgement.

use std::collections::VecDeque;
use std::time::Duration;

/// Lengths that are remembered; between two of them it is the older one's time that counts.
const MARKS: usize = 32;

/// When a file was seen to have become how long.
#[derive(Debug, Default)]
pub(crate) struct Lag(VecDeque<(Duration, u64)>);

impl Lag {
    /// The file has this length.
    pub(crate) fn saw(&mut self, now: Duration, len: u64) {
        // The file was truncated.
        self.0.retain(|(_, seen)| *seen <= len);
        let room = self.0.len() < MARKS;
        match self.0.back_mut() {
            Some((_, seen)) if *seen >= len => {}
            Some((_, seen)) if !room => *seen = len,
            _ => self.0.push_back((now, len)),
        }
    }

    /// Everything before this offset is dealt with.
    pub(crate) fn dealt(&mut self, acked: u64) {
        while self.0.front().is_some_and(|(_, seen)| *seen <= acked) {
            self.0.pop_front();
        }
    }

    /// For how long the first byte that is not dealt with has been there.
    pub(crate) fn of(&self, now: Duration, acked: u64) -> Duration {
        let waiting = self.0.iter().find(|(_, seen)| *seen > acked);
        waiting.map_or(Duration::ZERO, |(since, _)| now.saturating_sub(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_first_byte_that_waits() {
        let at = Duration::from_secs;
        let mut lag = Lag::default();
        assert_eq!(lag.of(at(1), 0), Duration::ZERO);
        lag.saw(at(1), 10);
        lag.saw(at(2), 10);
        lag.saw(at(5), 30);
        assert_eq!(lag.of(at(8), 0), at(7));
        assert_eq!(lag.of(at(8), 10), at(3));
        lag.dealt(10);
        assert_eq!(lag.of(at(8), 10), at(3));
        assert_eq!(lag.of(at(8), 30), Duration::ZERO);
        // Truncated, and something new in it.
        lag.saw(at(9), 5);
        assert_eq!(lag.of(at(10), 0), at(1));
        // No more than so many are remembered, and none waits shorter than it does.
        for n in 0..100 {
            lag.saw(at(10 + n), 10 + n);
        }
        assert!(lag.0.len() <= MARKS);
        assert!(lag.of(at(110), 105) >= at(110 - 106));
    }
}
