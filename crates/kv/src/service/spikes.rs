//! Events that took longer than they should, kept for LATENCY.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Samples of each kind of event that are kept.
pub(super) const SAMPLES: usize = 160;

/// Durations of slow events, by the kind of event.
#[derive(Debug, Default)]
pub(crate) struct Spikes(Mutex<BTreeMap<&'static str, Series>>);

/// One sample is the longest event of its second.
#[derive(Debug, Default)]
pub(super) struct Series {
    /// Seconds since 1970, and milliseconds.
    pub(super) samples: VecDeque<(u64, u64)>,
    pub(super) longest_ms: u64,
}

impl Spikes {
    /// Keeps one.
    #[cold]
    pub(crate) fn add(&self, event: &'static str, at_s: u64, ms: u64) {
        let mut all = self.all();
        let series = all.entry(event).or_default();
        series.longest_ms = series.longest_ms.max(ms);
        match series.samples.back_mut() {
            Some((second, longest)) if *second == at_s => *longest = ms.max(*longest),
            _ => {
                series.samples.push_back((at_s, ms));
                if series.samples.len() > SAMPLES {
                    series.samples.pop_front();
                }
            }
        }
    }

    pub(super) fn all(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
