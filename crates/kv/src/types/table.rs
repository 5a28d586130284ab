//! A hash table of byte strings for one big collection.
//!
//! Two ideas. The elements lie in a row, in no order, and each knows the next one of its bucket: so
//! one at random is one at a random index, exactly as likely as any other whatever the buckets look
//! like; there is no allocation for a bucket; and what is taken out is filled from the end, so that
//! memory shrinks with what it holds.
//!
//! And linear hashing, as in the table of keys. One bucket is split or merged at a time, so
//! that no command pays for all elements, and a scan counts buckets with their bits reversed, so that
//! a cursor keeps its meaning when the table grows or shrinks between two calls: whatever was there
//! all the time is returned at least once.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frozen::{Frozen, Piece, pieces};
use super::row::Row;
use crate::allocator::block;
use crate::hash::of_member;
use crate::number::put_text;

/// What is found by a key.
pub(crate) trait Keyed {
    fn key(&self) -> &[u8];

    /// Bytes of memory that it owns.
    fn heap(&self) -> usize;

    /// Writes it in the form that it has in an image.
    fn put(&self, to: &mut Vec<u8>);
}

impl Keyed for Box<[u8]> {
    fn key(&self) -> &[u8] {
        self
    }

    fn heap(&self) -> usize {
        block(self.len())
    }

    fn put(&self, to: &mut Vec<u8>) {
        put_text(to, self);
    }
}

/// Buckets of the smallest table, a power of two.
const SMALLEST: usize = 8;
/// Elements that are put aside together when one of them changes, see [`Frozen`].
const GROUP: usize = 16;
/// No element.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<E> {
    element: E,
    /// Of its key: most comparisons and all splits need no more, and touch no key.
    hash: u32,
    /// The next of its bucket.
    next: u32,
}

/// Buckets of elements; as many buckets as elements, about. At most 2^32 - 2 elements.
#[derive(Debug)]
pub(crate) struct Table<E> {
    /// The first element of each bucket.
    heads: Row<u32>,
    nodes: Row<Node<E>>,
    /// Bytes of memory that the elements own.
    owned: usize,
    /// It is being written down as it was.
    frozen: Option<Box<Frozen>>,
}

/// A copy is another collection, which nobody writes down.
impl<E: Clone> Clone for Table<E> {
    fn clone(&self) -> Table<E> {
        Table {
            heads: self.heads.clone(),
            nodes: self.nodes.clone(),
            owned: self.owned,
            frozen: None,
        }
    }
}

impl<E> Default for Table<E> {
    fn default() -> Table<E> {
        Table {
            heads: Row::default(),
            nodes: Row::default(),
            owned: 0,
            frozen: None,
        }
    }
}

fn hash(key: &[u8]) -> u32 {
    of_member(key) as u32
}

impl<E: Keyed> Table<E> {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Bytes of memory, those that elements own included.
    pub(super) fn heap(&self) -> usize {
        self.heads.heap() + self.nodes.heap() + self.owned
    }

    /// The bucket of a hash, or of a cursor, and how many of the lower bits made it, as a mask.
    fn locate(&self, hash: usize) -> (usize, usize) {
        let n = self.heads.len();
        let half = n.next_power_of_two() / 2;
        let low = hash & (half - 1);
        if low | half < n {
            // This one has been split.
            (hash & (2 * half - 1), 2 * half - 1)
        } else {
            (low, half - 1)
        }
    }

    fn bucket(&self, hash: u32) -> usize {
        self.locate(hash as usize).0
    }

    fn node(&self, at: u32) -> &Node<E> {
        self.nodes.get(at as usize)
    }

    /// Puts elements of a chain from `at` on in its place: where the link is that leads there.
    fn link(&mut self, bucket: usize, before: u32, at: u32) {
        if before == NONE {
            *self.heads.get_mut(bucket) = at;
        } else {
            self.nodes.get_mut(before as usize).next = at;
        }
    }

    /// The first element of a bucket that is wanted, and the one before it in the chain.
    fn walk(
        &self,
        bucket: usize,
        mut wanted: impl FnMut(u32, &Node<E>) -> bool,
    ) -> Option<(u32, u32)> {
        let (mut before, mut at) = (NONE, *self.heads.get(bucket));
        while at != NONE {
            let node = self.node(at);
            if wanted(at, node) {
                return Some((before, at));
            }
            (before, at) = (at, node.next);
        }
        None
    }

    fn find(&self, hash: u32, key: &[u8]) -> Option<(u32, u32)> {
        if self.len() == 0 {
            return None;
        }
        self.walk(self.bucket(hash), |_, node| {
            node.hash == hash && node.element.key() == key
        })
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&E> {
        let (_, at) = self.find(hash(key), key)?;
        Some(&self.node(at).element)
    }

    /// Puts an element in; the one with the same key that it replaces.
    pub(super) fn insert(&mut self, element: E) -> Option<E> {
        let hash = hash(element.key());
        let Some((_, at)) = self.find(hash, element.key()) else {
            self.push(hash, element);
            return None;
        };
        self.keep(at);
        self.owned += element.heap();
        let old = std::mem::replace(&mut self.nodes.get_mut(at as usize).element, element);
        self.owned -= old.heap();
        Some(old)
    }

    fn push(&mut self, hash: u32, element: E) {
        if self.heads.len() == 0 {
            (0..SMALLEST).for_each(|_| self.heads.push(NONE));
        } else if self.len() >= self.heads.len() {
            self.split();
        }
        let at = self.len() as u32;
        assert!(at < NONE - 1, "as many elements as a table can hold");
        // It may join a group that is not full.
        self.keep(at);
        let bucket = self.bucket(hash);
        self.owned += element.heap();
        let next = *self.heads.get(bucket);
        self.nodes.push(Node {
            element,
            hash,
            next,
        });
        *self.heads.get_mut(bucket) = at;
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<E> {
        let hash = hash(key);
        let (before, at) = self.find(hash, key)?;
        self.keep(at);
        self.keep(self.len() as u32 - 1);
        let next = self.node(at).next;
        self.link(self.bucket(hash), before, next);
        // The last of the row takes its place, and whoever leads there is told.
        let last = self.len() as u32 - 1;
        if at != last {
            let bucket = self.bucket(self.node(last).hash);
            let (before, _) = self
                .walk(bucket, |n, _| n == last)
                .expect("every element is in its chain");
            self.link(bucket, before, at);
        }
        let element = self.nodes.swap_remove(at as usize)?.element;
        self.owned -= element.heap();
        // Each element less allows four buckets less.
        for _ in 0..4 {
            if self.heads.len() > SMALLEST && self.len() * 4 < self.heads.len() {
                self.merge();
            }
        }
        Some(element)
    }

    /// Adds a bucket, which takes its share of the one that it was a part of.
    fn split(&mut self) {
        let new = self.heads.len();
        self.heads.push(NONE);
        let old = parent(new);
        let mut at = std::mem::replace(self.heads.get_mut(old), NONE);
        while at != NONE {
            let bucket = self.bucket(self.node(at).hash);
            let first = *self.heads.get(bucket);
            let next = std::mem::replace(&mut self.nodes.get_mut(at as usize).next, first);
            *self.heads.get_mut(bucket) = at;
            at = next;
        }
    }

    /// Gives the last bucket back to the one that it was split from.
    fn merge(&mut self) {
        let mut at = self.heads.pop().expect("more than the smallest table has");
        let to = parent(self.heads.len());
        while at != NONE {
            let first = *self.heads.get(to);
            let next = std::mem::replace(&mut self.nodes.get_mut(at as usize).next, first);
            *self.heads.get_mut(to) = at;
            at = next;
        }
    }

    /// All, in the order of their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = &E> {
        self.nodes.iter().map(|node| &node.element)
    }

    /// The element at an index below [`len`](Table::len): one at a random index is one at random.
    pub(super) fn at(&self, index: usize) -> &E {
        &self.nodes.get(index).element
    }

    /// Frees up to `most` elements of a table that nobody will look into any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let freed = most.min(self.len());
        for _ in 0..freed {
            self.owned -= self.nodes.pop().map_or(0, |node| node.element.heap());
        }
        freed
    }

    /// Shows about `count` elements from a cursor on; the next cursor, 0 at the end.
    pub(super) fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut show: impl FnMut(&'a E),
    ) -> u64 {
        if self.heads.len() == 0 {
            return 0;
        }
        let (mut cursor, mut shown) = (cursor, 0);
        for _ in 0..count.saturating_mul(10) {
            let (bucket, mask) = self.locate(cursor as usize);
            let mut at = *self.heads.get(bucket);
            while at != NONE {
                let node = self.node(at);
                show(&node.element);
                shown += 1;
                at = node.next;
            }
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

    /// Has it written down as it is now, whatever becomes of it: [`thaw`](Table::thaw) hands that out.
    pub(super) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        let groups = self.len().div_ceil(GROUP);
        self.frozen = Some(Box::new(Frozen::new(id, groups, queued.clone())));
    }

    pub(super) fn frozen_id(&self) -> Option<u64> {
        self.frozen.as_ref().map(|frozen| frozen.id)
    }

    /// Puts an element aside that is about to change, if it is still to be written down.
    #[inline]
    fn keep(&mut self, at: u32) {
        if self.frozen.is_some() {
            self.put_aside(at as usize / GROUP);
        }
    }

    #[cold]
    fn put_aside(&mut self, group: usize) {
        if let Some(mut frozen) = self.frozen.take() {
            if frozen.is_owed(group) {
                frozen.put_aside(group, self.group(group));
            }
            self.frozen = Some(frozen);
        }
    }

    /// A group of which no element has changed, and to which none was added.
    fn group(&self, group: usize) -> Vec<Piece> {
        let last = self.len().min((group + 1) * GROUP);
        let elements = (group * GROUP..last).map(|at| self.at(at));
        pieces(0, elements, |element, to| element.put(to))
    }

    /// Hands out what it was when it was frozen, about `most` bytes of it; whether that is all.
    pub(super) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        let Some(mut frozen) = self.frozen.take() else {
            return true;
        };
        let mut bytes = frozen.take(to);
        while bytes < most && frozen.next < frozen.groups {
            let group = frozen.next;
            if frozen.is_owed(group) {
                let pieces = self.group(group);
                bytes += pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
                to.extend(pieces);
            }
            frozen.next += 1;
            // Groups that were put aside cost a little, too.
            bytes += 1;
        }
        let is_all = frozen.next == frozen.groups;
        if !is_all {
            self.frozen = Some(frozen);
        }
        is_all
    }

    /// How many elements each bucket has.
    #[cfg(test)]
    fn lengths(&self) -> Vec<usize> {
        let length = |bucket| {
            let mut length = 0;
            self.walk(bucket, |_, _| {
                length += 1;
                false
            });
            length
        };
        (0..self.heads.len()).map(length).collect()
    }
}

impl Table<Box<[u8]>> {
    /// Puts a key in unless it is there; whether it was not.
    pub(super) fn add(&mut self, key: &[u8]) -> bool {
        let hash = hash(key);
        let new = self.find(hash, key).is_none();
        if new {
            self.push(hash, key.into());
        }
        new
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
            assert!(table.heads.len() >= table.len() && table.heads.len() <= table.len() + 8);
        }
        let full = table.heap();
        assert!(full < 20_000 * 62, "{full} bytes");
        for n in (0..20_000).filter(|n| n % 50 != 0) {
            assert_eq!(table.remove(&name(n)), Some(name(n)));
        }
        assert_eq!((table.len(), table.iter().count()), (400, 400));
        assert!(table.heads.len() <= 1600, "{}", table.heads.len());
        assert!(table.heap() < full / 20, "{} of {full} bytes", table.heap());
        for n in 0..20_000 {
            assert_eq!(table.get(&name(n)).is_some(), n % 50 == 0);
        }
    }

    #[test]
    fn keys_made_to_collide_do_not() {
        for (family, keys) in crate::hash::tests::families() {
            let mut table = Table::default();
            for key in keys {
                table.insert(Box::from(&key[..]));
            }
            let longest = table.lengths().into_iter().max();
            // About one element to a bucket: by chance once in ten thousand million runs.
            assert!(longest < Some(20), "{family}: {longest:?} in a bucket");
        }
    }

    #[test]
    fn every_index_is_as_likely_after_deletions() {
        let mut table = Table::default();
        for n in 0..5_000 {
            table.insert(name(n));
        }
        for n in (0..5_000).filter(|n| n % 7 != 3) {
            table.remove(&name(n));
        }
        let left: HashSet<_> = (0..table.len()).map(|at| table.at(at).clone()).collect();
        assert_eq!(left.len(), (0..5_000).filter(|n| n % 7 == 3).count());
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
