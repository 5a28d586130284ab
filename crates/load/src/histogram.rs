//! Latencies of a run, in nanoseconds, in a histogram of fixed size.
//!
//! The idea: a run records millions of latencies, so they are counted in buckets that
//! are right to three digits, and threads merge their buckets at the end. Percentiles of
//! different runs are never averaged; a run's percentiles are that run's one sample.

use std::fmt::Write as _;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency told apart: a day. Longer ones are counted as this long.
pub const LATENCY_NS_MAX: u64 = 86_400_000_000_000;

/// Counts latencies from 1 ns to [`LATENCY_NS_MAX`], right to three digits. About 300 KiB
/// whatever the number of latencies, so one a thread, not one a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Latencies {
    buckets: Histogram<u64>,
    saturated: u64,
}

/// How a histogram goes from one process to another: every bucket that is not empty, so that merging there is merging
/// here.
#[derive(Serialize, Deserialize)]
struct Written {
    saturated: u64,
    /// A latency of each bucket, in ns, and how many there are.
    buckets: Vec<(u64, u64)>,
}

impl From<Latencies> for Written {
    fn from(of: Latencies) -> Written {
        let all = of.buckets.iter_recorded();
        let buckets = all.map(|at| (at.value_iterated_to(), at.count_at_value()));
        Written {
            saturated: of.saturated,
            buckets: buckets.collect(),
        }
    }
}

impl From<Written> for Latencies {
    fn from(written: Written) -> Latencies {
        let mut all = Latencies::new();
        for (ns, count) in written.buckets {
            // The last bucket reaches beyond the longest latency that is told apart.
            all.record_many(ns.min(LATENCY_NS_MAX), count);
        }
        all.saturated = written.saturated;
        all
    }
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

    /// Counts `count` equal latencies, such as the latencies of messages that one cumulative
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

/// A summit of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Mode {
    /// The place of the mode, in ns.
    pub ns: u64,
    /// The share of all that lies on its side of the valley.
    pub share: f64,
}

/// A point of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantile {
    /// Share, 0 to 1, of latencies that
    pub quantile: f64,
    /// were at most this long, in ns,
    pub ns: u64,
    /// which were so many.
    pub count: u64,
}

/// Columns to a decade of latencies, when summits are looked for.
const COLUMNS: usize = 20;
/// A summit has at least this share of all on its side,
const MODE_SHARE: f64 = 0.05;
/// is this many times as high as the valley before it,
const MODE_DEPTH: f64 = 3.0;
/// and this many times as far from zero as the other one.
const MODE_DISTANCE: f64 = 2.0;

impl Latencies {
    /// The distribution at some hundred points, closer together the further out they are.
    pub fn spectrum(&self) -> Vec<Quantile> {
        let (mut count, mut all) = (0, Vec::<Quantile>::new());
        for point in self.buckets.iter_quantiles(5) {
            count += point.count_since_last_iteration();
            let at = Quantile {
                quantile: point.quantile(),
                ns: point.value_iterated_to().min(LATENCY_NS_MAX),
                count,
            };
            // Steps can be smaller than the share of one bucket.
            match all.last_mut() {
                Some(last) if last.quantile >= at.quantile => *last = at,
                _ => all.push(at),
            }
        }
        all
    }

    /// How many latencies lie in each of `rows` spans, from the shortest to the longest, each as many times as long as the
    /// one before: where a span ends, in ns, and its count. Empty if nothing was counted.
    pub fn spans(&self, rows: usize) -> Vec<(u64, u64)> {
        if self.buckets.is_empty() || rows == 0 {
            return Vec::new();
        }
        let first = self.buckets.min().max(1) as f64;
        let last = self.buckets.max().max(1) as f64;
        let width = (last / first).ln() / rows as f64;
        let end = |row: usize| (first * (width * (row + 1) as f64).exp()).round() as u64;
        let mut spans: Vec<(u64, u64)> = (0..rows).map(|row| (end(row), 0)).collect();
        for at in self.buckets.iter_recorded() {
            let ns = at.value_iterated_to();
            let row = spans.partition_point(|(end, _)| *end < ns).min(rows - 1);
            spans[row].1 += at.count_at_value();
        }
        spans
    }

    /// The two summits of a distribution that has two, far apart and with a valley between them.
    pub fn modes(&self) -> Option<[Mode; 2]> {
        let decades = (LATENCY_NS_MAX as f64).log10();
        let mut columns = vec![0u64; (decades * COLUMNS as f64) as usize + 2];
        for at in self.buckets.iter_recorded() {
            let place = (at.value_iterated_to().max(1) as f64).log10() * COLUMNS as f64;
            let last = columns.len() - 1;
            columns[(place as usize).min(last)] += at.count_since_last_iteration();
        }
        // Neighbours together, so that an empty column makes no valley.
        let smooth: Vec<f64> = (0..columns.len())
            .map(|i| {
                columns[i.saturating_sub(1)..=(i + 1).min(columns.len() - 1)]
                    .iter()
                    .sum::<u64>()
            })
            .map(|sum| sum as f64 / 3.0)
            .collect();
        let all = self.count() as f64;
        let valleys = 1..smooth.len() - 1;
        let found = valleys.filter_map(|valley| {
            let highest = |of: std::ops::Range<usize>| {
                of.max_by(|a, b| smooth[*a].total_cmp(&smooth[*b]))
                    .unwrap_or(valley)
            };
            let (low, high) = (highest(0..valley), highest(valley + 1..smooth.len()));
            let depth = smooth[low].min(smooth[high]) / smooth[valley].max(1e-9);
            let share = columns[..valley].iter().sum::<u64>() as f64 / all;
            let far = 10f64.powf((high - low) as f64 / COLUMNS as f64) >= MODE_DISTANCE;
            let both = share.min(1.0 - share) >= MODE_SHARE;
            (both && far && depth >= MODE_DEPTH).then_some((depth, low, high, share))
        });
        let (_, low, high, share) = found.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let ns = |column: usize| 10f64.powf((column as f64 + 0.5) / COLUMNS as f64) as u64;
        Some([
            Mode { ns: ns(low), share },
            Mode {
                ns: ns(high),
                share: 1.0 - share,
            },
        ])
    }

    /// The distribution as HdrHistogram's own tools write and plot it (`.hgrm`), in microseconds.
    pub fn hgrm(&self) -> String {
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        for at in self.spectrum() {
            let us = at.ns as f64 / 1e3;
            // A string takes everything.
            let _ = match at.quantile < 1.0 {
                true => writeln!(
                    text,
                    "{us:12.3} {:14.12} {:10} {:14.2}",
                    at.quantile,
                    at.count,
                    1.0 / (1.0 - at.quantile)
                ),
                false => writeln!(text, "{us:12.3} {:14.12} {:10}", at.quantile, at.count),
            };
        }
        let _ = writeln!(
            text,
            "#[Mean    = {:12.3}, StdDeviation   = {:12.3}]\n\
             #[Max     = {:12.3}, Total count    = {:12}]",
            self.buckets.mean() / 1e3,
            self.buckets.stdev() / 1e3,
            self.buckets.max().min(LATENCY_NS_MAX) as f64 / 1e3,
            self.count()
        );
        text
    }
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
    fn spans_have_everything_once() {
        assert_eq!(Latencies::new().spans(5), []);
        let mut latencies = Latencies::new();
        latencies.record_many(1_000, 7);
        assert_eq!(latencies.spans(3).iter().map(|span| span.1).sum::<u64>(), 7);
        latencies.record_many(1_000_000, 2);
        latencies.record_many(30_000, 1);
        let spans = latencies.spans(3);
        let counts: Vec<u64> = spans.iter().map(|span| span.1).collect();
        assert_eq!(counts, [7, 1, 2], "{spans:?}");
        assert!((990_000..1_010_000).contains(&spans[2].0), "{spans:?}");
    }

    proptest! {
        #[test]
        fn what_went_to_another_process_is_the_same(
            all in proptest::collection::vec((0..2 * LATENCY_NS_MAX, 1..1000u64), 0..200),
        ) {
            let mut latencies = Latencies::new();
            for (ns, count) in all {
                latencies.record_many(ns, count);
            }
            let text = serde_json::to_string(&latencies).unwrap();
            let back: Latencies = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back.summary(), latencies.summary());
            prop_assert_eq!(back.spectrum(), latencies.spectrum());
            prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
        }
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

    fn spread(around: &[(u64, u64)]) -> Latencies {
        let mut latencies = Latencies::new();
        for (us, count) in around {
            // Within a fifth on both sides, evenly.
            for step in 0..*count {
                let share = 0.8 + 0.4 * step as f64 / *count as f64;
                latencies.record((*us as f64 * 1e3 * share) as u64);
            }
        }
        latencies
    }

    #[test]
    fn two_kinds_of_replies_are_told_from_one() {
        let [low, high] = spread(&[(100, 9_000), (5_000, 1_000)]).modes().unwrap();
        assert!((80_000..120_000).contains(&low.ns), "{low:?}");
        assert!((4_000_000..6_000_000).contains(&high.ns), "{high:?}");
        assert!((low.share - 0.9).abs() < 0.01 && (high.share - 0.1).abs() < 0.01);
        for one in [
            &[(100, 10_000)][..],
            &[(100, 9_900), (5_000, 100)],
            &[(100, 5_000), (150, 5_000)],
            &[(100, 1)],
        ] {
            assert_eq!(spread(one).modes(), None, "{one:?}");
        }
        // Falls off to one side, as latencies do.
        let mut tail = Latencies::new();
        for i in 0..100_000u64 {
            tail.record((50_000.0 * (1.0 - i as f64 / 100_000.0).powf(-0.7)) as u64);
        }
        assert_eq!(tail.modes(), None);
        assert_eq!(Latencies::new().modes(), None);
    }

    #[test]
    fn a_spectrum_rises_to_all_of_it_and_is_written_as_other_tools_read_it() {
        let latencies = spread(&[(100, 1_000), (900, 50)]);
        let spectrum = latencies.spectrum();
        let last = spectrum.last().unwrap();
        assert_eq!((last.quantile, last.count), (1.0, 1_050));
        assert!(
            spectrum
                .windows(2)
                .all(|w| w[0].ns <= w[1].ns && w[0].quantile < w[1].quantile)
        );
        assert!(spectrum.len() < 200);
        let text = latencies.hgrm();
        let mut lines = text.lines();
        assert_eq!(
            lines.next().unwrap().split_whitespace().collect::<Vec<_>>(),
            ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"]
        );
        let figures = |line: &str| line.split_whitespace().count();
        assert_eq!(lines.next(), Some(""));
        assert!(
            lines
                .by_ref()
                .take(spectrum.len() - 1)
                .all(|line| figures(line) == 4)
        );
        assert_eq!(
            figures(lines.next().unwrap()),
            3,
            "the last has no reciprocal"
        );
        assert!(lines.next().unwrap().starts_with("#[Mean"));
        assert!(
            lines
                .next()
                .unwrap()
                .ends_with("Total count    =         1050]")
        );
        assert!(Latencies::new().spectrum().len() <= 1);
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
