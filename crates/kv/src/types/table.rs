//! A hash table of byte strings for one big collection.
//!
//! The one idea: linear hashing, as in the table of keys. One bucket is split or merged at a time, so
//! that no command pays for all elements, and a scan counts buckets with their bits reversed, so that
//! a cursor keeps its meaning when the table grows or shrinks between two calls: whatever was there
//! all the time is returned at least once.

use std::hash::BuildHasher;
use std::sync::OnceLock;

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

/// Buckets of the smallest table, a power of two.
const SMALLEST: usize = 8;

/// How all tables of the process hash: collections do not know their store.
static HASHER: OnceLock<FixedState> = OnceLock::new();

fn hash(key: &[u8]) -> usize {
    let hasher = HASHER.get_or_init(|| FixedState::with_seed(0));
    hasher.hash_one(key) as usize
}

/// Decides how tables hash, unless that is decided: who knows the seed can make names that collide.
pub(crate) fn seed_once(seed: u64) {
    let _ = HASHER.set(FixedState::with_seed(seed));
}

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

    /// The bucket of a hash, or of a cursor, and how many of the lower bits made it, as a mask.
    fn locate(&self, hash: usize) -> (usize, usize) {
        let n = self.buckets.len();
        let half = n.next_power_of_two() / 2;
        let low = hash & (half - 1);
        if low | half < n {
            // This one has been split.
            (hash & (2 * half - 1), 2 * half - 1)
        } else {
            (low, half - 1)
        }
    }

    fn bucket(&self, key: &[u8]) -> usize {
        self.locate(hash(key)).0
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
        if self.buckets.is_empty() {
            self.buckets.resize_with(SMALLEST, Vec::new);
        } else if self.len >= self.buckets.len() {
            self.split();
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
        // Each element less allows four buckets less.
        for _ in 0..4 {
            if self.buckets.len() > SMALLEST && self.len * 4 < self.buckets.len() {
                self.merge();
            }
        }
        Some(element)
    }

    /// Adds a bucket, which takes its share of the one that it was a part of.
    fn split(&mut self) {
        let new = self.buckets.len();
        self.buckets.push(Vec::new());
        let whole = std::mem::take(&mut self.buckets[parent(new)]);
        for element in whole {
            let bucket = self.bucket(element.key());
            self.buckets[bucket].push(element);
        }
    }

    /// Gives the last bucket back to the one that it was split from.
    fn merge(&mut self) {
        let last = self
            .buckets
            .pop()
            .expect("more than the smallest table has");
        let to = parent(self.buckets.len());
        self.buckets[to].extend(last);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.buckets.iter().flatten()
    }

    /// One at random, all about equally likely.
    pub(super) fn sample(&self, rng: &mut fastrand::Rng) -> Option<&E> {
        if self.len == 0 {
            return None;
        }
        // There are at most four times as many buckets as elements.
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
        let (mut cursor, mut shown) = (cursor, 0);
        for _ in 0..count.saturating_mul(10) {
            let (bucket, mask) = self.locate(cursor as usize);
            let bucket = &self.buckets[bucket];
            bucket.iter().for_each(&mut show);
            shown += bucket.len();
            // Counts up in the bits under the mask, the highest first.
            cursor = (cursor | !(mask as u64))
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

/// The bucket that bucket `n` is split from.
fn parent(n: usize) -> usize {
    n ^ (1 << n.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn name(n: u16) -> Box<[u8]> {
        n.to_string().into_bytes().into()
    }

    #[test]
    fn it_grows_and_shrinks_with_what_it_holds() {
        let mut table = Table::default();
        for n in 0..20_000 {
            assert!(table.insert(name(n)).is_none());
            assert!(table.buckets.len() >= table.len() && table.buckets.len() <= table.len() + 8);
        }
        let longest = table.buckets.iter().map(Vec::len).max();
        assert!(longest < Some(20), "{longest:?}");
        for n in (0..20_000).filter(|n| n % 50 != 0) {
            assert_eq!(table.remove(&name(n)), Some(name(n)));
        }
        assert_eq!((table.len(), table.iter().count()), (400, 400));
        assert!(table.buckets.len() <= 1600, "{}", table.buckets.len());
        for n in 0..20_000 {
            assert_eq!(table.get(&name(n)).is_some(), n % 50 == 0);
        }
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
