//! Latencies of a run, in nanoseconds, in a histogram of fixed size.
//!
//! The idea: a run records millions of latencies, so they are counted in buckets that
//! are right to three digits, and threads merge their buckets at the end. Percentiles of
//! different runs are never averaged; a run's percentiles are that run's one sample.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency told apart: 60 seconds. Longer ones are counted as this long.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Counts latencies from 1 ns to [`LATENCY_NS_MAX`], right to three digits. About 220 KiB
/// whatever the number of latencies, so one a thread, not one a connection.
#[derive(Debug, Clone)]
pub struct Latencies {
    buckets: Histogram<u64>,
    saturated: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

impl Latencies {
    /// An empty histogram.
    pub fn new() -> Self {
        Self {
            buckets: Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .expect("constant bounds that hdrhistogram accepts"),
            saturated: 0,
        }
    }

    /// Counts one latency. 0 counts as 1 ns; more than [`LATENCY_NS_MAX`] counts as that
    /// and shows in [`LatencySummary::saturated`].
    pub fn record(&mut self, latency_ns: u64) {
        self.record_many(latency_ns, 1);
    }

    /// Counts `count` equal latencies, such as those of the messages that one cumulative
    /// acknowledgement answers.
    pub fn record_many(&mut self, latency_ns: u64, count: u64) {
        if latency_ns > LATENCY_NS_MAX {
            self.saturated = self.saturated.saturating_add(count);
        }
        self.buckets
            .saturating_record_n(latency_ns.clamp(1, LATENCY_NS_MAX), count);
    }

    /// Adds everything that `other` has counted.
    pub fn merge(&mut self, other: &Self) {
        self.buckets
            .add(&other.buckets)
            .expect("both histograms have the same constant bounds");
        self.saturated = self.saturated.saturating_add(other.saturated);
    }

    /// Number of latencies counted.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Forgets everything, keeping the memory; for the end of a warm-up.
    pub fn clear(&mut self) {
        self.buckets.reset();
        self.saturated = 0;
    }

    /// The latency, in ns, that `quantile` (0 to 1) of the requests did not exceed; 0 if
    /// nothing was counted.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.buckets.value_at_quantile(quantile).min(LATENCY_NS_MAX)
    }

    /// The figures for a report, or `None` if nothing was counted.
    pub fn summary(&self) -> Option<LatencySummary> {
        if self.buckets.is_empty() {
            return None;
        }
        Some(LatencySummary {
            count: self.count(),
            mean_ns: self.buckets.mean(),
            min_ns: self.buckets.min(),
            p50_ns: self.quantile_ns(0.50),
            p90_ns: self.quantile_ns(0.90),
            p99_ns: self.quantile_ns(0.99),
            p99_9_ns: self.quantile_ns(0.999),
            max_ns: self.buckets.max().min(LATENCY_NS_MAX),
            saturated: self.saturated,
        })
    }
}

/// Percentiles of one run, in nanoseconds, right to three digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Number of latencies.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// Nine in ten were at most this long.
    pub p90_ns: u64,
    /// 99 in a hundred were at most this long.
    pub p99_ns: u64,
    /// 999 in a thousand were at most this long.
    pub p99_9_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// How many were longer than [`LATENCY_NS_MAX`] and count as that.
    pub saturated: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_counted_gives_no_summary() {
        assert_eq!(Latencies::new().summary(), None);
        assert_eq!(Latencies::new().quantile_ns(0.5), 0);
    }

    #[test]
    fn percentiles_of_a_thousand_different_latencies() {
        let mut latencies = Latencies::new();
        for us in 1..=1_000u64 {
            latencies.record(us * 1_000);
        }
        let summary = latencies.summary().unwrap();
        let near = |found: u64, wanted: f64| (found as f64 / wanted - 1.0).abs() < 0.001;
        assert_eq!(summary.count, 1_000);
        assert!(near(summary.min_ns, 1_000.0), "{summary:?}");
        assert!(near(summary.p50_ns, 500_000.0), "{summary:?}");
        assert!(near(summary.p90_ns, 900_000.0), "{summary:?}");
        assert!(near(summary.p99_ns, 990_000.0), "{summary:?}");
        assert!(near(summary.p99_9_ns, 999_000.0), "{summary:?}");
        assert!(near(summary.max_ns, 1_000_000.0), "{summary:?}");
        assert_eq!(summary.saturated, 0);
    }

    #[test]
    fn both_ends_saturate_and_the_upper_end_is_counted() {
        let mut latencies = Latencies::new();
        latencies.record(0);
        latencies.record(LATENCY_NS_MAX);
        latencies.record_many(u64::MAX, 3);
        let summary = latencies.summary().unwrap();
        assert_eq!(summary.count, 5);
        assert_eq!(summary.min_ns, 1);
        assert_eq!(summary.max_ns, LATENCY_NS_MAX);
        assert_eq!(summary.p50_ns, LATENCY_NS_MAX);
        assert_eq!(summary.saturated, 3);
    }

    #[test]
    fn clearing_forgets_everything() {
        let mut latencies = Latencies::new();
        latencies.record(u64::MAX);
        latencies.clear();
        assert_eq!(latencies.summary(), None);
        latencies.record(5);
        assert_eq!(latencies.summary().unwrap().saturated, 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn merging_equals_counting_in_one(
            left in prop::collection::vec(0..u64::MAX, 0..50),
            right in prop::collection::vec(0..200_000_000u64, 1..50),
        ) {
            let (mut one, mut other, mut whole) =
                (Latencies::new(), Latencies::new(), Latencies::new());
            for ns in &left {
                one.record(*ns);
                whole.record(*ns);
            }
            for ns in &right {
                other.record(*ns);
                whole.record(*ns);
            }
            one.merge(&other);
            prop_assert_eq!(one.summary(), whole.summary());
        }

        #[test]
        fn quantiles_are_right_to_three_digits(
            mut values in prop::collection::vec(1..LATENCY_NS_MAX, 1..100),
        ) {
            let mut latencies = Latencies::new();
            for ns in &values {
                latencies.record(*ns);
            }
            values.sort_unstable();
            for (quantile, index) in [(0.0, 0), (0.5, values.len().div_ceil(2) - 1), (1.0, values.len() - 1)] {
                let found = latencies.quantile_ns(quantile) as f64;
                prop_assert!((found / values[index] as f64 - 1.0).abs() < 0.001);
            }
        }
    }
}
