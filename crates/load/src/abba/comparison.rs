//! From recorded runs to what may be said about them.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::recording::Recording;
use super::sample::{Better, Sample};
use super::schedule::Side;
use crate::numbers::percent;
use crate::stats::{Bootstrap, Estimate, ROUNDS_MIN, Samples, StatsError};

/// Why recorded runs can't be compared.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// A metric that the first run of A has is absent from another run.
    #[error(
        "metric {metric} is missing from round {round} of side {side}: every run must report it"
    )]
    Missing {
        /// The metric's name.
        metric: String,
        /// The side without it.
        side: Side,
        /// The round, from 0.
        round: usize,
    },
    /// A metric has a value no statistic can use.
    #[error("metric {metric} of side {side}")]
    Unusable {
        /// The metric's name.
        metric: String,
        /// The side.
        side: Side,
        /// The reason.
        source: StatsError,
    },
}

impl Recording {
    /// Compares the sides, metric by metric. `a` and `b` are what the sides are called in the
    /// report. The metrics of A's first run are compared.
    ///
    /// # Errors
    /// [`CompareError`] if a run lacks a metric or has one that isn't finite.
    pub fn compare(
        self,
        a: &str,
        b: &str,
        bootstrap: &Bootstrap,
    ) -> Result<Comparison, CompareError> {
        let metrics = self
            .runs_of(Side::A)
            .first()
            .map_or(&[][..], |s| &s.metrics);
        let metrics = metrics
            .iter()
            .map(|(name, _, better)| self.compare_metric(name, *better, bootstrap))
            .collect::<Result<_, _>>()?;
        Ok(Comparison {
            a: a.to_owned(),
            b: b.to_owned(),
            bootstrap: *bootstrap,
            metrics,
            notes: self.counted_notes(),
            recording: self,
        })
    }

    fn compare_metric(
        &self,
        name: &str,
        better: Better,
        bootstrap: &Bootstrap,
    ) -> Result<MetricComparison, CompareError> {
        let a = self.series(name, Side::A)?;
        let b = self.series(name, Side::B)?;
        let control = match self.schedule.control {
            true => Some(self.series(name, Side::Control)?),
            false => None,
        };
        // Finite runs lack a ratio only where one is zero or less: a verdict, not an error.
        let ratio = bootstrap.paired_ratio(&a.runs, &b.runs).ok();
        let control_ratio = control
            .as_ref()
            .and_then(|control| bootstrap.paired_ratio(&a.runs, &control.runs).ok());
        let verdict = Verdict::of(a.runs.len(), ratio, control_ratio, control.is_some());
        Ok(MetricComparison {
            name: name.to_owned(),
            better,
            a: a.summary,
            b: b.summary,
            control: control.map(|control| control.summary),
            ratio,
            control_ratio,
            verdict,
        })
    }

    fn series(&self, name: &str, side: Side) -> Result<Series, CompareError> {
        let of_round = |(round, sample): (usize, &Sample)| {
            sample.value(name).ok_or_else(|| CompareError::Missing {
                metric: name.to_owned(),
                side,
                round,
            })
        };
        let runs = self.runs_of(side).iter().enumerate().map(of_round);
        let runs: Vec<f64> = runs.collect::<Result<_, _>>()?;
        let samples = Samples::new(runs.iter().copied());
        let samples = samples.map_err(|source| CompareError::Unusable {
            metric: name.to_owned(),
            side,
            source,
        })?;
        let summary = SideSummary::of(&samples);
        Ok(Series { runs, summary })
    }

    fn counted_notes(&self) -> Vec<Note> {
        let mut counted: BTreeMap<(Side, &str), usize> = BTreeMap::new();
        for (side, samples) in &self.samples {
            for text in samples.iter().flat_map(|sample| &sample.notes) {
                *counted.entry((*side, text)).or_default() += 1;
            }
        }
        counted
            .into_iter()
            .map(|((side, text), runs)| Note {
                side,
                text: text.to_owned(),
                runs,
            })
            .collect()
    }
}

/// The result of two sides, metric by metric. The `Display` of a comparison is a table for a
/// terminal; serialised, a comparison holds every run as well, so that others can compute the
/// result again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The name of A.
    pub a: String,
    /// The name of side B.
    pub b: String,
    /// How the intervals were computed.
    pub bootstrap: Bootstrap,
    /// One entry a metric, in the order in which A's first run reported them.
    pub metrics: Vec<MetricComparison>,
    /// Remarks on runs, with how many runs of a side they apply to.
    pub notes: Vec<Note>,
    /// The runs themselves.
    pub recording: Recording,
}

impl Comparison {
    /// The result in sentences: CPU first, if it was measured, then throughput.
    pub fn headlines(&self) -> Vec<String> {
        let cpu = self.metric("server_cpu_ns_per_request");
        let cpu = cpu.and_then(|metric| metric.needs(&self.a, &self.b));
        let rate = self.metric("requests_per_second");
        let rate = rate.map(|metric| format!("Throughput: {}.", metric.sentence()));
        cpu.into_iter().chain(rate).collect()
    }

    /// One metric's comparison.
    pub fn metric(&self, name: &str) -> Option<&MetricComparison> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// The result for one metric of both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricComparison {
    /// The metric's name, its unit last.
    pub name: String,
    /// Whether a high or a low value is good.
    pub better: Better,
    /// A by itself.
    pub a: SideSummary,
    /// B by itself.
    pub b: SideSummary,
    /// The control by itself; absent if none was run.
    pub control: Option<SideSummary>,
    /// Median of B/A over the rounds; absent if a run measured zero or less.
    pub ratio: Option<Estimate>,
    /// Median of control/A over the rounds; absent without a control as well.
    pub control_ratio: Option<Estimate>,
    /// The conclusion.
    pub verdict: Verdict,
}

impl MetricComparison {
    /// How far from equal the control's interval reaches, as a factor of at least 1; 1.03
    /// means that differences of 3 % mean nothing.
    pub fn control_reach(&self) -> Option<f64> {
        self.control_ratio.map(|control| reach(&control).exp())
    }

    /// What may be said of `b` beside `a` in CPU per request, if that is the metric; `None` without a ratio.
    pub fn needs(&self, a: &str, b: &str) -> Option<String> {
        let ratio = self.ratio?;
        let said = match self.verdict {
            Verdict::Different => {
                format!("{b} needs {:.2}x the CPU of {a} per request", ratio.value)
            }
            Verdict::DifferentUncontrolled => format!(
                "{b} needs {:.2}x the CPU of {a} per request, but no control says how far two equal servers differ",
                ratio.value
            ),
            Verdict::WithinControl => format!(
                "{b} and {a} differ in CPU per request by no more than two equal servers do: {:.2}x",
                ratio.value
            ),
            Verdict::NoDifference => format!(
                "No difference in CPU per request is shown between {b} and {a}: {:.2}x",
                ratio.value
            ),
            Verdict::TooFewRounds => format!(
                "Fewer than {ROUNDS_MIN} rounds say nothing about {b} and {a}: {:.2}x",
                ratio.value
            ),
            Verdict::NoRatio => format!("A run of {b} or {a} measured no CPU: there is no ratio"),
        };
        let reach = self.control_reach().map_or_else(String::new, |reach| {
            format!("; two equal servers differed by up to {reach:.2}x")
        });
        Some(format!(
            "{said} (95 % interval {:.2}x to {:.2}x{reach}).",
            ratio.low, ratio.high
        ))
    }

    /// The verdict in a sentence.
    pub fn sentence(&self) -> String {
        let control = self.control_reach().map_or_else(String::new, |reach| {
            format!(" (the control reaches {})", percent(reach - 1.0))
        });
        match self.verdict {
            Verdict::TooFewRounds => {
                format!("fewer than {ROUNDS_MIN} rounds: means nothing")
            }
            Verdict::NoRatio => "a run measured zero: no ratio".to_owned(),
            Verdict::NoDifference => {
                format!("no difference shown: the interval includes 1{control}")
            }
            Verdict::WithinControl => {
                format!("difference smaller than the control's spread: means nothing{control}")
            }
            Verdict::Different => format!("{}{control}", self.difference()),
            Verdict::DifferentUncontrolled => {
                format!("{}; no control was run", self.difference())
            }
        }
    }

    fn difference(&self) -> String {
        let ratio = self.ratio.map_or(1.0, |ratio| ratio.value);
        let higher = ratio > 1.0;
        let direction = if higher { "higher" } else { "lower" };
        let quality = match (self.better, higher) {
            (Better::Neither, _) => "",
            (Better::Higher, true) | (Better::Lower, false) => ", better",
            (Better::Higher, false) | (Better::Lower, true) => ", worse",
        };
        format!("B is {} {direction}{quality}", percent((ratio - 1.0).abs()))
    }
}

impl Serialize for MetricComparison {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// The fields, and the sentence that is made from them.
        #[derive(Serialize)]
        struct Shown<'a> {
            name: &'a str,
            better: Better,
            a: SideSummary,
            b: SideSummary,
            control: Option<SideSummary>,
            ratio: Option<Estimate>,
            control_ratio: Option<Estimate>,
            verdict: Verdict,
            sentence: String,
        }
        Shown {
            name: &self.name,
            better: self.better,
            a: self.a,
            b: self.b,
            control: self.control,
            ratio: self.ratio,
            control_ratio: self.control_ratio,
            verdict: self.verdict,
            sentence: self.sentence(),
        }
        .serialize(serializer)
    }
}

/// One side's runs for one metric, in the metric's unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SideSummary {
    /// Median run.
    pub median: f64,
    /// Half of the runs are within this distance of the median.
    pub mad: f64,
    /// Lowest run.
    pub min: f64,
    /// Highest run.
    pub max: f64,
}

impl SideSummary {
    fn of(samples: &Samples) -> Self {
        Self {
            median: samples.median(),
            mad: samples.mad(),
            min: samples.min(),
            max: samples.max(),
        }
    }
}

/// The values of one metric of one side, in the order of the rounds.
struct Series {
    runs: Vec<f64>,
    summary: SideSummary,
}

/// The conclusion about a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Fewer rounds than an interval needs.
    TooFewRounds,
    /// A run measured zero or less.
    NoRatio,
    /// The interval of B/A includes 1.
    NoDifference,
    /// The interval of B/A excludes 1, but one side compared with itself differs as much.
    WithinControl,
    /// A difference beyond what the control makes up.
    Different,
    /// The interval excludes 1, but nothing says what the machine makes up.
    DifferentUncontrolled,
}

impl Verdict {
    /// Whether a difference was shown, beyond what the machine makes up by itself.
    pub fn is_shown(self) -> bool {
        matches!(self, Verdict::Different | Verdict::DifferentUncontrolled)
    }

    /// Judges an interval beside the interval of its control.
    pub(crate) fn of(
        rounds: usize,
        ratio: Option<Estimate>,
        control_ratio: Option<Estimate>,
        control: bool,
    ) -> Self {
        let (ratio, control) = match (ratio, control_ratio, control) {
            (Some(ratio), Some(control), true) => (ratio, Some(control)),
            (Some(ratio), _, false) => (ratio, None),
            _ => return Verdict::NoRatio,
        };
        if rounds < ROUNDS_MIN {
            Verdict::TooFewRounds
        } else if ratio.contains(1.0) {
            Verdict::NoDifference
        } else {
            match control {
                None => Verdict::DifferentUncontrolled,
                Some(control) if ratio.value.ln().abs() <= reach(&control) => {
                    Verdict::WithinControl
                }
                Some(_) => Verdict::Different,
            }
        }
    }
}

/// A remark that was made on some runs of a side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The side.
    pub side: Side,
    /// The remark.
    pub text: String,
    /// Number of counted runs it was made on.
    pub runs: usize,
}

/// The logarithm of the end of a ratio's interval that is furthest from 1.
fn reach(ratio: &Estimate) -> f64 {
    ratio.low.ln().abs().max(ratio.high.ln().abs())
}
