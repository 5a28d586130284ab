//! The plan of a run.

use serde::Serialize;

use super::arrivals::Arrivals;
use super::extent::Extent;
use super::load::Workload;

/// The plan of a run: a load, on how many connections, when each message is sent, and for how long.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The messages to send.
    pub workload: Workload,
    /// How many connections there are, at least 1.
    pub connections: usize,
    /// When each message is sent.
    pub arrivals: Arrivals,
    /// How long.
    pub extent: Extent,
}

impl Plan {
    /// One message in flight in all: neither side is busy, whatever is measured.
    pub fn is_lock_step(&self) -> bool {
        self.connections == 1 && self.workload.is_lock_step()
    }
}
