//! How the store handles values that are too large to be freed at once.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::grave::WAITING;

impl Store {
    /// Frees some of the large removed values; false if none waits. A call does bounded work: about
    /// a thousand elements, or one long string. The call takes no lock of the keys.
    pub fn free_some(&self) -> bool {
        self.graveyard.step().is_some()
    }

    /// Whether so much waits to be freed that commands that bring more help: a lot, or what is
    /// above the limit of memory.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        let waits = self.graveyard.bytes();
        waits > 0 && (waits > WAITING || self.excess(0, true) > 0)
    }

    /// How many keys have been removed whose memory is still to be freed, see
    /// [`free_some`](Store::free_some). The bytes of these values count as used.
    #[must_use]
    pub fn lazyfree_pending(&self) -> usize {
        self.graveyard.pending.load(Relaxed)
    }

    /// How many keys were freed that way since the start, or since [`reset_stats`](Store::reset_stats).
    #[must_use]
    pub fn lazyfreed(&self) -> u64 {
        self.graveyard.freed.load(Relaxed)
    }
}
