//! Findings of a run beside counts and latencies: events that no percentile shows, and differences in work between two
//! servers whose replies are all valid.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The findings of one loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Findings {
    pub(super) reads: Reads,
    pub(super) reconnects: Reconnects,
    /// The longest time in which nothing was answered while messages were owed a reply.
    pub(super) gap: Duration,
}

impl Findings {
    pub(super) fn merge(&mut self, other: &Findings) {
        self.reads.add(other.reads.hits, other.reads.misses);
        self.reconnects.merge(&other.reconnects);
        self.gap(other.gap);
    }

    #[inline]
    pub(super) fn gap(&mut self, gap: Duration) {
        self.gap = self.gap.max(gap);
    }
}

/// A load that goes on over another connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    /// Messages that are sent again.
    pub(super) resent: u64,
    /// Whether the server had said that it would close.
    pub(super) announced: bool,
    /// Connections in a row that were of no use: the next one waits a little.
    pub(super) barren: u32,
}

/// Reads of a key-value load during the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// Reads that found something, and replies to pushes and increments that had risen.
    pub hits: u64,
    /// Reads that found nothing, and replies to pushes and increments that had not risen.
    pub misses: u64,
}

impl Reads {
    #[inline]
    pub(super) fn add(&mut self, hits: u64, misses: u64) {
        self.hits += hits;
        self.misses += misses;
    }

    /// The share of misses, 0 to 1; `None` without a read.
    pub fn miss_share(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| self.misses as f64 / all as f64)
    }
}

/// What replies say of the work that was done for them, though each is a good one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Reads that found something and nothing.
    pub reads: Reads,
    /// Bytes of one reply's body to each request of an HTTP load together, where each was answered with a body.
    pub body_bytes: Option<u64>,
}

impl Work {
    /// Adds the work of another run of one load.
    pub fn add(&mut self, other: &Work) {
        self.reads.add(other.reads.hits, other.reads.misses);
        self.body_bytes = other.body_bytes.or(self.body_bytes);
    }
}

/// Connections that took the place of others, from the beginning of the load on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconnects {
    /// How many.
    pub connections: u64,
    /// Messages that were sent again on them, because the one before had ended without a reply to them.
    pub resent: u64,
    /// Requests among them that were in flight when the server closed without having said that it
    /// would.
    pub unannounced: u64,
    /// Messages that were lost with a connection, where that does not end the run.
    pub lost: u64,
}

impl Reconnects {
    pub(super) fn moved(&mut self, moved: &Moved) {
        self.connections += 1;
        self.resent += moved.resent;
        self.unannounced += if moved.announced { 0 } else { moved.resent };
    }

    pub(super) fn lost(&mut self, messages: u64) {
        self.connections += 1;
        self.lost += messages;
    }

    fn merge(&mut self, other: &Reconnects) {
        self.connections += other.connections;
        self.resent += other.resent;
        self.unannounced += other.unannounced;
        self.lost += other.lost;
    }
}
