//! How large collections may be in their small forms: settings that every writing command reads.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

use crate::types::{Fit, ListFit, SetFit};

/// Bytes of the longest sparse HyperLogLog, at first.
const HLL: usize = 3000;

/// Most entries and the longest of a packed collection.
#[derive(Debug)]
struct Pair {
    entries: AtomicUsize,
    length: AtomicUsize,
}

impl Pair {
    fn new(fit: Fit) -> Pair {
        Pair {
            entries: fit.entries.into(),
            length: fit.length.into(),
        }
    }

    fn read(&self) -> Fit {
        Fit {
            entries: self.entries.load(Relaxed),
            length: self.length.load(Relaxed),
        }
    }

    fn write(&self, fit: Fit) {
        self.entries.store(fit.entries, Relaxed);
        self.length.store(fit.length, Relaxed);
    }
}

/// The thresholds of a store. A change applies to later writes: an existing collection is converted
/// when it is next written to.
#[derive(Debug)]
pub struct Limits {
    hash: Pair,
    zset: Pair,
    set: Pair,
    integers: AtomicUsize,
    list: AtomicI32,
    hll: AtomicUsize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            hash: Pair::new(Fit::HASH),
            zset: Pair::new(Fit::ZSET),
            set: Pair::new(SetFit::USUAL.packed),
            integers: SetFit::USUAL.integers.into(),
            list: ListFit::USUAL.0.into(),
            hll: HLL.into(),
        }
    }
}

impl Limits {
    /// Limits of hashes: fields.
    #[must_use]
    pub fn hash(&self) -> Fit {
        self.hash.read()
    }

    /// Limits of sorted sets.
    #[must_use]
    pub fn zset(&self) -> Fit {
        self.zset.read()
    }

    /// Limits of sets.
    #[must_use]
    pub fn set(&self) -> SetFit {
        SetFit {
            integers: self.integers.load(Relaxed),
            packed: self.set.read(),
        }
    }

    /// Limits of lists.
    #[must_use]
    pub fn list(&self) -> ListFit {
        ListFit(self.list.load(Relaxed))
    }

    /// Bytes of the longest sparse HyperLogLog.
    #[must_use]
    pub fn hll(&self) -> usize {
        self.hll.load(Relaxed)
    }

    /// Changes that of HyperLogLogs.
    pub fn set_hll(&self, bytes: usize) {
        self.hll.store(bytes, Relaxed);
    }

    /// Changes that of hashes.
    pub fn set_hash(&self, fit: Fit) {
        self.hash.write(fit);
    }

    /// Changes that of sorted sets.
    pub fn set_zset(&self, fit: Fit) {
        self.zset.write(fit);
    }

    /// Changes that of sets.
    pub fn set_set(&self, fit: SetFit) {
        self.set.write(fit.packed);
        self.integers.store(fit.integers, Relaxed);
    }

    /// Changes that of lists.
    pub fn set_list(&self, fit: ListFit) {
        self.list.store(fit.0, Relaxed);
    }
}
