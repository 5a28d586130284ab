//! A snapshot as JSON: what the dashboard, `tidewire info` and `tidewire top` are drawn from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metric::Kind;
use crate::snapshot::{Snapshot, Value};

/// The content of `/stats.json`.
///
/// ```
/// use tidewire_admin::{Page, Snapshot, catalogue};
///
/// let mut snapshot = Snapshot::default();
/// snapshot.add(&catalogue::server::CONNECTIONS_OPEN, &["echo", "loop-0"], 3_u64);
/// snapshot.add(&catalogue::server::CONNECTIONS_OPEN, &["echo", "loop-1"], 4_u64);
/// let mut page = Page::default();
/// page.set_metrics(&snapshot);
/// assert_eq!(page.sum("tidewire_connections_open", &[("service", "echo")]), 7.0);
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Page {
    /// Version of the server.
    pub version: String,
    /// Id of the server's process.
    pub pid: u32,
    /// The time at which the page was made: seconds since 1970.
    pub time: f64,
    /// How long the server has run.
    pub uptime_seconds: f64,
    /// The engine of the loops, and why this engine was chosen.
    pub engine: String,
    /// Why this engine was chosen.
    pub engine_reason: String,
    /// `recovering`, `serving` or `draining`.
    pub state: String,
    /// The server's present work in this stage, and its progress; empty if there is nothing to
    /// report.
    pub doing: String,
    /// The addresses on which the server listens, in the order of the banner.
    pub listeners: Vec<Listener>,
    /// Every metric that has values, by its name.
    pub metrics: BTreeMap<String, Vec<Point>>,
}

/// A place where a server listens.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listener {
    /// Name of the service, such as `echo` or `ack/sync`.
    pub service: String,
    /// An address, or the path of a Unix socket.
    pub addr: String,
}

/// A value of a metric, with the labels of the value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Point {
    /// The labels of the value, by their names.
    pub labels: BTreeMap<String, String>,
    /// The value; how many observations, if it is a histogram.
    pub value: f64,
    /// Buckets of a histogram: how many observations fell up to each bound and above the one
    /// before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Vec<Bucket>>,
}

/// A part of a histogram.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// The upper bound of the bucket; `None` for the last one.
    pub le: Option<f64>,
    /// Number of observations in the bucket.
    pub count: u64,
}

impl Page {
    /// Fills in the metrics.
    pub fn set_metrics(&mut self, snapshot: &Snapshot) {
        for (metric, samples) in snapshot.families() {
            let points = samples.iter().map(|sample| {
                let labels = metric.labels.iter().map(ToString::to_string);
                let (value, buckets) = match (&sample.value, metric.kind) {
                    (Value::Count(n), _) => (*n as f64, None),
                    (Value::Number(n), _) => (*n, None),
                    (Value::Histogram { buckets, .. }, kind) => {
                        let bounds = match kind {
                            Kind::Histogram(bounds) => bounds,
                            Kind::Counter | Kind::Gauge => &[],
                        };
                        let bucket = |(i, &count)| Bucket {
                            le: bounds.get(i).copied(),
                            count,
                        };
                        let all = buckets.iter().enumerate().map(bucket).collect();
                        (buckets.iter().sum::<u64>() as f64, Some(all))
                    }
                };
                Point {
                    labels: labels.zip(sample.labels.iter().cloned()).collect(),
                    value,
                    buckets,
                }
            });
            self.metrics
                .insert(metric.name.to_owned(), points.collect());
        }
    }

    /// The values of a metric that have these labels.
    pub fn points<'a>(
        &'a self,
        metric: &str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Point> {
        let points = self.metrics.get(metric).map_or(&[][..], Vec::as_slice);
        points.iter().filter(|point| {
            let has = |(name, value): &(&str, &str)| {
                point.labels.get(*name).is_some_and(|is| is == value)
            };
            labels.iter().all(has)
        })
    }

    /// The sum of a metric's values with these labels; 0 if there are none.
    #[must_use]
    pub fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        self.points(metric, labels).map(|point| point.value).sum()
    }
}
