//! The values of metrics at one moment.

use crate::metric::{Kind, Metric};

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Count(u64),
    /// Any other.
    Number(f64),
    /// The number of observations in each bucket of the metric and above the last bound, and the
    /// sum of all observations.
    Histogram {
        /// Observations in each bucket, not cumulative.
        buckets: Vec<u64>,
        /// The sum of the observations, in the metric's unit.
        sum: f64,
    },
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Count(n)
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        Value::Count(n as u64)
    }
}

impl From<f64> for Value {
    fn from(n: f64) -> Value {
        Value::Number(n)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Count(u64::from(is))
    }
}

/// A value of a metric, with the labels of the value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Values of the labels, in the order of the metric's labels.
    pub labels: Vec<String>,
    /// The value.
    pub value: Value,
}

/// The values of all metrics at one moment.
///
/// ```
/// use tidewire_admin::{Kind, Metric, Snapshot};
///
/// static CALLS: Metric =
///     Metric { name: "calls_total", kind: Kind::Counter, labels: &["who"], help: "Calls." };
///
/// let mut snapshot = Snapshot::default();
/// snapshot.add(&CALLS, &["me"], 3_u64);
/// assert_eq!(
///     snapshot.to_prometheus(),
///     "# HELP calls_total Calls.\n# TYPE calls_total counter\ncalls_total{who=\"me\"} 3\n"
/// );
/// ```
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    families: Vec<(&'static Metric, Vec<Sample>)>,
}

impl Snapshot {
    /// Adds the value of a counter, as the metric that the catalogue has for it; false if there is none.
    ///
    /// # Panics
    /// As [`add`](Snapshot::add) does.
    pub fn count(
        &mut self,
        metric: Option<(&'static Metric, Option<&str>)>,
        labels: &[&str],
        n: u64,
    ) -> bool {
        let Some((metric, last)) = metric else {
            return false;
        };
        let labels: Vec<&str> = labels.iter().copied().chain(last).collect();
        self.add(metric, &labels, n);
        true
    }

    /// Adds a value. A value with labels that are there already is added to the present one, so that
    /// services with one name are shown as one.
    ///
    /// # Panics
    /// If there are not as many labels as the metric has, or a histogram has other buckets.
    pub fn add(&mut self, metric: &'static Metric, labels: &[&str], value: impl Into<Value>) {
        let value = value.into();
        assert_eq!(
            labels.len(),
            metric.labels.len(),
            "labels of {}",
            metric.name
        );
        if let (Kind::Histogram(bounds), Value::Histogram { buckets, .. }) = (metric.kind, &value) {
            assert_eq!(
                buckets.len(),
                bounds.len() + 1,
                "buckets of {}",
                metric.name
            );
        }
        // Mostly the family that was added last gets the next sample.
        let at = self
            .families
            .iter()
            .rposition(|(known, _)| std::ptr::eq(*known, metric));
        let at = at.unwrap_or_else(|| {
            self.families.push((metric, Vec::new()));
            self.families.len() - 1
        });
        let samples = &mut self.families[at].1;
        match samples.iter_mut().find(|sample| sample.labels == labels) {
            Some(sample) => sum(&mut sample.value, &value),
            None => samples.push(Sample {
                labels: labels.iter().map(ToString::to_string).collect(),
                value,
            }),
        }
    }

    /// Every metric that has values, with its values.
    pub fn families(&self) -> impl Iterator<Item = (&'static Metric, &[Sample])> {
        self.families
            .iter()
            .map(|(metric, samples)| (*metric, &samples[..]))
    }
}

fn sum(to: &mut Value, value: &Value) {
    match (to, value) {
        (Value::Count(to), Value::Count(n)) => *to = to.wrapping_add(*n),
        (Value::Number(to), Value::Number(n)) => *to += n,
        (
            Value::Histogram { buckets, sum },
            Value::Histogram {
                buckets: more,
                sum: s,
            },
        ) => {
            for (to, n) in buckets.iter_mut().zip(more) {
                *to += n;
            }
            *sum += s;
        }
        (to, value) => *to = value.clone(),
    }
}
