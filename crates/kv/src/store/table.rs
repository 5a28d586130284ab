//! The keys of one database in one shard.

use std::collections::HashMap;

use super::memory::Entry;

/// A table of entries by key.
#[derive(Debug, Default)]
pub(crate) struct Table {
    map: HashMap<Box<[u8]>, Entry>,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn find(&self, _hash: u64, key: &[u8]) -> Option<&Entry> {
        self.map.get(key)
    }

    pub(crate) fn find_mut(&mut self, _hash: u64, key: &[u8]) -> Option<&mut Entry> {
        self.map.get_mut(key)
    }

    /// Adds an entry whose key is not there.
    pub(crate) fn insert(&mut self, _hash: u64, entry: Entry) {
        self.map.insert(entry.key().into(), entry);
    }

    pub(crate) fn remove(&mut self, _hash: u64, key: &[u8]) -> Option<Entry> {
        self.map.remove(key)
    }

    /// Shows entries from `cursor` on; returns where to go on, 0 at the end.
    pub(crate) fn scan(&self, _cursor: u64, visit: &mut dyn FnMut(&Entry)) -> u64 {
        self.map.values().for_each(visit);
        0
    }

    /// Any entry, by chance.
    pub(crate) fn random(&self, rng: &mut fastrand::Rng) -> Option<&Entry> {
        let n = rng.usize(..self.map.len().max(1));
        self.map.values().nth(n)
    }

    /// Bytes of memory that it takes without its entries.
    pub(crate) fn bytes(&self) -> usize {
        0
    }
}
