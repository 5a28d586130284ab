//! The type of a metric.

/// How the value of a metric moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A value that only grows; zero when the process starts.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Observations counted by their size, with these upper bounds, and a last one without.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The name of the kind in Prometheus's text format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        }
    }
}

/// One metric: a family of values that differ in their labels.
#[derive(Debug)]
pub struct Metric {
    /// Name of the metric, with its base unit behind it, and `_total` if it is a counter.
    pub name: &'static str,
    /// The kind of the metric: counter, gauge or histogram.
    pub kind: Kind,
    /// The names of the metric's labels.
    pub labels: &'static [&'static str],
    /// The meaning of the metric, in one sentence.
    pub help: &'static str,
}

/// Declares metrics, and a list of them. A counter of a service is found by its name, which is that of the metric
/// (`tidewire_SERVICE_NAME_total`) or stands behind `of`; with a `*` at the end, the rest is the value of the last label.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $ident:ident = $kind:ident $(($bounds:expr))? $name:literal [$($label:literal),*]
        $(of $counter:literal)?;)*) => {
        $(
            $(#[doc = $help])+
            pub static $ident: $crate::Metric = $crate::Metric {
                name: $name,
                kind: $crate::Kind::$kind $(($bounds))?,
                labels: &[$($label),*],
                help: concat!($($help),+),
            };
        )*

        /// All metrics of this file, in the order in which they are shown.
        pub static ALL: &[&$crate::Metric] = &[$(&$ident),*];

        /// The metric as which a counter of the service is shown, and the value of its last label if the counter's
        /// name says that.
        #[must_use]
        pub fn of_counter(name: &str) -> Option<(&'static $crate::Metric, Option<&str>)> {
            $crate::metric::of_counter(ALL, &[$($(($counter, &$ident),)?)*], name)
        }
    };
}

pub(crate) use metrics;

pub(crate) fn of_counter<'a>(
    all: &[&'static Metric],
    named: &[(&str, &'static Metric)],
    name: &'a str,
) -> Option<(&'static Metric, Option<&'a str>)> {
    let called = |metric: &&&'static Metric| {
        let own = metric
            .name
            .strip_prefix("tidewire_")
            .and_then(|own| own.split_once('_'));
        own.and_then(|(_, own)| own.strip_suffix("_total")) == Some(name)
    };
    let exact = named
        .iter()
        .find(|(of, _)| *of == name)
        .map(|(_, metric)| *metric);
    if let Some(metric) = exact.or_else(|| all.iter().find(called).copied()) {
        return Some((metric, None));
    }
    named.iter().find_map(|(of, metric)| {
        let label = name.strip_prefix(of.strip_suffix('*')?)?;
        Some((*metric, Some(label)))
    })
}
