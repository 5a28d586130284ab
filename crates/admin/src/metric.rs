//! What a metric is.

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
    /// The word for it in Prometheus's text format.
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
    /// How it moves.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means, in one sentence.
    pub help: &'static str,
}

/// Declares metrics, and a list of them.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $ident:ident = $kind:ident $(($bounds:expr))? $name:literal [$($label:literal),*];)*) => {
        $(
            $(#[doc = $help])+
            pub static $ident: $crate::Metric = $crate::Metric {
                name: $name,
                kind: $crate::Kind::$kind $(($bounds))?,
                labels: &[$($label),*],
                help: concat!($($help),+),
            };
        )*

        /// All of these, in the order in which they are shown.
        pub static ALL: &[&$crate::Metric] = &[$(&$ident),*];
    };
}

pub(crate) use metrics;
