//! Making the runs of a schedule, and keeping them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sample::Sample;
use super::schedule::{Schedule, Side, Turn};

/// A run that failed; the comparison ends with it.
#[derive(Debug, thiserror::Error)]
#[error("run of side {side} in {} {round} failed", if *.warm_up { "warm-up round" } else { "round" })]
pub struct RunFailed<E: std::error::Error + 'static> {
    /// The side that was run.
    pub side: Side,
    /// Round of the run, from 0.
    pub round: usize,
    /// Whether the round was a warm-up.
    pub warm_up: bool,
    /// The error behind this error.
    pub source: E,
    /// The whole rounds before it, if there are any.
    pub so_far: Option<Recording>,
}

/// Makes all runs of a schedule, one after another, and keeps the runs that count.
///
/// `one_run` makes a run of the side that it is given. `one_run` has to bound its own time.
///
/// # Errors
/// The first failed run ends the comparison: leaving it out would compare unequal rounds. The error
/// contains the earlier rounds, for a caller that has ended the comparison on purpose.
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
        let sample = match one_run(turn) {
            Ok(sample) => sample,
            Err(source) => {
                let whole = if turn.warm_up { 0 } else { turn.round };
                return Err(RunFailed {
                    side: turn.side,
                    round: turn.round,
                    warm_up: turn.warm_up,
                    source,
                    so_far: recording.first(whole),
                });
            }
        };
        if !turn.warm_up {
            recording.samples.entry(turn.side).or_default().push(sample);
        }
    }
    Ok(recording)
}

/// The counted runs of a schedule: for each side one sample a round, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recording {
    pub(super) schedule: Schedule,
    pub(super) samples: BTreeMap<Side, Vec<Sample>>,
}

impl Recording {
    /// Runs that were made elsewhere: one run of each side a round, in order; without runs of a
    /// control, there is no control.
    ///
    /// # Panics
    /// If the sides have not the same number of runs.
    pub fn of(a: Vec<Sample>, b: Vec<Sample>, control: Vec<Sample>) -> Recording {
        assert_eq!(a.len(), b.len(), "rounds have a run of each side");
        let mut schedule = Schedule::new(a.len()).warm_up(0);
        let mut samples = BTreeMap::from([(Side::A, a), (Side::B, b)]);
        if control.is_empty() {
            schedule = schedule.without_control();
        } else {
            assert_eq!(
                control.len(),
                samples[&Side::A].len(),
                "as does the control"
            );
            samples.insert(Side::Control, control);
        }
        Recording { schedule, samples }
    }

    /// The first rounds only, if there are any.
    fn first(mut self, rounds: usize) -> Option<Recording> {
        for samples in self.samples.values_mut() {
            samples.truncate(rounds);
        }
        self.schedule.rounds = rounds;
        (rounds > 0).then_some(self)
    }

    /// The recording without metrics that any of the runs lacks.
    #[must_use]
    pub fn common(mut self) -> Recording {
        let all = || self.samples.values().flatten();
        let everywhere = |name: &str| all().all(|sample| sample.value(name).is_some());
        let first = all().next().map(|sample| sample.metrics.clone());
        let mut names: Vec<String> = Vec::new();
        for (name, ..) in first.unwrap_or_default() {
            if everywhere(&name) {
                names.push(name);
            }
        }
        for sample in self.samples.values_mut().flatten() {
            sample.metrics.retain(|(name, ..)| names.contains(name));
        }
        self
    }

    /// The runs of one side, one a round; empty for a control that was not run.
    pub fn runs_of(&self, side: Side) -> &[Sample] {
        self.samples.get(&side).map_or(&[], Vec::as_slice)
    }
}
