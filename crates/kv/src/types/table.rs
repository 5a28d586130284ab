//! A hash table of byte strings for one big collection.
//!
//! The table rests on two ideas. The elements lie in [rows](super::rows), in no order, and each element knows the
//! next one of its bucket. So a random index gives a random element, exactly as likely as any other; no bucket
//! and no element has an allocation of its own; and the place of a removed element is filled from the end, so
//! that memory shrinks with the contents.
//!
//! The second idea is linear hashing, as in the table of keys. One bucket is split or merged at a
//! time, so that no command pays for all elements. A scan counts buckets with their bits reversed, so
//! that a cursor stays valid when the table grows or shrinks between two calls: every element that
//! exists all the time is returned at least once.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frozen::{Frozen, Piece, pieces};
use super::packed::Code;
use super::row::Row;
use super::rows::{BLOCK, Rows};
use super::spread::Freeze;
use super::text::Text;
use crate::hash::of_member;

/// The columns of an element; the element is found by its first column.
pub(crate) trait Shape<const COLUMNS: usize> {
    /// Writes an element in the form that it has in an image.
    fn put(table: &Table<Self, COLUMNS>, at: usize, to: &mut Vec<u8>)
    where
        Self: Sized;
}

/// Buckets of the smallest table, a power of two.
const SMALLEST: usize = 8;
/// Elements that are put aside together when one of them changes, see [`Frozen`]: the elements of a
/// block.
const GROUP: usize = BLOCK;
/// No element.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    /// Hash of the element's key: most comparisons and all splits need no more, and touch no key.
    hash: u32,
    /// The next element of the same bucket.
    next: u32,
}

/// Buckets of elements; as many buckets as elements, about. At most 2^32 - 2 elements.
#[derive(Debug)]
pub(crate) struct Table<S, const COLUMNS: usize> {
    /// The first element of each bucket.
    heads: Row<u32>,
    /// The node of each element.
    nodes: Row<Node>,
    rows: Rows<COLUMNS>,
    /// Set while a snapshot writes the table down as it was.
    frozen: Option<Box<Frozen>>,
    shape: PhantomData<S>,
}

/// A copy is another collection, which no snapshot writes down.
impl<S, const COLUMNS: usize> Clone for Table<S, COLUMNS> {
    fn clone(&self) -> Self {
        Table {
            heads: self.heads.clone(),
            nodes: self.nodes.clone(),
            rows: self.rows.clone(),
            frozen: None,
            shape: PhantomData,
        }
    }
}

impl<S, const COLUMNS: usize> Default for Table<S, COLUMNS> {
    fn default() -> Self {
        Table {
            heads: Row::default(),
            nodes: Row::default(),
            rows: Rows::default(),
            frozen: None,
            shape: PhantomData,
        }
    }
}

fn hash(key: &[u8]) -> u32 {
    of_member(key) as u32
}

impl<S: Shape<COLUMNS>, const COLUMNS: usize> Table<S, COLUMNS> {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of memory, without its own fields.
    pub(super) fn heap(&self) -> usize {
        self.heads.heap() + self.nodes.heap() + self.rows.heap()
    }

    /// The bucket of a hash, or of a cursor, and how many of the lower bits made it, as a mask.
    fn locate(&self, hash: usize) -> (usize, usize) {
        let n = self.heads.len();
        let half = n.next_power_of_two() / 2;
        let low = hash & (half - 1);
        if low | half < n {
            // This bucket has been split.
            (hash & (2 * half - 1), 2 * half - 1)
        } else {
            (low, half - 1)
        }
    }

    fn bucket(&self, hash: u32) -> usize {
        self.locate(hash as usize).0
    }

    fn node(&self, at: u32) -> &Node {
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

    /// The first wanted element of a bucket, and its predecessor in the chain.
    fn walk(
        &self,
        bucket: usize,
        mut wanted: impl FnMut(u32, &Node) -> bool,
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

    fn find(&self, hash: u32, key: &[u8], code: &Code<'_>) -> Option<(u32, u32)> {
        if self.len() == 0 {
            return None;
        }
        self.walk(self.bucket(hash), |at, node| {
            node.hash == hash && self.rows.is(at as usize, 0, key, code)
        })
    }

    /// The index of the element with this key.
    pub(super) fn position(&self, key: &[u8]) -> Option<usize> {
        let (_, at) = self.find(hash(key), key, &Code::of(key))?;
        Some(at as usize)
    }

    /// A text of the element at an index below [`len`](Table::len): one at a random index is one at random.
    pub(super) fn text(&self, at: usize, column: usize) -> Text<'_> {
        self.rows.get(at, column)
    }

    pub(super) fn score(&self, at: usize, column: usize) -> f64 {
        self.rows.score(at, column)
    }

    /// Adds an element whose key is in none; its index. Gives back the index of the one that has the
    /// key.
    pub(super) fn add(
        &mut self,
        codes: [Code<'_>; COLUMNS],
        texts: [&[u8]; COLUMNS],
    ) -> Result<usize, usize> {
        let hash = hash(texts[0]);
        if let Some((_, at)) = self.find(hash, texts[0], &codes[0]) {
            return Err(at as usize);
        }
        if self.heads.len() == 0 {
            (0..SMALLEST).for_each(|_| self.heads.push(NONE));
        } else if self.len() >= self.heads.len() {
            self.split();
        }
        let at = self.len() as u32;
        assert!(at < NONE - 1, "as many elements as a table can hold");
        // The element may join a group that is not full.
        self.keep(at);
        let bucket = self.bucket(hash);
        let next = *self.heads.get(bucket);
        self.nodes.push(Node { hash, next });
        self.rows.push(codes, texts);
        *self.heads.get_mut(bucket) = at;
        Ok(at as usize)
    }

    /// Puts another text in the place of one that is not the key.
    pub(super) fn set(&mut self, at: usize, column: usize, code: Code<'_>, text: &[u8]) {
        self.keep(at as u32);
        self.rows.set(at, column, code, text);
    }

    /// Takes the element at an index out. The last one takes its place.
    pub(super) fn remove(&mut self, at: usize) {
        let (at, last) = (at as u32, self.len() as u32 - 1);
        self.keep(at);
        self.keep(last);
        let unlink = |table: &mut Self, wanted: u32, to: u32| {
            let bucket = table.bucket(table.node(wanted).hash);
            let (before, _) = table
                .walk(bucket, |n, _| n == wanted)
                .expect("every element is in its chain");
            table.link(bucket, before, to);
        };
        unlink(self, at, self.node(at).next);
        // The link to the last of the row gets its new place.
        if at != last {
            unlink(self, last, at);
        }
        self.nodes.swap_remove(at as usize);
        self.rows.swap_remove(at as usize);
        // Each element less allows four buckets less.
        for _ in 0..4 {
            if self.heads.len() > SMALLEST && self.len() * 4 < self.heads.len() {
                self.merge();
            }
        }
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

    /// Frees up to about `most` elements of a table that is not used any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let freed = self.rows.free_some(most);
        for _ in 0..freed {
            self.nodes.pop();
        }
        freed
    }

    /// Shows the indices of about `count` elements from a cursor on; the next cursor, 0 at the end.
    pub(super) fn scan(&self, cursor: u64, count: usize, mut show: impl FnMut(usize)) -> u64 {
        if self.heads.len() == 0 {
            return 0;
        }
        let (mut cursor, mut shown) = (cursor, 0);
        for _ in 0..count.saturating_mul(10) {
            let (bucket, mask) = self.locate(cursor as usize);
            let mut at = *self.heads.get(bucket);
            while at != NONE {
                let node = self.node(at);
                show(at as usize);
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
        pieces(0, group * GROUP..last, |at, to| S::put(self, at, to))
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

impl<S: Shape<COLUMNS>, const COLUMNS: usize> Freeze for Table<S, COLUMNS> {
    fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        let groups = self.len().div_ceil(GROUP);
        self.frozen = Some(Box::new(Frozen::new(id, groups, queued.clone())));
    }

    fn frozen_id(&self) -> Option<u64> {
        self.frozen.as_ref().map(|frozen| frozen.id)
    }

    fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
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
}

/// The bucket that bucket `n` is split from.
fn parent(n: usize) -> usize {
    n ^ (1 << n.ilog2())
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "what is in a set counts, not its order"
)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    struct Keys;

    impl Shape<1> for Keys {
        fn put(table: &Table<Keys, 1>, at: usize, to: &mut Vec<u8>) {
            crate::number::put_text(to, &table.text(at, 0));
        }
    }

    impl Table<Keys, 1> {
        fn put(&mut self, key: &[u8]) -> bool {
            self.add([Code::of(key)], [key]).is_ok()
        }

        fn take(&mut self, key: &[u8]) -> bool {
            let at = self.position(key);
            at.map(|at| self.remove(at)).is_some()
        }
    }

    fn name(n: u16) -> Vec<u8> {
        n.to_string().into_bytes()
    }

    #[test]
    fn it_grows_and_shrinks_with_what_it_holds() {
        let mut table = Table::<Keys, 1>::default();
        for n in 0..20_000 {
            assert!(table.put(&name(n)) && !table.put(&name(n)));
            assert!(table.heads.len() >= table.len() && table.heads.len() <= table.len() + 8);
        }
        let full = table.heap();
        assert!(full < 20_000 * 20, "{full} bytes");
        for n in (0..20_000).filter(|n| n % 50 != 0) {
            assert!(table.take(&name(n)) && !table.take(&name(n)));
        }
        assert_eq!(table.len(), 400);
        assert!(table.heads.len() <= 1600, "{}", table.heads.len());
        assert!(table.heap() < full / 20, "{} of {full} bytes", table.heap());
        for n in 0..20_000 {
            assert_eq!(table.position(&name(n)).is_some(), n % 50 == 0);
        }
    }

    #[test]
    fn keys_made_to_collide_do_not() {
        for (family, keys) in crate::hash::tests::families() {
            let mut table = Table::<Keys, 1>::default();
            for key in keys {
                table.put(&key);
            }
            let longest = table.lengths().into_iter().max();
            // About one element to a bucket: by chance once in ten thousand million runs.
            assert!(longest < Some(20), "{family}: {longest:?} in a bucket");
        }
    }

    #[test]
    fn every_index_is_as_likely_after_deletions() {
        let mut table = Table::<Keys, 1>::default();
        for n in 0..5_000 {
            table.put(&name(n));
        }
        for n in (0..5_000).filter(|n| n % 7 != 3) {
            table.take(&name(n));
        }
        let left: HashSet<_> = (0..table.len())
            .map(|at| table.text(at, 0).to_vec())
            .collect();
        assert_eq!(left.len(), (0..5_000).filter(|n| n % 7 == 3).count());
    }

    proptest! {
        #[test]
        fn a_scan_returns_what_was_there_all_the_time(
            kept in proptest::collection::hash_set(0u16..500, 1..60),
            churn in proptest::collection::vec((500u16..2000, any::<bool>(), 1u16..200), 0..40),
            count in 1usize..20,
        ) {
            let mut table = Table::<Keys, 1>::default();
            kept.iter().for_each(|&n| { table.put(&name(n)); });
            let (mut seen, mut cursor, mut churn) = (HashSet::new(), 0, churn.into_iter());
            loop {
                cursor = table.scan(cursor, count, |at| { seen.insert(table.text(at, 0).to_vec()); });
                if cursor == 0 {
                    break;
                }
                if let Some((from, add, n)) = churn.next() {
                    for n in from..from + n {
                        if add { table.put(&name(n)); } else { table.take(&name(n)); }
                    }
                }
            }
            prop_assert!(kept.iter().all(|&n| seen.contains(&name(n))));
        }
    }
}
