//! Interleaved comparison of two servers, with a control that compares one with itself.
//!
//! The idea: a machine's speed drifts by more than the differences worth knowing, so runs
//! of the two sides take turns and only ratios inside one round are used. How large a
//! ratio the machine makes up by itself is measured in the same breath, by a third side,
//! the control, which is set up like A.
//!
//! # The schedule
//!
//! A round is one run of each side. Without a control, rounds alternate `AB BA`. With
//! one (written `C`), six rounds make a cycle:
//!
//! ```text
//! ABC CAB BCA ACB BAC CBA
//! ```
//!
//! As in ABBA, each round begins with the side that ended the round before. Over a cycle
//! - each side is in each place of a round equally often, and the sum of each side's
//!   times is the same, so a steady drift cancels;
//! - each side follows each side, itself included, equally often, so what a run leaves
//!   behind (warm caches, sockets in TIME_WAIT) burdens all alike;
//! - C is as far from A as B is from A, round for round in another order, so the ratio
//!   C/A has the distribution that B/A would have if B were no different.
//!
//! The control costs a third of the time. B is compared with A alone, not with A and C
//! pooled: pooling would make B/A less noisy than the control that is to judge it.
//!
//! Give the control a server process of its own, started like A's: two processes of one
//! binary differ by their memory layout too, and the control has to show that.
//!
//! # Verdicts
//!
//! A difference counts as shown when the interval of B/A excludes 1 *and* the median
//! ratio is further from 1 than the control's interval reaches. Everything else is said to
//! mean nothing.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::histogram::LatencySummary;
use crate::stats::{Bootstrap, Estimate, ROUNDS_MIN, Samples, StatsError};

/// Which server a run is made against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The base of the comparison.
    A,
    /// What is compared with it.
    B,
    /// Set up as A, but another process: shows which differences mean nothing.
    Control,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::A => "A",
            Side::B => "B",
            Side::Control => "control",
        })
    }
}

/// One run's place in the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The server to run against.
    pub side: Side,
    /// Round from 0; warm-up rounds count on their own, also from 0.
    pub round: usize,
    /// The run's samples will be dropped.
    pub warm_up: bool,
}

/// In which order the sides take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Schedule {
    rounds: usize,
    warm_up_rounds: usize,
    control: bool,
}

const WITHOUT_CONTROL: [[Side; 2]; 2] = [[Side::A, Side::B], [Side::B, Side::A]];

const WITH_CONTROL: [[Side; 3]; 6] = [
    [Side::A, Side::B, Side::Control],
    [Side::Control, Side::A, Side::B],
    [Side::B, Side::Control, Side::A],
    [Side::A, Side::Control, Side::B],
    [Side::B, Side::A, Side::Control],
    [Side::Control, Side::B, Side::A],
];

impl Schedule {
    /// `rounds` counted rounds with a control, after one warm-up round. 0 rounds are taken
    /// as 1; fewer than [`ROUNDS_MIN`] give no verdict, and small differences need 30 and
    /// more.
    pub fn new(rounds: usize) -> Self {
        Self {
            rounds: rounds.max(1),
            warm_up_rounds: 1,
            control: true,
        }
    }

    /// Sets how many rounds are run first and dropped.
    pub fn warm_up(mut self, rounds: usize) -> Self {
        self.warm_up_rounds = rounds;
        self
    }

    /// Leaves the control out, for a third less time and a weaker verdict.
    pub fn without_control(mut self) -> Self {
        self.control = false;
        self
    }

    /// Rounds up to whole cycles (2 rounds without a control, 6 with one), which the
    /// schedule needs for drift to cancel fully.
    pub fn whole_cycles(mut self) -> Self {
        self.rounds = self.rounds.next_multiple_of(self.cycle());
        self
    }

    /// Number of rounds that count.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Whether a control is run.
    pub fn has_control(&self) -> bool {
        self.control
    }

    /// Number of runs in all, warm-up included: what the whole comparison costs.
    pub fn runs(&self) -> usize {
        (self.warm_up_rounds + self.rounds) * self.order(0).len()
    }

    /// All runs in their order, warm-up rounds first.
    pub fn turns(&self) -> impl Iterator<Item = Turn> + use<> {
        let schedule = *self;
        let warm_up = (0..self.warm_up_rounds).map(|round| (round, true));
        let counted = (0..self.rounds).map(|round| (round, false));
        warm_up.chain(counted).flat_map(move |(round, warm_up)| {
            schedule.order(round).iter().map(move |&side| Turn {
                side,
                round,
                warm_up,
            })
        })
    }

    fn cycle(&self) -> usize {
        if self.control {
            WITH_CONTROL.len()
        } else {
            WITHOUT_CONTROL.len()
        }
    }

    fn order(&self, round: usize) -> &'static [Side] {
        let place = round % self.cycle();
        if self.control {
            &WITH_CONTROL[place]
        } else {
            &WITHOUT_CONTROL[place]
        }
    }
}

/// Which direction of a metric is the good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better: requests per second.
    Higher,
    /// Less is better: latencies, CPU per request.
    Lower,
    /// Neither: how busy a core was.
    Neither,
}

/// The metrics of one run, in the order in which they are to be shown.
///
/// ```
/// use tidewire_load::abba::Sample;
/// let run = Sample::new()
///     .higher("requests_per_second", 98_000.0)
///     .lower("server_cpu_ns_per_request", 5_600.0)
///     .neither("server_core_busy", 0.97);
/// assert_eq!(run.value("server_core_busy"), Some(0.97));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    metrics: Vec<(String, f64, Better)>,
    notes: Vec<String>,
}

impl Sample {
    /// A run without metrics so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a metric of which more is better. Units stand last in the name.
    pub fn higher(self, name: &str, value: f64) -> Self {
        self.with(name, value, Better::Higher)
    }

    /// Adds a metric of which less is better.
    pub fn lower(self, name: &str, value: f64) -> Self {
        self.with(name, value, Better::Lower)
    }

    /// Adds a metric without a good direction.
    pub fn neither(self, name: &str, value: f64) -> Self {
        self.with(name, value, Better::Neither)
    }

    /// Adds `latency_p50_ns`, `latency_p99_ns` and `latency_p99_9_ns`.
    pub fn latencies(self, summary: &LatencySummary) -> Self {
        self.lower("latency_p50_ns", summary.p50_ns as f64)
            .lower("latency_p99_ns", summary.p99_ns as f64)
            .lower("latency_p99_9_ns", summary.p99_9_ns as f64)
    }

    /// Adds a remark on this run, such as that the server's core was not busy. Equal
    /// remarks are counted in the comparison, so keep figures out of them.
    pub fn note(mut self, text: &str) -> Self {
        self.notes.push(text.to_owned());
        self
    }

    /// A metric's value.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.metrics
            .iter()
            .find(|(known, ..)| known == name)
            .map(|(_, value, _)| *value)
    }

    /// A name given twice takes the later value.
    fn with(mut self, name: &str, value: f64, better: Better) -> Self {
        let metric = (name.to_owned(), value, better);
        match self.metrics.iter_mut().find(|(known, ..)| known == name) {
            Some(known) => *known = metric,
            None => self.metrics.push(metric),
        }
        self
    }
}

impl Serialize for Sample {
    /// As a map from name to value; notes are left to the comparison.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.metrics.iter().map(|(name, value, _)| (name, value)))
    }
}

/// A run that failed; the comparison ends with it.
#[derive(Debug, thiserror::Error)]
#[error("run of side {side} in {} {round} failed", if *.warm_up { "warm-up round" } else { "round" })]
pub struct RunFailed<E: std::error::Error + 'static> {
    /// The side that was run.
    pub side: Side,
    /// Its round, from 0.
    pub round: usize,
    /// Whether that was a warm-up round.
    pub warm_up: bool,
    /// What happened.
    pub source: E,
}

/// Makes all runs of a schedule, one after another, and keeps those that count.
///
/// `one_run` makes the run it is given a turn for. It bounds its own time.
///
/// # Errors
/// The first failed run ends the comparison: leaving it out would compare unequal rounds.
pub fn run<E, F>(schedule: &Schedule, mut one_run: F) -> Result<Recording, RunFailed<E>>
where
    E: std::error::Error + 'static,
    F: FnMut(Turn) -> Result<Sample, E>,
{
    let mut recording = Recording {
        schedule: *schedule,
        samples: BTreeMap::new(),
    };
    for turn in schedule.turns() {
        let sample = one_run(turn).map_err(|source| RunFailed {
            side: turn.side,
            round: turn.round,
            warm_up: turn.warm_up,
            source,
        })?;
        if !turn.warm_up {
            recording.samples.entry(turn.side).or_default().push(sample);
        }
    }
    Ok(recording)
}

/// The counted runs of a schedule: for each side one sample a round, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recording {
    schedule: Schedule,
    samples: BTreeMap<Side, Vec<Sample>>,
}

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
        /// What is wrong with it.
        source: StatsError,
    },
}

impl Recording {
    /// The runs of one side, one a round; empty for a control that was left out.
    pub fn runs_of(&self, side: Side) -> &[Sample] {
        self.samples.get(&side).map_or(&[], Vec::as_slice)
    }

    /// Compares the sides, metric by metric. `a` and `b` are what the sides are called in
    /// the report. Metrics are those of A's first run.
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

/// What two sides came to, metric by metric. Its `Display` is a table for a terminal;
/// serialised, it holds every run as well, so that others can compute it again.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// What A is called.
    pub a: String,
    /// What B is called.
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
    /// One metric's comparison.
    pub fn metric(&self, name: &str) -> Option<&MetricComparison> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// One metric of both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricComparison {
    /// The metric's name, its unit last.
    pub name: String,
    /// Which direction is the good one.
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
    /// What may be said about it.
    pub verdict: Verdict,
}

impl MetricComparison {
    /// How far from equal the control's interval reaches, as a factor of at least 1; 1.03
    /// means that differences of 3 % mean nothing.
    pub fn control_reach(&self) -> Option<f64> {
        self.control_ratio.map(|control| reach(&control).exp())
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

/// One side's runs of one metric, in the metric's unit.
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

/// One metric of one side, in the order of the rounds.
struct Series {
    runs: Vec<f64>,
    summary: SideSummary,
}

/// What may be said about a metric.
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
    fn of(
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

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedule = &self.recording.schedule;
        writeln!(f, "A = {}, B = {}", self.a, self.b)?;
        writeln!(
            f,
            "{} rounds interleaved{}, {} warm-up rounds dropped; medians, {} intervals",
            schedule.rounds,
            if schedule.control {
                ", with an A/A control"
            } else {
                ", without control"
            },
            schedule.warm_up_rounds,
            percent(self.bootstrap.confidence),
        )?;
        let mut rows = vec![vec![
            "metric".to_owned(),
            "A".to_owned(),
            "B".to_owned(),
            "B/A".to_owned(),
            "interval".to_owned(),
            "A/A".to_owned(),
            "interval".to_owned(),
        ]];
        for metric in &self.metrics {
            let mut row = vec![
                metric.name.clone(),
                figure(metric.a.median),
                figure(metric.b.median),
            ];
            row.extend(ratio_cells(metric.ratio));
            row.extend(ratio_cells(metric.control_ratio));
            rows.push(row);
        }
        write_table(f, &rows)?;
        for metric in &self.metrics {
            writeln!(f, "{}: {}", metric.name, metric.sentence())?;
        }
        for note in &self.notes {
            writeln!(
                f,
                "note on {} of {} runs of {}: {}",
                note.runs, schedule.rounds, note.side, note.text
            )?;
        }
        Ok(())
    }
}

fn ratio_cells(ratio: Option<Estimate>) -> [String; 2] {
    ratio.map_or_else(
        || ["-".to_owned(), "-".to_owned()],
        |r| {
            [
                format!("{:.3}", r.value),
                format!("{:.3}..{:.3}", r.low, r.high),
            ]
        },
    )
}

/// Names to the left, figures to the right.
fn write_table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    for row in rows {
        write!(f, "{:<1$}", row[0], width(0))?;
        for (column, cell) in row.iter().enumerate().skip(1) {
            write!(f, "  {cell:>0$}", width(column))?;
        }
        writeln!(f)?;
    }
    Ok(())
}

/// A figure to four digits, or in full with thousands set apart.
fn figure(value: f64) -> String {
    if !value.is_finite() || value.abs() < 1_000.0 {
        let digits_before = value.abs().max(1.0).log10().floor() as usize + 1;
        return format!("{value:.*}", 4usize.saturating_sub(digits_before));
    }
    let whole = format!("{:.0}", value.abs());
    let mut shown = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

fn percent(share: f64) -> String {
    let shown = format!("{:.1}", share * 100.0);
    format!("{} %", shown.strip_suffix(".0").unwrap_or(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn letters(schedule: &Schedule) -> String {
        let letter = |turn: Turn| match turn.side {
            Side::A => 'A',
            Side::B => 'B',
            Side::Control => 'C',
        };
        schedule.turns().map(letter).collect()
    }

    /// Runs in which B is `factor` times A, on a machine whose speed wanders.
    fn recording(schedule: &Schedule, factor: f64, noise: f64) -> Recording {
        let mut state = 12345u64;
        run(schedule, |turn| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let jitter = ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5) * 2.0 * noise;
            let side = if turn.side == Side::B { factor } else { 1.0 };
            let value = 1000.0 * side * (1.0 + jitter);
            Ok::<_, Infallible>(Sample::new().higher("requests_per_second", value))
        })
        .unwrap()
    }

    fn verdict(rounds: usize, factor: f64, noise: f64) -> Verdict {
        compare(&Schedule::new(rounds), factor, noise).metrics[0].verdict
    }

    fn compare(schedule: &Schedule, factor: f64, noise: f64) -> Comparison {
        recording(schedule, factor, noise)
            .compare(
                "epoll",
                "uring",
                &Bootstrap {
                    resamples: 500,
                    ..Bootstrap::default()
                },
            )
            .unwrap()
    }

    #[test]
    fn the_plain_schedule_is_abba() {
        let schedule = Schedule::new(4).warm_up(0).without_control();
        assert_eq!(letters(&schedule), "ABBAABBA");
    }

    #[test]
    fn the_controlled_schedule_is_as_documented() {
        assert_eq!(letters(&Schedule::new(6).warm_up(0)), "ABCCABBCAACBBACCBA");
    }

    #[test]
    fn warm_up_rounds_come_first_and_are_marked() {
        let schedule = Schedule::new(2).warm_up(2);
        let turns: Vec<Turn> = schedule.turns().collect();
        assert_eq!(turns.len(), schedule.runs());
        assert!(turns[..6].iter().all(|turn| turn.warm_up));
        assert!(turns[6..].iter().all(|turn| !turn.warm_up));
        assert_eq!(turns[6].round, 0);
        assert_eq!(turns[9].round, 1);
    }

    #[test]
    fn a_cycle_is_balanced_in_every_way_it_claims() {
        for schedule in [
            Schedule::new(6).warm_up(0),
            Schedule::new(2).warm_up(0).without_control(),
        ] {
            let order: Vec<Side> = schedule.turns().map(|turn| turn.side).collect();
            let per_round = order.len() / schedule.rounds();
            let mut times: BTreeMap<Side, usize> = BTreeMap::new();
            let mut places: BTreeMap<(Side, usize), usize> = BTreeMap::new();
            let mut follows: BTreeMap<(Side, Side), usize> = BTreeMap::new();
            for (time, side) in order.iter().enumerate() {
                *times.entry(*side).or_default() += time;
                *places.entry((*side, time % per_round)).or_default() += 1;
                // The cycle repeats, so its last run precedes its first.
                let before = order[(time + order.len() - 1) % order.len()];
                *follows.entry((before, *side)).or_default() += 1;
            }
            let all_equal = |counts: Vec<usize>| counts.iter().all(|c| *c == counts[0]);
            assert!(all_equal(times.into_values().collect()));
            assert_eq!(places.len(), per_round * per_round);
            assert!(all_equal(places.into_values().collect()));
            assert_eq!(follows.len(), per_round * per_round);
            assert!(all_equal(follows.into_values().collect()));
        }
    }

    #[test]
    fn the_control_is_as_far_from_a_as_b_is() {
        let distances = |side: Side| {
            let mut found: Vec<isize> = WITH_CONTROL
                .iter()
                .map(|order| {
                    let place = |s| order.iter().position(|o| *o == s).unwrap() as isize;
                    place(side) - place(Side::A)
                })
                .collect();
            assert_eq!(found.iter().sum::<isize>(), 0);
            found.sort_unstable();
            found
        };
        assert_eq!(distances(Side::B), distances(Side::Control));
    }

    #[test]
    fn whole_cycles_round_up() {
        assert_eq!(Schedule::new(7).whole_cycles().rounds(), 12);
        assert_eq!(
            Schedule::new(7).without_control().whole_cycles().rounds(),
            8
        );
        assert_eq!(Schedule::new(0).rounds(), 1);
    }

    #[test]
    fn a_clear_difference_is_shown_with_its_direction() {
        let comparison = compare(&Schedule::new(12), 1.5, 0.02);
        let metric = comparison.metric("requests_per_second").unwrap();
        assert_eq!(metric.verdict, Verdict::Different);
        let sentence = metric.sentence();
        assert!(sentence.contains("higher, better"), "{sentence}");
        assert!((metric.ratio.unwrap().value - 1.5).abs() < 0.05);
        assert!(metric.control_reach().unwrap() < 1.05);
    }

    #[test]
    fn a_difference_like_the_controls_means_nothing() {
        // All of B's runs are 2 % faster, but the control wanders by much more.
        let schedule = Schedule::new(12);
        let recording = run(&schedule, |turn| {
            let value = match turn.side {
                Side::A => 100.0,
                Side::B => 102.0,
                Side::Control => 100.0 + if turn.round % 2 == 0 { 9.0 } else { -9.0 },
            };
            Ok::<_, Infallible>(Sample::new().lower("cpu_ns", value))
        });
        let comparison = recording
            .unwrap()
            .compare("a", "b", &Bootstrap::default())
            .unwrap();
        assert_eq!(comparison.metrics[0].verdict, Verdict::WithinControl);
        assert!(comparison.metrics[0].sentence().contains("means nothing"));
    }

    #[test]
    fn equal_sides_show_no_difference() {
        assert_eq!(verdict(30, 1.0, 0.1), Verdict::NoDifference);
    }

    #[test]
    fn too_few_rounds_are_said_to_be_too_few() {
        assert_eq!(verdict(5, 2.0, 0.01), Verdict::TooFewRounds);
        assert_eq!(verdict(6, 2.0, 0.01), Verdict::Different);
    }

    #[test]
    fn without_control_the_verdict_says_so() {
        let comparison = compare(&Schedule::new(12).without_control(), 0.5, 0.02);
        assert_eq!(
            comparison.metrics[0].verdict,
            Verdict::DifferentUncontrolled
        );
        assert!(
            comparison.metrics[0]
                .sentence()
                .contains("lower, worse; no control")
        );
        assert_eq!(comparison.metrics[0].control_ratio, None);
        assert!(comparison.recording.runs_of(Side::Control).is_empty());
    }

    #[test]
    fn a_measured_zero_has_no_ratio() {
        assert_eq!(verdict(12, 0.0, 0.01), Verdict::NoRatio);
    }

    #[test]
    fn warm_up_runs_are_dropped() {
        let recording = run(&Schedule::new(6).warm_up(2), |turn| {
            let value = if turn.warm_up { 1e6 } else { 1.0 };
            Ok::<_, Infallible>(Sample::new().lower("ns", value))
        })
        .unwrap();
        for side in [Side::A, Side::B, Side::Control] {
            let values: Vec<_> = recording
                .runs_of(side)
                .iter()
                .map(|s| s.value("ns"))
                .collect();
            assert_eq!(values, vec![Some(1.0); 6]);
        }
    }

    #[test]
    fn the_first_failed_run_ends_the_comparison() {
        let mut runs = 0;
        let failed = run(&Schedule::new(6).warm_up(1), |turn| {
            runs += 1;
            if turn.round == 1 && turn.side == Side::B {
                return Err(std::io::Error::other("connection lost"));
            }
            Ok(Sample::new().lower("ns", 1.0))
        })
        .unwrap_err();
        assert_eq!(runs, 9);
        assert_eq!(failed.to_string(), "run of side B in round 1 failed");
        assert_eq!(failed.source.to_string(), "connection lost");
    }

    #[test]
    fn a_missing_or_unusable_metric_is_an_error() {
        let missing = run(&Schedule::new(6), |turn| {
            let sample = Sample::new().lower("ns", 1.0);
            Ok::<_, Infallible>(match (turn.side, turn.round) {
                (Side::Control, 3) => Sample::new(),
                _ => sample,
            })
        });
        assert_eq!(
            missing.unwrap().compare("a", "b", &Bootstrap::default()),
            Err(CompareError::Missing {
                metric: "ns".to_owned(),
                side: Side::Control,
                round: 3
            })
        );
        let unusable = run(&Schedule::new(6), |turn| {
            let value = if turn.side == Side::Control {
                f64::NAN
            } else {
                1.0
            };
            Ok::<_, Infallible>(Sample::new().lower("ns", value))
        });
        let err = unusable
            .unwrap()
            .compare("a", "b", &Bootstrap::default())
            .unwrap_err();
        assert!(matches!(
            err,
            CompareError::Unusable {
                side: Side::Control,
                ..
            }
        ));
    }

    #[test]
    fn equal_notes_are_counted_by_side() {
        let recording = run(&Schedule::new(6), |turn| {
            let sample = Sample::new().lower("ns", 1.0);
            Ok::<_, Infallible>(match turn.side {
                Side::B if turn.round < 4 => sample.note("server not saturated"),
                _ => sample,
            })
        });
        let comparison = recording
            .unwrap()
            .compare("a", "b", &Bootstrap::default())
            .unwrap();
        assert_eq!(
            comparison.notes,
            [Note {
                side: Side::B,
                text: "server not saturated".to_owned(),
                runs: 4
            }]
        );
        let text = comparison.to_string();
        assert!(
            text.contains("note on 4 of 6 runs of B: server not saturated"),
            "{text}"
        );
    }

    #[test]
    fn the_table_lines_up_and_shows_every_metric() {
        let text = compare(&Schedule::new(12), 1.5, 0.02).to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "A = epoll, B = uring");
        assert!(lines[1].starts_with("12 rounds interleaved, with an A/A control, 1 warm-up"));
        assert_eq!(lines[2].len(), lines[3].len());
        assert!(lines[3].starts_with("requests_per_second"));
        assert!(lines[4].starts_with("requests_per_second: B is "));
    }

    #[test]
    fn the_json_holds_verdict_and_every_run() {
        let json = serde_json::to_value(compare(&Schedule::new(6), 1.5, 0.02)).unwrap();
        let metric = &json["metrics"][0];
        assert_eq!(metric["name"], "requests_per_second");
        assert_eq!(metric["better"], "higher");
        assert_eq!(metric["verdict"], "different");
        assert!(metric["sentence"].as_str().unwrap().starts_with("B is"));
        assert!(metric["ratio"]["low"].as_f64().unwrap() > 1.0);
        for side in ["a", "b", "control"] {
            let runs = json["recording"]["samples"][side].as_array().unwrap();
            assert_eq!(runs.len(), 6);
            assert!(runs[0]["requests_per_second"].as_f64().unwrap() > 900.0);
        }
        assert_eq!(json["recording"]["schedule"]["control"], true);
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(figure(0.0), "0.000");
        assert_eq!(figure(0.9712), "0.971");
        assert_eq!(figure(12.3456), "12.35");
        assert_eq!(figure(999.4), "999.4");
        assert_eq!(figure(1234567.8), "1,234,568");
        assert_eq!(figure(-1000.0), "-1,000");
        assert_eq!(percent(0.95), "95 %");
        assert_eq!(percent(0.0123), "1.2 %");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn every_side_runs_once_a_round(rounds in 1usize..40, warm_up in 0usize..4, control: bool) {
            let schedule = Schedule::new(rounds).warm_up(warm_up);
            let schedule = if control { schedule } else { schedule.without_control() };
            let mut seen: BTreeMap<(bool, usize, Side), usize> = BTreeMap::new();
            for turn in schedule.turns() {
                *seen.entry((turn.warm_up, turn.round, turn.side)).or_default() += 1;
            }
            prop_assert_eq!(seen.len(), schedule.runs());
            prop_assert!(seen.values().all(|times| *times == 1));
        }

        #[test]
        fn no_difference_is_shown_where_the_control_behaves_as_badly(
            runs in prop::collection::vec((0.5..2.0f64, 0.5..2.0f64), 6..20),
        ) {
            // B and the control measure the very same, so B must never be called different.
            let recording = run(&Schedule::new(runs.len()).warm_up(0), |turn| {
                let (a, other) = runs[turn.round];
                let value = if turn.side == Side::A { a } else { other };
                Ok::<_, Infallible>(Sample::new().lower("ns", value))
            });
            let bootstrap = Bootstrap { resamples: 100, ..Bootstrap::default() };
            let comparison = recording.unwrap().compare("a", "b", &bootstrap).unwrap();
            prop_assert_ne!(comparison.metrics[0].verdict, Verdict::Different);
        }
    }
}
