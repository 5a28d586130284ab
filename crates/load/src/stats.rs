//! Robust statistics of a handful of runs: medians, spreads and bootstrap intervals.
//!
//! The idea: a run is one observation, however many requests it made, and a single
//! disturbed run must not decide a comparison. Hence medians instead of means, and
//! intervals got by resampling instead of by assuming a distribution. Resampling is
//! seeded, so the same runs always give the same interval.

use serde::Serialize;

use crate::random::SplitMix64;

/// Fewest paired rounds from which an interval at 95 % can be had at all: with `n`
/// rounds the whole range of the values covers the true median with probability
/// `1 - 2 / 2^n`, which first exceeds 0.95 at six.
pub const ROUNDS_MIN: usize = 6;

/// Why a statistic can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// No samples were given.
    #[error("no samples: a statistic needs at least one run")]
    Empty,
    /// A sample was infinite or not a number.
    #[error("sample {index} is {value}: only finite numbers can be compared")]
    NotFinite {
        /// Position of the sample, from 0.
        index: usize,
        /// The offending value.
        value: f64,
    },
    /// A ratio was asked of a value that isn't above zero.
    #[error("sample {index} is {value}: a ratio needs values above zero on both sides")]
    NotPositive {
        /// Position of the sample, from 0.
        index: usize,
        /// The offending value.
        value: f64,
    },
    /// Two series that should be paired differ in length.
    #[error("{base} runs of one side against {other} of the other: pairs need as many of each")]
    Unpaired {
        /// Number of runs of the first side.
        base: usize,
        /// Number of runs of the second side.
        other: usize,
    },
}

/// At least one finite number, kept in ascending order.
///
/// ```
/// use tidewire_load::stats::Samples;
/// let s = Samples::new([3.0, 1.0, 2.0, 100.0])?;
/// assert_eq!(s.median(), 2.5);
/// assert_eq!(s.percentile(100.0), 100.0);
/// # Ok::<(), tidewire_load::stats::StatsError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// Takes the values in any order.
    ///
    /// # Errors
    /// [`StatsError::Empty`] without values, [`StatsError::NotFinite`] at the first
    /// infinity or NaN.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Result<Self, StatsError> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        if sorted.is_empty() {
            return Err(StatsError::Empty);
        }
        if let Some((index, &value)) = sorted.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(StatsError::NotFinite { index, value });
        }
        sorted.sort_by(f64::total_cmp);
        Ok(Self { sorted })
    }

    /// The middle value, or the mean of the two middle ones.
    pub fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    /// The value below which `percent` (0 to 100, clamped) of the samples lie, linear
    /// between the two neighbouring samples. 0 is the smallest, 100 the largest sample.
    pub fn percentile(&self, percent: f64) -> f64 {
        percentile_of_sorted(&self.sorted, percent)
    }

    /// Median absolute deviation from the median, unscaled: half of the samples lie
    /// within this distance of the median.
    pub fn mad(&self) -> f64 {
        let median = self.median();
        let mut distances: Vec<f64> = self.sorted.iter().map(|v| (v - median).abs()).collect();
        distances.sort_by(f64::total_cmp);
        percentile_of_sorted(&distances, 50.0)
    }

    /// The smallest sample.
    pub fn min(&self) -> f64 {
        self.percentile(0.0)
    }

    /// The largest sample.
    pub fn max(&self) -> f64 {
        self.percentile(100.0)
    }

    /// All samples, ascending.
    pub fn sorted(&self) -> &[f64] {
        &self.sorted
    }
}

/// How intervals are resampled. The default is 95 %, 10,000 resamples, seed 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bootstrap {
    /// Share of the resampled medians that the interval holds, 0 to 1 (clamped).
    pub confidence: f64,
    /// Number of resamples; 0 is taken as 1. Cost is `resamples * rounds`.
    pub resamples: usize,
    /// Seed of the resampling; the same seed and samples give the same interval.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self {
            confidence: 0.95,
            resamples: 10_000,
            seed: 1,
        }
    }
}

/// A median with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The median of the samples themselves.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// The verdict of an interval about a bound such as "at most 1.05 times".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The whole interval is within the bound.
    Holds,
    /// The whole interval is beyond the bound.
    Fails,
    /// The bound lies inside the interval: more rounds are needed.
    Open,
}

impl Estimate {
    /// Whether `value` lies inside the interval, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether the estimate is at most `bound`.
    pub fn at_most(&self, bound: f64) -> Decision {
        if self.high <= bound {
            Decision::Holds
        } else if self.low > bound {
            Decision::Fails
        } else {
            Decision::Open
        }
    }

    /// Whether the estimate is at least `bound`.
    pub fn at_least(&self, bound: f64) -> Decision {
        if self.low >= bound {
            Decision::Holds
        } else if self.high < bound {
            Decision::Fails
        } else {
            Decision::Open
        }
    }

    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self {
            value: f(self.value),
            low: f(self.low),
            high: f(self.high),
        }
    }
}

impl Bootstrap {
    /// The median of `samples` with the percentile-bootstrap interval of that median.
    ///
    /// Fewer than [`ROUNDS_MIN`] samples still give an interval, which is narrower than its
    /// confidence says; a report of it must say so.
    pub fn median(&self, samples: &Samples) -> Estimate {
        let values = samples.sorted();
        let mut random = SplitMix64::new(self.seed);
        let mut drawn = vec![0.0; values.len()];
        let mut medians: Vec<f64> = (0..self.resamples.max(1))
            .map(|_| {
                for slot in &mut drawn {
                    *slot = values[random.below(values.len())];
                }
                drawn.sort_by(f64::total_cmp);
                percentile_of_sorted(&drawn, 50.0)
            })
            .collect();
        medians.sort_by(f64::total_cmp);
        let tail_percent = (1.0 - self.confidence.clamp(0.0, 1.0)) / 2.0 * 100.0;
        Estimate {
            value: samples.median(),
            low: percentile_of_sorted(&medians, tail_percent),
            high: percentile_of_sorted(&medians, 100.0 - tail_percent),
        }
    }

    /// The median of ratios with its interval.
    ///
    /// Works on logarithms, so that twice as much and half as much are equally far from
    /// 1 and swapping the sides gives the reciprocal ratio; an even number of ratios takes
    /// the geometric mean of the middle two.
    ///
    /// # Errors
    /// [`StatsError::Empty`] without ratios, [`StatsError::NotFinite`] or
    /// [`StatsError::NotPositive`] at the first ratio that has no logarithm.
    pub fn ratios(&self, ratios: &[f64]) -> Result<Estimate, StatsError> {
        require_positive(ratios)?;
        let logs = Samples::new(ratios.iter().map(|r| r.ln()))?;
        Ok(self.median(&logs).map(f64::exp))
    }

    /// The median of the per-round ratios `other[i] / base[i]` with its interval.
    ///
    /// Pairing by round takes out whatever changes slowly from round to round.
    ///
    /// # Errors
    /// [`StatsError::Unpaired`] if the lengths differ, else as [`Bootstrap::ratios`].
    pub fn paired_ratio(&self, base: &[f64], other: &[f64]) -> Result<Estimate, StatsError> {
        if base.len() != other.len() {
            return Err(StatsError::Unpaired {
                base: base.len(),
                other: other.len(),
            });
        }
        require_positive(base)?;
        require_positive(other)?;
        let ratios: Vec<f64> = base.iter().zip(other).map(|(b, o)| o / b).collect();
        self.ratios(&ratios)
    }
}

impl Bootstrap {
    /// The ratio of two medians, `other / base`, of runs that do not belong together in pairs, with its
    /// interval: each side is resampled by itself.
    ///
    /// # Errors
    /// As [`Bootstrap::ratios`].
    pub fn ratio_of_medians(&self, base: &[f64], other: &[f64]) -> Result<Estimate, StatsError> {
        require_positive(base)?;
        require_positive(other)?;
        let (a, b) = (
            Samples::new(base.iter().copied())?,
            Samples::new(other.iter().copied())?,
        );
        let mut random = SplitMix64::new(self.seed);
        let mut redrawn = |of: &Samples| {
            let mut drawn: Vec<f64> = of
                .sorted
                .iter()
                .map(|_| of.sorted[random.below(of.sorted.len())])
                .collect();
            drawn.sort_by(f64::total_cmp);
            percentile_of_sorted(&drawn, 50.0)
        };
        let mut ratios: Vec<f64> = (0..self.resamples.max(1))
            .map(|_| redrawn(&b) / redrawn(&a))
            .collect();
        ratios.sort_by(f64::total_cmp);
        let tail = (1.0 - self.confidence.clamp(0.0, 1.0)) / 2.0 * 100.0;
        Ok(Estimate {
            value: b.median() / a.median(),
            low: percentile_of_sorted(&ratios, tail),
            high: percentile_of_sorted(&ratios, 100.0 - tail),
        })
    }

    /// The probability, 0 to 1, that two series of one distribution differ as much as these, by the largest distance
    /// between their distributions (Kolmogorov-Smirnov). The test sees differences that medians do not show. The
    /// value is found by permutation, so ties and small numbers do no harm; it is never less than one divided by the
    /// number of resamples.
    ///
    /// # Errors
    /// [`StatsError::Empty`] or [`StatsError::NotFinite`].
    pub fn same_distribution(&self, a: &[f64], b: &[f64]) -> Result<f64, StatsError> {
        let (first, second) = (
            Samples::new(a.iter().copied())?,
            Samples::new(b.iter().copied())?,
        );
        let found = distance(first.sorted(), second.sorted());
        let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
        let mut random = SplitMix64::new(self.seed);
        let resamples = self.resamples.max(1);
        let as_far = (0..resamples).filter(|_| {
            random.shuffle(&mut all);
            let (left, right) = all.split_at_mut(a.len());
            left.sort_by(f64::total_cmp);
            right.sort_by(f64::total_cmp);
            // Sums of the same parts in another order may differ in their last bit.
            distance(left, right) >= found - 1e-12
        });
        Ok((as_far.count() + 1) as f64 / (resamples + 1) as f64)
    }
}

/// The largest distance between the distributions of two ascending series.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let share = |of: &[f64], at: f64| of.partition_point(|v| *v <= at) as f64 / of.len() as f64;
    let places = a.iter().chain(b);
    places
        .map(|at| (share(a, *at) - share(b, *at)).abs())
        .fold(0.0, f64::max)
}

fn require_positive(values: &[f64]) -> Result<(), StatsError> {
    for (index, &value) in values.iter().enumerate() {
        if !value.is_finite() {
            return Err(StatsError::NotFinite { index, value });
        }
        if value <= 0.0 {
            return Err(StatsError::NotPositive { index, value });
        }
    }
    Ok(())
}

fn percentile_of_sorted(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len() - 1;
    let rank = percent.clamp(0.0, 100.0) / 100.0 * last as f64;
    let below = (rank.floor() as usize).min(last);
    let above = (below + 1).min(last);
    let share = rank - below as f64;
    // Weighted rather than `low + (high - low) * share`: the difference may overflow.
    // Clamped because the two products round.
    (sorted[below] * (1.0 - share) + sorted[above] * share).clamp(sorted[below], sorted[above])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn samples(values: &[f64]) -> Samples {
        Samples::new(values.iter().copied()).unwrap()
    }

    fn quick() -> Bootstrap {
        Bootstrap {
            resamples: 300,
            ..Bootstrap::default()
        }
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(samples(&[5.0, 1.0, 3.0]).median(), 3.0);
        assert_eq!(samples(&[5.0, 1.0, 3.0, 4.0]).median(), 3.5);
        assert_eq!(samples(&[2.0]).median(), 2.0);
    }

    #[test]
    fn percentiles_interpolate_between_neighbours() {
        let s = samples(&[10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(s.percentile(0.0), 10.0);
        assert_eq!(s.percentile(25.0), 20.0);
        assert_eq!(s.percentile(90.0), 46.0);
        assert_eq!(s.percentile(100.0), 50.0);
        assert_eq!(s.percentile(-3.0), 10.0);
        assert_eq!(s.percentile(300.0), 50.0);
    }

    #[test]
    fn mad_ignores_one_wild_sample() {
        assert_eq!(samples(&[1.0, 2.0, 3.0, 4.0, 1e9]).mad(), 1.0);
    }

    #[test]
    fn unusable_samples_are_refused() {
        assert_eq!(Samples::new([]), Err(StatsError::Empty));
        let err = Samples::new([1.0, f64::INFINITY]).unwrap_err();
        assert!(matches!(err, StatsError::NotFinite { index: 1, .. }));
        let err = quick().paired_ratio(&[1.0, 0.0], &[1.0, 1.0]).unwrap_err();
        assert!(matches!(err, StatsError::NotPositive { index: 1, .. }));
        let err = quick().paired_ratio(&[1.0], &[1.0, 1.0]).unwrap_err();
        assert_eq!(err, StatsError::Unpaired { base: 1, other: 2 });
    }

    #[test]
    fn a_seed_reproduces_and_another_differs() {
        let s = samples(&[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 250.0]);
        assert_eq!(quick().median(&s), quick().median(&s));
        let intervals: Vec<Estimate> = (0..20)
            .map(|seed| Bootstrap { seed, ..quick() }.median(&s))
            .collect();
        assert!(intervals.iter().any(|i| *i != intervals[0]));
    }

    #[test]
    fn pairing_removes_what_both_sides_share() {
        // The machine's speed swings tenfold; the second side always takes 10 % more.
        let base = [10.0, 100.0, 30.0, 70.0, 15.0, 90.0, 42.0];
        let other: Vec<f64> = base.iter().map(|b| b * 1.1).collect();
        let ratio = quick().paired_ratio(&base, &other).unwrap();
        assert!((ratio.low - 1.1).abs() < 1e-9 && (ratio.high - 1.1).abs() < 1e-9);
    }

    #[test]
    fn intervals_cover_the_true_median_about_as_often_as_they_say() {
        // 400 experiments of 20 skewed samples each; the true median is 1.
        let mut random = SplitMix64::new(99);
        let mut uniform = || random.uniform();
        let mut covered = 0;
        for seed in 0..400 {
            let runs: Vec<f64> = (0..20)
                .map(|_| {
                    let bell = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
                    (0.3 * bell).exp()
                })
                .collect();
            let bootstrap = Bootstrap { seed, ..quick() };
            covered += usize::from(bootstrap.ratios(&runs).unwrap().contains(1.0));
        }
        let share = covered as f64 / 400.0;
        assert!((0.90..=0.99).contains(&share), "covered {share}");
    }

    #[test]
    fn decisions_follow_the_interval() {
        let ratio = Estimate {
            value: 1.02,
            low: 1.00,
            high: 1.04,
        };
        assert_eq!(ratio.at_most(1.05), Decision::Holds);
        assert_eq!(ratio.at_most(1.03), Decision::Open);
        assert_eq!(ratio.at_most(0.99), Decision::Fails);
        assert_eq!(ratio.at_least(0.5), Decision::Holds);
        assert_eq!(ratio.at_least(1.01), Decision::Open);
        assert_eq!(ratio.at_least(2.0), Decision::Fails);
    }

    #[test]
    fn two_series_of_one_distribution_are_seldom_told_apart_and_others_are() {
        let mut random = SplitMix64::new(5);
        let mut draw = |n: usize, factor: f64| -> Vec<f64> {
            (0..n)
                .map(|_| factor * (1.0 + 0.1 * random.uniform()))
                .collect()
        };
        let mut false_alarms = 0;
        for seed in 0..200 {
            let quick = Bootstrap { seed, ..quick() };
            let (a, b) = (draw(10, 1.0), draw(10, 1.0));
            false_alarms += usize::from(quick.same_distribution(&a, &b).unwrap() < 0.05);
            assert!(quick.same_distribution(&a, &draw(10, 1.2)).unwrap() < 0.01);
        }
        assert!(
            false_alarms <= 20,
            "{false_alarms} of 200 at a level of 5 %"
        );
        // An equal median, another spread.
        let wide: Vec<f64> = (0..40).map(|i| 0.5 + f64::from(i) / 40.0).collect();
        let narrow: Vec<f64> = (0..40).map(|i| 0.99 + 0.02 * f64::from(i) / 40.0).collect();
        assert!(quick().same_distribution(&wide, &narrow).unwrap() < 0.01);
        assert_eq!(quick().same_distribution(&wide, &wide).unwrap(), 1.0);
    }

    #[test]
    fn the_ratio_of_medians_has_an_interval_around_it() {
        let a = [10.0, 11.0, 10.5, 9.8, 10.2, 10.1, 9.9];
        let b = a.map(|v| v * 1.3);
        let found = quick().ratio_of_medians(&a, &b).unwrap();
        assert!((found.value - 1.3).abs() < 1e-9 && found.contains(1.3));
        assert!(found.low > 1.2 && found.high < 1.45, "{found:?}");
        assert!(quick().ratio_of_medians(&[], &b).is_err());
        assert!(quick().ratio_of_medians(&[0.0], &b).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn order_does_not_matter(mut values in prop::collection::vec(-1e9..1e9f64, 1..40)) {
            let forward = samples(&values);
            values.reverse();
            prop_assert_eq!(forward, samples(&values));
        }

        #[test]
        fn half_of_the_samples_lie_on_each_side_of_the_median(
            values in prop::collection::vec(-1e9..1e9f64, 1..40),
        ) {
            let s = samples(&values);
            // A mean of two equal neighbours may round; allow for the last bit.
            let slack = s.median().abs() * 1e-15;
            let below = values.iter().filter(|v| **v <= s.median() + slack).count();
            let above = values.iter().filter(|v| **v >= s.median() - slack).count();
            prop_assert!(below * 2 >= values.len() && above * 2 >= values.len());
        }

        #[test]
        fn percentiles_rise_and_stay_in_range(
            values in prop::collection::vec(-1e9..1e9f64, 1..40),
            mut percents in prop::collection::vec(0.0..100.0f64, 2..10),
        ) {
            let s = samples(&values);
            percents.sort_by(f64::total_cmp);
            let found: Vec<f64> = percents.iter().map(|p| s.percentile(*p)).collect();
            for pair in found.windows(2) {
                prop_assert!(pair[0] <= pair[1] + pair[1].abs() * 1e-12);
            }
            prop_assert!(found[0] >= s.min() - s.min().abs() * 1e-12);
            prop_assert!(found[found.len() - 1] <= s.max() + s.max().abs() * 1e-12);
        }

        #[test]
        fn the_interval_holds_the_median_and_stays_among_the_samples(
            values in prop::collection::vec(0.001..1e6f64, 1..25),
            seed: u64,
        ) {
            let s = samples(&values);
            let found = Bootstrap { seed, ..quick() }.median(&s);
            prop_assert!(s.min() <= found.low && found.high <= s.max());
            prop_assert!(found.low <= found.high);
            // Resampling may by chance miss the middle of very few samples.
            if values.len() >= ROUNDS_MIN {
                prop_assert!(found.contains(found.value));
            }
        }

        #[test]
        fn swapping_the_sides_gives_the_reciprocal(
            pairs in prop::collection::vec((0.001..1e6f64, 0.001..1e6f64), 1..25),
        ) {
            let (base, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let forward = quick().paired_ratio(&base, &other).unwrap();
            let backward = quick().paired_ratio(&other, &base).unwrap();
            prop_assert!((forward.value * backward.value - 1.0).abs() < 1e-9);
        }

        #[test]
        fn scaling_one_side_scales_the_ratio(
            pairs in prop::collection::vec((0.001..1e6f64, 0.001..1e6f64), 1..25),
            factor in 0.01..100.0f64,
        ) {
            let (base, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let scaled: Vec<f64> = other.iter().map(|o| o * factor).collect();
            let plain = quick().paired_ratio(&base, &other).unwrap();
            let grown = quick().paired_ratio(&base, &scaled).unwrap();
            prop_assert!((grown.value / plain.value / factor - 1.0).abs() < 1e-9);
            prop_assert!((grown.low / plain.low / factor - 1.0).abs() < 1e-9);
            prop_assert!((grown.high / plain.high / factor - 1.0).abs() < 1e-9);
        }
    }
}
