//! How long a load is.

use std::time::Duration;

use serde::Serialize;

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The length of a run as a time.
    Time {
        /// Load that is not measured, before.
        warm_up: Duration,
        /// Load that is measured.
        measured: Duration,
    },
    /// Number of messages, over all connections.
    Count(u64),
    /// The rounds that the workload names; nothing if it names none.
    Rounds,
}
