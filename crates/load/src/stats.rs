//! Robust statistics of a handful of runs: medians, spreads and bootstrap intervals.
//!
//! The idea: a run is one observation, however many requests it made, and a single
//! disturbed run must not decide a comparison. Hence medians instead of means, and
//! intervals got by resampling instead of by assuming a distribution. Resampling is
//! seeded, so the same runs always give the same interval.

use serde::Serialize;

/// Fewest paired rounds from which an interval at 95 % can be had at all: with `n`
/// rounds the whole range of the values covers the true median with probability
/// `1 - 2 / 2^n`, which first exceeds 0.95 at six.
pub const ROUNDS_MIN: usize = 6;

/// Why a statistic can't be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// There were no samples.
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

/// What an interval says about a bound such as "at most 1.05 times".
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
    /// Fewer than [`ROUNDS_MIN`] samples still give an interval, which is narrower than
    /// its confidence says; whoever reports it must say so.
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

/// Steele, Lea and Flood's SplitMix64: one add and a mix a number, which is plenty for
/// picking rounds.
struct SplitMix64(u64);

impl SplitMix64 {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must be above zero. The bias of taking the high
    /// half of a product is below `limit / 2^64`, nothing for a number of rounds.
    fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }
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
    fn splitmix_matches_its_published_sequence() {
        let mut random = SplitMix64::new(1234567);
        assert_eq!(random.next(), 6457827717110365317);
        assert_eq!(random.next(), 3203168211198807973);
        assert_eq!(random.next(), 9817491932198370423);
    }

    #[test]
    fn below_reaches_every_value_about_equally() {
        let mut random = SplitMix64::new(7);
        let mut hits = [0u32; 5];
        for _ in 0..50_000 {
            hits[random.below(5)] += 1;
        }
        assert!(hits.iter().all(|h| (9_500..10_500).contains(h)), "{hits:?}");
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
        let mut uniform = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
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
