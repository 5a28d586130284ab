//! The comparison of two servers by counts, and whether measured times agree.

use serde::Serialize;

use crate::abba::MetricComparison;

/// Counts of scripted loads repeat to this share on one machine and toolchain.
pub const EXACT: f64 = 0.001;

/// The counts of one server: of several segments, of several starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median of the counts.
    pub median: f64,
    /// The lowest.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    /// The spread of these counts; all 0 if there are none.
    pub fn of(counts: &[f64]) -> Spread {
        let mut sorted = counts.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |n: usize| sorted.get(n).copied().unwrap_or(0.0);
        let n = sorted.len();
        Spread {
            median: (at(n.saturating_sub(1) / 2) + at(n / 2)) / 2.0,
            min: at(0),
            max: at(n.saturating_sub(1)),
        }
    }

    /// From the lowest to the highest, as a share of the median.
    pub fn share(&self) -> f64 {
        (self.max - self.min) / self.median.max(f64::MIN_POSITIVE)
    }
}

/// Quantiles of Student's distribution by degrees of freedom, from 1, for an interval of 95 %.
const STUDENT: [f64; 12] = [
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18,
];

/// The mean cost of a message over all segments, and its uncertainty.
///
/// Segments differ because of a garbage collector, a growing table, or the keys that a segment happens to draw; more
/// segments make their mean more accurate. So a change is compared with the uncertainty of the mean, and not with the
/// distance between segments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Half of the mean's 95 % interval, as a share of the mean; infinite with fewer than two segments.
    pub within: f64,
}

impl Mean {
    /// The mean of the segments of several starts. Differences between starts are part of the
    /// interval.
    pub fn of(starts: &[&[f64]]) -> Mean {
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let all = starts.concat();
        let (value, n) = (mean(&all), all.len());
        if n < 2 {
            return Mean {
                value,
                within: f64::INFINITY,
            };
        }
        let squares = all.iter().map(|count| (count - value).powi(2));
        let deviation = (squares.sum::<f64>() / (n - 1) as f64).sqrt();
        let student = STUDENT.get(n - 2).copied().unwrap_or(2.0);
        let means = starts.iter().filter(|of| !of.is_empty()).map(|of| mean(of));
        let apart = means.map(|of| (of - value).abs()).fold(0.0, f64::max);
        let half = (student * deviation / (n as f64).sqrt()).max(apart);
        Mean {
            value,
            within: half / value.max(f64::MIN_POSITIVE),
        }
    }
}

/// The judgement of B beside A, by counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// No further apart than counts repeat.
    Level,
    /// Every count of B is below every count of A.
    Fewer,
    /// Every count of B is above every count of A.
    More,
    /// Further apart than that, but not further than counts of one server.
    WithinSpread,
}

impl Judgement {
    /// Judges the counts of both.
    pub fn of(a: &Spread, b: &Spread) -> Judgement {
        let ratio = b.median / a.median.max(f64::MIN_POSITIVE);
        if (ratio - 1.0).abs() <= EXACT {
            Judgement::Level
        } else if b.max < a.min {
            Judgement::Fewer
        } else if b.min > a.max {
            Judgement::More
        } else {
            Judgement::WithinSpread
        }
    }

    /// The judgement in a sentence, about `what` is counted.
    pub fn sentence(self, what: &str, a: &Spread, b: &Spread) -> String {
        let by = (b.median / a.median.max(f64::MIN_POSITIVE) - 1.0) * 100.0;
        match self {
            Judgement::Level => format!("level: {what} differ by {:.2} %", by.abs()),
            Judgement::Fewer => format!("B has {:.2} % fewer {what}", -by),
            Judgement::More => format!("B has {by:.2} % more {what}"),
            Judgement::WithinSpread => format!(
                "no difference shown: {what} of one server already differ by up to {:.2} %",
                a.share().max(b.share()) * 100.0
            ),
        }
    }
}

/// Whether both halves of a verdict say one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Agreement {
    /// Counts and times contradict each other.
    pub disagree: bool,
    /// The conclusion, in a sentence.
    pub sentence: String,
}

impl Agreement {
    /// The verdict on instructions counted, `ratio` of B to A, and the CPU time of a request.
    pub fn of(counted: Judgement, ratio: f64, timed: Option<&MetricComparison>) -> Agreement {
        let said = |disagree, sentence: &str| Agreement {
            disagree,
            sentence: sentence.to_owned(),
        };
        let Some((timed, interval)) = timed.and_then(|timed| Some((timed, timed.ratio?))) else {
            return said(false, "counted only: there is no time to set beside it");
        };
        let shown = timed.verdict.is_shown();
        let slower = interval.value > 1.0;
        match counted {
            Judgement::More | Judgement::Fewer if shown => {
                let more = counted == Judgement::More;
                match more == slower {
                    true => said(false, "counts and times agree on which is dearer"),
                    false => said(
                        true,
                        "counts and times disagree: the server with fewer instructions takes more time. What it costs is \
                         not in user code: look at the kernel's part, caches, wake-ups",
                    ),
                }
            }
            Judgement::More | Judgement::Fewer if interval.contains(ratio) => said(
                false,
                "counts see a difference for which the interval of the times is too wide; it lies within it",
            ),
            Judgement::More | Judgement::Fewer => said(
                true,
                "counts and times disagree in size: times show no difference, and their interval excludes what was \
                 counted. The instructions in question cost less time than others, or the kernel's part hides them",
            ),
            Judgement::Level | Judgement::WithinSpread if shown => said(
                true,
                "counts and times disagree: times differ, and no instructions of user code do. Look at the kernel's part, \
                 caches, wake-ups, placement",
            ),
            Judgement::Level | Judgement::WithinSpread => {
                said(false, "counts and times agree: neither shows a difference")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_known_the_better_the_more_segments_there_are_and_no_better_than_starts_differ() {
        let even = Mean::of(&[&[100.0, 100.0, 100.0]]);
        assert_eq!((even.value, even.within), (100.0, 0.0));
        assert!(Mean::of(&[&[100.0]]).within.is_infinite());
        // A collector's saw: three segments do not show one percent, twenty do.
        let saw = [99.0, 100.0, 101.0];
        let few = Mean::of(&[&saw]);
        let many = Mean::of(&[&saw.repeat(7)]);
        assert!(few.within > 0.02 && many.within < 0.005, "{few:?} {many:?}");
        assert_eq!((few.value, many.value), (100.0, 100.0));
        let apart = Mean::of(&[&[99.0; 9], &[101.0; 9]]);
        assert!(apart.within >= 0.01, "{apart:?}");
    }
    use crate::abba::{Recording, Sample};
    use crate::stats::Bootstrap;

    fn spread(counts: &[f64]) -> Spread {
        Spread::of(counts)
    }

    #[test]
    fn counts_are_judged_by_how_they_repeat() {
        let a = spread(&[1_000.0, 1_000.2, 1_000.4]);
        assert_eq!((a.median, a.min, a.max), (1_000.2, 1_000.0, 1_000.4));
        let of = |counts: &[f64]| Judgement::of(&a, &spread(counts));
        assert_eq!(of(&[1_000.9, 1_000.8]), Judgement::Level);
        assert_eq!(of(&[1_010.0, 1_010.1]), Judgement::More);
        assert_eq!(of(&[990.0, 990.1]), Judgement::Fewer);
        assert_eq!(of(&[900.0, 1_100.0, 1_200.0]), Judgement::WithinSpread);
        assert_eq!(spread(&[1.0, 4.0, 2.0, 3.0]).median, 2.5);
    }

    /// The CPU time of B beside that of A, with a control that is equal to a hundredth.
    fn timed(ratio: f64) -> MetricComparison {
        let runs = |times: f64| -> Vec<Sample> {
            (0..12)
                .map(|n| Sample::new().lower("cpu", times * (1.0 + f64::from(n % 3) / 1_000.0)))
                .collect()
        };
        let recording = Recording::of(runs(1.0), runs(ratio), runs(1.0));
        let compared = recording.compare("a", "b", &Bootstrap::default()).unwrap();
        compared.metrics[0].clone()
    }

    #[test]
    fn both_halves_are_set_beside_each_other() {
        let disagree = |counted, ratio, time: f64| {
            let agreement = Agreement::of(counted, ratio, Some(&timed(time)));
            assert!(!agreement.sentence.is_empty());
            agreement.disagree
        };
        assert!(!disagree(Judgement::More, 1.03, 1.02));
        assert!(!disagree(Judgement::Fewer, 0.5, 0.7));
        assert!(!disagree(Judgement::Level, 1.0, 1.0));
        assert!(disagree(Judgement::More, 1.03, 0.9), "the other way");
        assert!(disagree(Judgement::Level, 1.0, 1.2), "not in user code");
        assert!(
            disagree(Judgement::More, 1.5, 1.0),
            "half as much again, unseen"
        );
        assert!(!Agreement::of(Judgement::More, 2.0, None).disagree);
    }
}
