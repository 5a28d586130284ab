//! A hash table of byte strings for one big collection.
//!
//! The one idea: the number of buckets is a power of two and a scan counts them with its bits
//! reversed, so that a cursor keeps its meaning when the table grows or shrinks between two calls:
//! whatever was there all the time is returned at least once.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// What is found by a key.
pub(super) trait Keyed {
    fn key(&self) -> &[u8];
}

impl Keyed for Box<[u8]> {
    fn key(&self) -> &[u8] {
        self
    }
}

const SMALLEST: usize = 8;

/// Buckets of elements; as many buckets as elements, about.
#[derive(Clone, Debug)]
pub(super) struct Table<E> {
    buckets: Vec<Vec<E>>,
    len: usize,
}

impl<E> Default for Table<E> {
    fn default() -> Table<E> {
        Table {
            buckets: Vec::new(),
            len: 0,
        }
    }
}

impl<E: Keyed> Table<E> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the table itself, without what elements own.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Vec<E>>() + self.len * size_of::<E>()
    }

    fn bucket(&self, key: &[u8]) -> usize {
        FixedState::with_seed(0).hash_one(key) as usize & (self.buckets.len() - 1)
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&E> {
        if self.len == 0 {
            return None;
        }
        self.buckets[self.bucket(key)]
            .iter()
            .find(|e| e.key() == key)
    }

    /// Puts an element in; the one with the same key that it replaces.
    pub(super) fn insert(&mut self, element: E) -> Option<E> {
        if self.len >= self.buckets.len() {
            self.resize((self.buckets.len() * 2).max(SMALLEST));
        }
        let bucket = self.bucket(element.key());
        let bucket = &mut self.buckets[bucket];
        if let Some(old) = bucket.iter_mut().find(|e| e.key() == element.key()) {
            return Some(std::mem::replace(old, element));
        }
        bucket.push(element);
        self.len += 1;
        None
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<E> {
        if self.len == 0 {
            return None;
        }
        let bucket = self.bucket(key);
        let at = self.buckets[bucket].iter().position(|e| e.key() == key)?;
        let element = self.buckets[bucket].swap_remove(at);
        self.len -= 1;
        if self.buckets.len() > SMALLEST && self.len < self.buckets.len() / 8 {
            self.resize(self.buckets.len() / 4);
        }
        Some(element)
    }

    fn resize(&mut self, buckets: usize) {
        let buckets = buckets.max(SMALLEST);
        let fresh = (0..buckets).map(|_| Vec::new()).collect();
        for element in std::mem::replace(&mut self.buckets, fresh)
            .into_iter()
            .flatten()
        {
            let bucket = self.bucket(element.key());
            self.buckets[bucket].push(element);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.buckets.iter().flatten()
    }

    /// One at random, all about equally likely.
    pub(super) fn sample(&self, rng: &mut fastrand::Rng) -> Option<&E> {
        if self.len == 0 {
            return None;
        }
        // At least an eighth of the buckets hold something, or the table would be smaller.
        loop {
            let bucket = &self.buckets[rng.usize(..self.buckets.len())];
            if let Some(element) = rng.choice(bucket) {
                return Some(element);
            }
        }
    }

    /// Shows about `count` elements from a cursor on; the next cursor, 0 at the end.
    pub(super) fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut show: impl FnMut(&'a E),
    ) -> u64 {
        if self.buckets.is_empty() {
            return 0;
        }
        let mask = self.buckets.len() as u64 - 1;
        let (mut cursor, mut shown) = (cursor, 0);
        for _ in 0..count.saturating_mul(10) {
            let bucket = &self.buckets[(cursor & mask) as usize];
            bucket.iter().for_each(&mut show);
            shown += bucket.len();
            // Counts up in the bits under the mask, the highest first.
            cursor = (cursor | !mask)
                .reverse_bits()
                .wrapping_add(1)
                .reverse_bits();
            if cursor == 0 || shown >= count {
                break;
            }
        }
        cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn name(n: u16) -> Box<[u8]> {
        n.to_string().into_bytes().into()
    }

    proptest! {
        #[test]
        fn a_scan_returns_what_was_there_all_the_time(
            kept in proptest::collection::hash_set(0u16..500, 1..60),
            churn in proptest::collection::vec((500u16..2000, any::<bool>(), 1u16..200), 0..40),
            count in 1usize..20,
        ) {
            let mut table = Table::default();
            kept.iter().for_each(|&n| { table.insert(name(n)); });
            let (mut seen, mut cursor, mut churn) = (HashSet::new(), 0, churn.into_iter());
            loop {
                cursor = table.scan(cursor, count, |e| { seen.insert(e.clone()); });
                if cursor == 0 {
                    break;
                }
                if let Some((from, add, n)) = churn.next() {
                    for n in from..from + n {
                        if add { table.insert(name(n)); } else { table.remove(&name(n)); }
                    }
                }
            }
            prop_assert!(kept.iter().all(|&n| seen.contains(&name(n))));
        }
    }
}
