//! When a graceful stop gives up, and what it leaves to a successor; shared by all loops.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::clock::Clock;
use crate::reach::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::vocabulary::time::Instant;

thread_local! {
    /// The clock of the loops that this thread is one of.
    static HERE: Cell<*const StopClock> = const { Cell::new(std::ptr::null()) };
}

/// Held by a loop for as long as it takes connections in.
#[derive(Debug)]
pub(crate) struct Open(Arc<StopClock>);

impl Open {
    pub(crate) fn of(clock: &Arc<StopClock>) -> Open {
        clock.open.fetch_add(1, SeqCst);
        Open(clock.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

/// How a stop is to go. Its deadline is only ever moved closer.
#[derive(Debug)]
pub(crate) struct StopClock {
    deadline_ns: AtomicU64,
    /// A successor accepts from the same queues: what waits there is its.
    succeeded: AtomicBool,
    /// Somebody else has the listeners too, or may have.
    shared: AtomicBool,
    /// Loops that have not come to their last look for whoever wants in.
    open: AtomicUsize,
}

impl Default for StopClock {
    fn default() -> StopClock {
        StopClock {
            deadline_ns: AtomicU64::new(u64::MAX),
            succeeded: AtomicBool::new(false),
            shared: AtomicBool::new(false),
            open: AtomicUsize::new(0),
        }
    }
}

impl StopClock {
    /// The calling thread is one of the loops that this is the clock of.
    pub(crate) fn runs_here(self: &Arc<StopClock>) {
        HERE.set(Arc::as_ptr(self));
    }

    /// Whether the calling thread is one of those loops: it must not wait for their end, which would have to wait for it.
    pub(crate) fn is_here(self: &Arc<StopClock>) -> bool {
        HERE.get() == Arc::as_ptr(self)
    }

    pub(crate) fn set(&self, from_now: Duration) {
        self.set_at(Clock::System.monotonic() + from_now);
    }

    pub(crate) fn set_at(&self, at: Instant) {
        self.deadline_ns.fetch_min(at.as_nanos(), SeqCst);
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline_ns.load(SeqCst))
    }

    /// Whether a loop still takes connections in.
    pub(crate) fn any_open(&self) -> bool {
        self.open.load(SeqCst) > 0
    }

    /// The listeners were handed over.
    pub(crate) fn succeed(&self) {
        self.succeeded.store(true, SeqCst);
    }

    /// Duplicates of the listeners are given away.
    pub(crate) fn share(&self) {
        self.shared.store(true, SeqCst);
    }

    /// Nobody has the duplicates any more.
    pub(crate) fn unshare(&self) {
        self.shared.store(false, SeqCst);
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(SeqCst)
    }

    pub(crate) fn is_succeeded(&self) -> bool {
        self.succeeded.load(SeqCst)
    }
}
