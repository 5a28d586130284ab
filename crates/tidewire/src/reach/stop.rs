//! When a graceful stop gives up, and what it leaves to a successor; shared by all loops.

use std::time::Duration;

use crate::reach::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use crate::vocabulary::time::{Clock, Instant};

/// How a stop is to go. Its deadline is only ever moved closer.
#[derive(Debug)]
pub(crate) struct StopClock {
    deadline_ns: AtomicU64,
    /// A successor accepts from the same queues: what waits there is its.
    succeeded: AtomicBool,
}

impl Default for StopClock {
    fn default() -> StopClock {
        StopClock {
            deadline_ns: AtomicU64::new(u64::MAX),
            succeeded: AtomicBool::new(false),
        }
    }
}

impl StopClock {
    pub(crate) fn set(&self, from_now: Duration) {
        self.set_at(Clock::System.monotonic() + from_now);
    }

    pub(crate) fn set_at(&self, at: Instant) {
        self.deadline_ns.fetch_min(at.as_nanos(), SeqCst);
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline_ns.load(SeqCst))
    }

    /// The listeners were handed over.
    pub(crate) fn succeed(&self) {
        self.succeeded.store(true, SeqCst);
    }

    pub(crate) fn is_succeeded(&self) -> bool {
        self.succeeded.load(SeqCst)
    }
}
