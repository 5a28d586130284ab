//! The times at which the messages of one connection are to be sent.
//!
//! The idea: times are counted from the begin of the load and never from the last send, so neither a
//! late timer nor a slow reply makes the rate any lower.

use std::time::Duration;

use tidewire::Instant;

use super::arrivals::{Rate, Spacing};
use crate::random::SplitMix64;

/// A ramp begins with this share of the rate.
const RAMP_FROM: f64 = 0.1;

/// One connection's times.
pub(super) struct Pace {
    /// The first time that was asked for.
    start: Option<Instant>,
    /// The next time, counted from the start.
    next_ns: f64,
    /// Mean time from one to the next at the full rate.
    gap_ns: f64,
    ramp_ns: f64,
    /// Draws the gaps, unless all gaps are equal.
    random: Option<SplitMix64>,
}

impl Pace {
    /// `rate` is that of all connections, of which this is number `connection`.
    pub(super) fn new(rate: &Rate, connection: u64, connections: usize) -> Pace {
        let gap_ns = connections as f64 / rate.per_second * 1e9;
        let mut pace = Pace {
            start: None,
            next_ns: 0.0,
            gap_ns,
            ramp_ns: rate.ramp.as_nanos() as f64,
            random: match rate.spacing {
                Spacing::Constant => None,
                Spacing::Poisson => {
                    let seed = rate.seed.wrapping_add(connection.wrapping_mul(0x9e37_79b9));
                    Some(SplitMix64::new(seed))
                }
            },
        };
        match pace.random {
            // Connections take turns.
            None => {
                pace.next_ns = pace.gap() * connection as f64 / connections as f64;
            }
            Some(_) => pace.next_ns = pace.gap(),
        }
        pace
    }

    /// The gap from the present time to the next one.
    fn gap(&mut self) -> f64 {
        let even = if self.next_ns < self.ramp_ns {
            let share = RAMP_FROM + (1.0 - RAMP_FROM) * self.next_ns / self.ramp_ns;
            self.gap_ns / share
        } else {
            self.gap_ns
        };
        match &mut self.random {
            None => even,
            // The argument of the logarithm is above 0 and at most 1.
            Some(random) => -(1.0 - random.uniform()).ln() * even,
        }
    }

    /// The next time. The first call, at `now`, begins the schedule.
    pub(super) fn next(&mut self, now: Instant) -> Instant {
        let start = *self.start.get_or_insert(now);
        start + Duration::from_nanos(self.next_ns as u64)
    }

    /// Takes the next time off the plan, if the time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        let next = self.next(now);
        (next <= now).then(|| {
            self.next_ns += self.gap();
            next
        })
    }

    /// Takes off at most so many of the times that have come by `now`, as if they followed each other evenly; how many.
    pub(super) fn skip_due(&mut self, most: u64, now: Instant) -> u64 {
        let until_ns = now.since(self.start.unwrap_or(now)).as_nanos() as f64;
        let due = ((until_ns - self.next_ns) / self.gap_ns).max(0.0) as u64;
        let skipped = due.min(most);
        self.next_ns += skipped as f64 * self.gap_ns;
        skipped
    }

    pub(super) fn has_begun(&self) -> bool {
        self.start.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times within a second of a connection of several.
    fn times(rate: &Rate, connection: u64, connections: usize) -> Vec<f64> {
        let mut pace = Pace::new(rate, connection, connections);
        let start = Instant::from_nanos(77);
        let end = start + Duration::from_secs(1);
        assert_eq!(pace.next(start), pace.next(end), "only the first begins");
        std::iter::from_fn(|| pace.take_due(end))
            .map(|at| at.since(start).as_nanos() as f64)
            .collect()
    }

    #[test]
    fn rates_that_do_not_divide_a_second_are_kept() {
        for per_second in [3_000_000.0, 700_001.0, 7.0] {
            let found = times(&Rate::constant(per_second), 0, 1).len() as f64;
            assert!((found - per_second).abs() <= 1.0, "{found} of {per_second}");
        }
    }

    #[test]
    fn only_due_times_are_skipped() {
        let mut pace = Pace::new(&Rate::constant(1e12), 0, 1);
        let start = Instant::from_nanos(5);
        let end = start + Duration::from_millis(1);
        pace.next(start);
        let mut taken = 0;
        while pace.take_due(end).is_some() {
            taken += 1 + pace.skip_due(100_000_000, end);
        }
        assert!((taken as f64 / 1e9 - 1.0).abs() < 1e-6, "{taken}");
        assert_eq!(pace.skip_due(7, end), 0);
    }

    #[test]
    fn connections_take_turns() {
        let rate = Rate::constant(1000.0);
        let all: Vec<Vec<f64>> = (0..4).map(|n| times(&rate, n, 4)).collect();
        for n in 0..3 {
            assert!((all[n + 1][0] - all[n][0] - 1e6).abs() < 2.0);
            assert!((all[n][1] - all[n][0] - 4e6).abs() < 2.0);
        }
    }

    #[test]
    fn gaps_of_independent_arrivals_are_exponential() {
        let rate = Rate {
            spacing: Spacing::Poisson,
            ..Rate::constant(200_000.0)
        };
        let times = times(&rate, 3, 4);
        let mut gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        gaps.sort_by(f64::total_cmp);
        // 50,000 of them: the largest distance between the two distributions (Kolmogorov and
        // Smirnov) is below 1.63 / sqrt(n) in 99 of 100 cases.
        let n = gaps.len() as f64;
        assert!((n - 50_000.0).abs() < 5.0 * 50_000f64.sqrt(), "{n}");
        let distance = gaps.iter().enumerate().map(|(i, gap)| {
            let expected = 1.0 - (-gap / 20_000.0).exp();
            (expected - i as f64 / n).abs()
        });
        let distance = distance.fold(0.0, f64::max);
        assert!(distance < 1.63 / n.sqrt() + 1e-4, "{distance}");
    }

    #[test]
    fn independent_arrivals_keep_the_rate_in_the_long_run() {
        let rate = Rate {
            spacing: Spacing::Poisson,
            ..Rate::constant(10_000_000.0)
        };
        // The standard deviation of so many is 0.03 %.
        let found = times(&rate, 0, 1).len() as f64;
        assert!((found / 1e7 - 1.0).abs() < 0.001, "{found}");
    }

    #[test]
    fn a_ramp_sends_what_its_area_says() {
        let rate = Rate {
            ramp: Duration::from_millis(500),
            ..Rate::constant(10_000.0)
        };
        // Half a second at 55 % of the rate in the mean, then half a second of all of it.
        let found = times(&rate, 0, 1).len() as f64;
        assert!((found / 7_750.0 - 1.0).abs() < 0.001, "{found}");
    }
}
