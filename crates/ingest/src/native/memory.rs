//! The memory that all readers of a server may hold together.
//!
//! A reader's share of the budget limits its reads. Each read is at most a third of the share,
//! because a reader may have two reads queued and one under way. So many readers that take nothing
//! use the budget and no more, and none of them has to be cut for that.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tidewire::Instant;

/// The smallest read.
const LEAST: usize = 4096;
/// How often a log line says that readers have to wait.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Bytes that the readers hold.
#[derive(Debug)]
pub(super) struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// When the log last said that the budget is used up; 0 is never.
    told_ns: AtomicU64,
}

impl Memory {
    pub(super) fn new(limit: usize) -> Memory {
        Memory {
            limit: limit.max(LEAST),
            used: AtomicUsize::new(0),
            told_ns: AtomicU64::new(0),
        }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Bytes that one of `readers` readers may read at once; `None` if it must not read now.
    pub(super) fn share(&self, readers: usize) -> Option<usize> {
        let free = self.limit.saturating_sub(self.used());
        let share = (self.limit / readers.max(1) / 3).min(free / 4);
        (free > 0).then_some(share.max(LEAST))
    }

    /// A reader holds another number of bytes than before.
    pub(super) fn changed(&self, before: usize, now: usize) {
        if now > before {
            self.used.fetch_add(now - before, Relaxed);
        } else {
            self.used.fetch_sub(before - now, Relaxed);
        }
    }

    /// Says, not too often, that readers wait.
    pub(super) fn tell(&self, now: Instant) {
        let told = self.told_ns.load(Relaxed);
        let due = told == 0 || now.since(Instant::from_nanos(told)) >= TOLD_EVERY;
        let set = |new: u64| self.told_ns.compare_exchange(told, new, Relaxed, Relaxed);
        if due && set(now.as_nanos().max(1)).is_ok() {
            tracing::warn!(
                limit = self.limit,
                used = self.used(),
                "readers wait: the memory for readers is used up by other readers, which do not take their records"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_that_takes_nothing_holds_the_budget() {
        let memory = Memory::new(1 << 20);
        for readers in 1..=100 {
            // Each holds three reads of the share that it has when it comes.
            for _ in 0..3 {
                if let Some(share) = memory.share(readers) {
                    memory.changed(0, share);
                }
            }
        }
        let used = memory.used();
        assert!(used <= (1 << 20) + LEAST, "{used}");
        memory.changed(used, 0);
        assert_eq!(memory.share(1), Some((1 << 20) / 4));
    }
}
