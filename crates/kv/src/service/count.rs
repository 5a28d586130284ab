//! The simplest of all counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A count that one thread adds to and others read.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds to the counter; only the loop that owns the counter may call this.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
