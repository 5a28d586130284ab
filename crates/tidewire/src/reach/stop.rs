//! The deadline of a graceful stop, and what the stop leaves to a successor; shared by all loops.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::clock::Clock;
use crate::kernel::descriptor::Descriptor;
use crate::reach::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use crate::reach::sync::{Mutex, lock};
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

/// A connection of which nothing was read, on its way to a successor.
#[derive(Debug)]
pub(crate) struct PassedOn {
    /// The number of the listener that accepted the connection.
    pub(crate) listener: u32,
    pub(crate) socket: Descriptor,
}

/// How a stop is to go. The deadline of a stop is only ever moved closer.
#[derive(Debug)]
pub(crate) struct StopClock {
    deadline_ns: AtomicU64,
    /// When connections of `unserved_of` that were never served are no longer waited for.
    unserved_ns: AtomicU64,
    /// A bit for each service: see [`service_bit`](crate::reactor::env::service_bit).
    unserved_of: AtomicU64,
    /// Whether a successor accepts from the same queues: connections that wait there are the
    /// successor's.
    succeeded: AtomicBool,
    /// The successor takes connections as well, of which nothing was read.
    passes_on: AtomicBool,
    /// Connections that the successor has not been given yet.
    passed_on: Mutex<Vec<PassedOn>>,
    /// Another process has the listeners too, or may have.
    shared: AtomicBool,
    /// Loops that have not come to their last look for new clients.
    open: AtomicUsize,
}

impl Default for StopClock {
    fn default() -> StopClock {
        StopClock {
            deadline_ns: AtomicU64::new(u64::MAX),
            unserved_ns: AtomicU64::new(u64::MAX),
            unserved_of: AtomicU64::new(0),
            succeeded: AtomicBool::new(false),
            passes_on: AtomicBool::new(false),
            passed_on: Mutex::new(Vec::new()),
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

    /// Whether the calling thread is a loop of any server.
    pub(crate) fn is_any_here() -> bool {
        !HERE.get().is_null()
    }

    /// Whether the calling thread runs one of the loops that stop. A thread of a stopping loop must not wait for the
    /// end of the loops: the loop could not end while the thread waits.
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

    /// A stop waits until then for connections of these services that were never served.
    pub(crate) fn limit_unserved(&self, services: u64, until: Instant) {
        self.unserved_of.store(services, SeqCst);
        self.unserved_ns.store(until.as_nanos(), SeqCst);
    }

    /// When the services of [`given_up`](StopClock::given_up) change; none where they never do.
    pub(crate) fn unserved_until(&self) -> Option<Instant> {
        let ns = self.unserved_ns.load(SeqCst);
        (ns != u64::MAX).then(|| Instant::from_nanos(ns))
    }

    /// The services whose unserved connections are no longer waited for at this time; a bit for each.
    pub(crate) fn given_up(&self, now: Instant) -> u64 {
        match self.unserved_until() {
            Some(until) if until <= now => self.unserved_of.load(SeqCst),
            _ => 0,
        }
    }

    /// Whether a loop still takes connections in.
    pub(crate) fn any_open(&self) -> bool {
        self.open.load(SeqCst) > 0
    }

    /// The listeners were handed over.
    pub(crate) fn succeed(&self) {
        self.succeeded.store(true, SeqCst);
    }

    /// Connections of which nothing was read go to the successor, too.
    pub(crate) fn pass_on_unserved(&self) {
        self.passes_on.store(true, SeqCst);
    }

    pub(crate) fn passes_on(&self) -> bool {
        self.passes_on.load(SeqCst)
    }

    /// Connections that a loop has let go of.
    pub(crate) fn pass_on(&self, some: &mut Vec<PassedOn>) {
        if !some.is_empty() {
            lock(&self.passed_on).append(some);
        }
    }

    pub(crate) fn take_passed_on(&self) -> Vec<PassedOn> {
        std::mem::take(&mut *lock(&self.passed_on))
    }

    /// Duplicates of the listeners are given away.
    pub(crate) fn share(&self) {
        self.shared.store(true, SeqCst);
    }

    /// Notes that no other process has the duplicates any more.
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
