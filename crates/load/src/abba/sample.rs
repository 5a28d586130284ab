//! The metrics of one run.

use serde::{Serialize, Serializer};

use crate::histogram::LatencySummary;

/// Whether a high or a low value of a metric is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better: requests per second.
    Higher,
    /// Less is better: latencies, CPU per request.
    Lower,
    /// Neither is better: how busy a core was.
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
    pub(super) metrics: Vec<(String, f64, Better)>,
    pub(super) notes: Vec<String>,
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

    /// Names and values, in their order.
    pub fn metrics(&self) -> impl Iterator<Item = (&str, f64)> {
        self.metrics
            .iter()
            .map(|(name, value, _)| (&**name, *value))
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
    /// Serialised as a map from name to value; the comparison writes the notes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.metrics.iter().map(|(name, value, _)| (name, value)))
    }
}
