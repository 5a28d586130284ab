//! When a graceful stop gives up, shared by all loops.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::time::{Clock, Instant};

/// The deadline of a stop; only ever moved closer.
#[derive(Debug)]
pub(crate) struct StopClock(AtomicU64);

impl Default for StopClock {
    fn default() -> StopClock {
        StopClock(AtomicU64::new(u64::MAX))
    }
}

impl StopClock {
    pub(crate) fn set(&self, from_now: Duration) {
        let at = Clock::System.monotonic() + from_now;
        self.0.fetch_min(at.as_nanos(), SeqCst);
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.0.load(SeqCst))
    }
}
