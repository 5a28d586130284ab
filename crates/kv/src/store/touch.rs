//! Keys count as used.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::clock;
use super::memory::Entry;
use super::usage::{COUNTS, MINUTE_MS, Use, counted};
use super::view::View;

impl Store {
    /// The value that an entry stores for a use at this time; milliseconds since 1970.
    #[inline]
    pub(super) fn clock_at(&self, now_ms: u64) -> u32 {
        if self.policy().counts_uses() {
            COUNTS | (now_ms / MINUTE_MS) as u32 & 0xffff
        } else {
            clock::at(now_ms)
        }
    }

    /// Notes the first use of an entry that was kept.
    pub(super) fn begin_use(&self, entry: &mut Entry, clock: u32) {
        let first = Use {
            clock,
            chance: 0,
            frequency: &self.frequency,
        };
        first.begin(entry);
    }

    /// How much an entry is worth to be kept, where the least used go first.
    pub(super) fn worth(&self, entry: &Entry, clock: u32) -> u64 {
        if clock & COUNTS != 0 {
            self.frequency.now(entry.clock(), clock).into()
        } else {
            u64::MAX - clock::idle_ms(entry.clock(), clock)
        }
    }

    /// How fast a further use becomes unlikely to raise the count of a key; 10 at first.
    #[must_use]
    pub fn lfu_log_factor(&self) -> u32 {
        self.frequency.log_factor.load(Relaxed)
    }

    /// Changes the factor; with 0 every use raises the count.
    pub fn set_lfu_log_factor(&self, factor: u32) {
        self.frequency.log_factor.store(factor, Relaxed);
    }

    /// Minutes after which the count of an unused key falls by one; 1 at first.
    #[must_use]
    pub fn lfu_decay_min(&self) -> u32 {
        self.frequency.decay_min.load(Relaxed)
    }

    /// Changes the time; with 0 counts never fall.
    pub fn set_lfu_decay_min(&self, minutes: u32) {
        self.frequency.decay_min.store(minutes, Relaxed);
    }
}

impl<'s> View<'_, 's> {
    /// The value to store for a use.
    #[inline]
    pub(super) fn usage(&mut self) -> Use<'s> {
        let frequency = &self.guards.store().frequency;
        let chance = match self.clock & COUNTS {
            0 => 0,
            _ => self.guards.chance(),
        };
        Use {
            clock: self.clock,
            chance,
            frequency,
        }
    }

    /// Whether uses are counted, rather than when the last one was.
    #[must_use]
    pub fn counts_uses(&self) -> bool {
        self.clock & COUNTS != 0
    }

    /// The logarithmic count of a key's uses; `None` if the key does not exist.
    #[must_use]
    pub fn frequency(&self, key: &[u8]) -> Option<u8> {
        let stored = self.stored_clock(key)?;
        Some(self.guards.store().frequency.now(stored, self.clock))
    }

    /// Says how often a key was used, if that is counted.
    pub fn set_frequency(&mut self, key: &[u8], count: u8) {
        if self.counts_uses() {
            self.set_stored_clock(key, counted(count, self.clock));
        }
    }
}
