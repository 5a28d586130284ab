//! Counters of a pool: work done, and work that waits.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A look at a pool. Times are sums over all work, and zero where work is not done on threads.
///
/// ```
/// use tidewire_pool::{Counters, Pool};
///
/// let counters: Counters = Pool::inline().counters();
/// assert_eq!((counters.places, counters.done), (0, 0));
/// println!("{counters}"); // a line for a log
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Places that are taken now: reserved, waiting or running.
    pub places: usize,
    /// Pieces of work that run now.
    pub running: usize,
    /// Pieces of work that were done, panics included.
    pub done: u64,
    /// Jobs among them that panicked.
    pub panicked: u64,
    /// Pieces of work that were not done because their connection had gone, or the pool was stopped.
    pub dropped: u64,
    /// Refusals because all places of the pool were taken.
    pub refused_pool: u64,
    /// Refusals because a loop's mailbox had no place for the answer.
    pub refused_mailbox: u64,
    /// Refusals because a connection had as much under way as its lane allows.
    pub refused_lane: u64,
    /// How long work has waited for a thread.
    pub waited: Duration,
    /// How long work has run.
    pub ran: Duration,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters {
            places,
            running,
            done,
            panicked,
            dropped,
            ..
        } = self;
        write!(
            f,
            "places={places} running={running} done={done} panicked={panicked} dropped={dropped} \
             refused_pool={} refused_mailbox={} refused_lane={} waited_ms={} ran_ms={}",
            self.refused_pool,
            self.refused_mailbox,
            self.refused_lane,
            self.waited.as_millis(),
            self.ran.as_millis()
        )
    }
}

/// The counters behind [`Counters`], as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    pub(crate) places: AtomicUsize,
    pub(crate) running: AtomicUsize,
    pub(crate) done: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) refused_pool: AtomicU64,
    pub(crate) refused_mailbox: AtomicU64,
    pub(crate) refused_lane: AtomicU64,
    pub(crate) waited_nanos: AtomicU64,
    pub(crate) ran_nanos: AtomicU64,
}

impl Counting {
    pub(crate) fn look(&self) -> Counters {
        let nanos = |n: &AtomicU64| Duration::from_nanos(n.load(Relaxed));
        Counters {
            places: self.places.load(Relaxed),
            running: self.running.load(Relaxed),
            done: self.done.load(Relaxed),
            panicked: self.panicked.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            refused_pool: self.refused_pool.load(Relaxed),
            refused_mailbox: self.refused_mailbox.load(Relaxed),
            refused_lane: self.refused_lane.load(Relaxed),
            waited: nanos(&self.waited_nanos),
            ran: nanos(&self.ran_nanos),
        }
    }
}
