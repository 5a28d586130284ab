//! Sorted sets: members ordered by score, then by their bytes.
//!
//! The one idea: the order is a row of sorted blocks of a bounded size, so an insertion moves one
//! block's worth, and a rank is counted over blocks. Scores by member are in a table beside it, which
//! small sets do without.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::sample::indices;
use super::spread::Spread;
use super::table::{Keyed, Table};
use crate::allocator::{block, block_of};
use crate::number::put_text;

/// Most members of a block: what fits 4 KiB, a size that every allocator has without a rest.
const BLOCK: usize = 4096 / size_of::<Scored>();
/// Most members of a set without a table.
const MEMBERS: usize = 128;
/// Longest member in one.
const LENGTH: usize = 64;

/// A member with its score.
#[derive(Clone, Debug)]
pub struct Scored {
    /// Its score; not a NaN.
    pub score: f64,
    /// The member.
    pub member: Arc<[u8]>,
}

impl Keyed for Scored {
    fn key(&self) -> &[u8] {
        &self.member
    }

    /// Nothing: the set counts its members once.
    fn heap(&self) -> usize {
        0
    }

    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.score.to_le_bytes());
        put_text(to, &self.member);
    }
}

impl Scored {
    /// Bytes of memory of the member with its two reference counts.
    fn member_heap(&self) -> usize {
        block((2 * size_of::<usize>() + self.member.len()).next_multiple_of(size_of::<usize>()))
    }

    fn order(&self, score: f64, member: &[u8]) -> Ordering {
        let by_score = self.score.partial_cmp(&score).unwrap_or(Ordering::Equal);
        by_score.then_with(|| (*self.member).cmp(member))
    }
}

/// Members ordered by score.
#[derive(Clone, Debug, Default)]
pub struct ZSet {
    /// None is empty.
    blocks: Vec<Vec<Scored>>,
    /// `None` while the set is small.
    scores: Option<Box<Table<Scored>>>,
    len: usize,
    /// Bytes of memory of all blocks and members.
    heap: usize,
}

impl Spread for ZSet {
    type Entry = Scored;

    fn table(&self) -> Option<&Table<Scored>> {
        self.scores.as_deref()
    }

    fn table_mut(&mut self) -> Option<&mut Table<Scored>> {
        self.scores.as_deref_mut()
    }
}

impl ZSet {
    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The name of its encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        if self.scores.is_some() {
            "skiplist"
        } else {
            "listpack"
        }
    }

    /// Bytes of memory, as the allocator gives it; takes the same time whatever the length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let table = self.scores.as_ref();
        let table = table.map_or(0, |table| block(size_of::<Table<Scored>>()) + table.heap());
        let blocks = block_of::<Vec<Scored>>(self.blocks.capacity());
        block(size_of::<ZSet>()) + self.heap + blocks + table
    }

    /// Frees up to about `most` members of a set that nobody will look into any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        // Where there is a table each member is freed with the second of its two places.
        let from_table = self
            .scores
            .as_mut()
            .map_or(0, |table| table.free_some(most));
        let mut freed = from_table;
        while freed < most
            && let Some(block) = self.blocks.pop()
        {
            self.heap -= block_heap(&block);
            for scored in &block {
                self.heap -= scored.member_heap();
            }
            self.len -= block.len();
            freed += block.len();
        }
        freed
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.scores {
            Some(table) => table.get(member).map(|scored| scored.score),
            None => self
                .iter()
                .find(|scored| &*scored.member == member)
                .map(|scored| scored.score),
        }
    }

    /// Gives a member a score, which is not a NaN; the score that it had.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        // The one zero: a minus in front of it tells nobody anything.
        let score = score + 0.0;
        let old = self.score(member);
        if old.is_some_and(|old| old.to_bits() == score.to_bits()) {
            return old;
        }
        if old.is_some() {
            self.remove(member);
        }
        if self.scores.is_none() && (self.len >= MEMBERS || member.len() > LENGTH) {
            let mut table = Table::default();
            self.iter().for_each(|scored| {
                table.insert(scored.clone());
            });
            self.scores = Some(Box::new(table));
        }
        let scored = Scored {
            score,
            member: member.into(),
        };
        if let Some(table) = &mut self.scores {
            table.insert(scored.clone());
        }
        self.heap += scored.member_heap();
        self.place(scored);
        self.len += 1;
        old
    }

    fn place(&mut self, scored: Scored) {
        let last = self.blocks.len().saturating_sub(1);
        let number = self.block_of(scored.score, &scored.member).min(last);
        let Some(block) = self.blocks.get_mut(number) else {
            let block = vec![scored];
            self.heap += block_heap(&block);
            return self.blocks.push(block);
        };
        self.heap -= block_heap(block);
        let at = block.partition_point(|s| s.order(scored.score, &scored.member).is_lt());
        let mut behind = None;
        if block.len() == BLOCK {
            // What comes in order fills the blocks; elsewhere both halves get room. All of it at once:
            // blocks that grew and were split again would leave holes of other sizes.
            let last = number + 1 == self.blocks.len();
            let half = if last && at == BLOCK {
                BLOCK
            } else {
                BLOCK / 2
            };
            let block = &mut self.blocks[number];
            let mut tail = Vec::with_capacity(BLOCK);
            tail.extend(block.drain(half..));
            if at > half || half == BLOCK {
                tail.insert(at - half, scored);
            } else {
                block.insert(at, scored);
            }
            behind = Some(tail);
        } else {
            if block.len() == block.capacity() {
                block.reserve_exact(block.len().min(BLOCK - block.len()));
            }
            block.insert(at, scored);
        }
        self.heap += block_heap(&self.blocks[number]);
        if let Some(tail) = behind {
            self.heap += block_heap(&tail);
            self.blocks.insert(number + 1, tail);
        }
    }

    /// The first block whose last member is not below; as many as there are if none is.
    fn block_of(&self, score: f64, member: &[u8]) -> usize {
        self.blocks
            .partition_point(|block| block.last().is_some_and(|s| s.order(score, member).is_lt()))
    }

    /// Takes a member out; its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.score(member)?;
        if let Some(table) = &mut self.scores {
            table.remove(member);
        }
        let number = self.block_of(score, member);
        let block = &mut self.blocks[number];
        self.heap -= block_heap(block);
        let at = block.partition_point(|s| s.order(score, member).is_lt());
        self.heap -= block.remove(at).member_heap();
        super::spare(block);
        self.heap += block_heap(block);
        if block.is_empty() {
            self.heap -= block_heap(block);
            self.blocks.remove(number);
            super::spare(&mut self.blocks);
        }
        self.len -= 1;
        Some(score)
    }

    /// The member at a rank from 0.
    #[must_use]
    pub fn at(&self, rank: usize) -> Option<&Scored> {
        self.iter_from(rank).next()
    }

    /// How many members are below a member.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.count_while(|s| s.order(score, member).is_lt()))
    }

    /// How many members `below` holds for: all up to some place in the order, none after it.
    pub fn count_while(&self, below: impl Fn(&Scored) -> bool) -> usize {
        let number = self
            .blocks
            .partition_point(|block| block.last().is_some_and(&below));
        let before: usize = self.blocks[..number].iter().map(Vec::len).sum();
        let within = self.blocks.get(number);
        before + within.map_or(0, |block| block.partition_point(&below))
    }

    /// All members in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Scored> {
        self.blocks.iter().flatten()
    }

    /// The members from a rank on.
    pub fn iter_from(&self, rank: usize) -> impl Iterator<Item = &Scored> {
        let mut left = rank;
        let mut number = 0;
        while let Some(block) = self.blocks.get(number).filter(|block| left >= block.len()) {
            left -= block.len();
            number += 1;
        }
        self.blocks[number..].iter().flatten().skip(left)
    }

    /// The members from a rank on downwards.
    pub fn iter_down(&self, rank: usize) -> impl Iterator<Item = &Scored> {
        // As many as there are behind it are left out.
        let mut left = self.len.saturating_sub(rank + 1);
        let mut end = self.blocks.len();
        while end > 0 && left >= self.blocks[end - 1].len() {
            left -= self.blocks[end - 1].len();
            end -= 1;
        }
        self.blocks[..end].iter().flatten().rev().skip(left)
    }

    /// The member at an index below the length, in an order of its own: a rank would have to be
    /// counted.
    fn nth(&self, index: usize) -> Option<&Scored> {
        match &self.scores {
            Some(table) => Some(table.at(index)),
            None => self.at(index),
        }
    }

    /// Members at random: `wanted` different ones, or that many with repetitions if it is negative.
    /// Takes the time of as many, whatever the length.
    pub fn sample(&self, wanted: i64, rng: &mut fastrand::Rng) -> Vec<&Scored> {
        let chosen = indices(self.len, wanted, rng);
        chosen.into_iter().filter_map(|at| self.nth(at)).collect()
    }

    /// Shows about `count` members from a cursor on, all of a small set; the next cursor, 0 at the
    /// end.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, mut show: impl FnMut(&'a Scored)) -> u64 {
        match &self.scores {
            Some(table) => table.scan(cursor, count, show),
            None => {
                self.iter().for_each(&mut show);
                0
            }
        }
    }
}

/// Bytes of memory of a block without its members.
fn block_heap(scored: &Vec<Scored>) -> usize {
    block_of::<Scored>(scored.capacity())
}

/// Whether a score is inside the lower bound of a range.
#[must_use]
pub fn above(score: f64, low: Bound<f64>) -> bool {
    match low {
        Bound::Included(low) => score >= low,
        Bound::Excluded(low) => score > low,
        Bound::Unbounded => true,
    }
}

/// Whether a score is inside the upper bound of a range.
#[must_use]
pub fn below(score: f64, high: Bound<f64>) -> bool {
    match high {
        Bound::Included(high) => score <= high,
        Bound::Excluded(high) => score < high,
        Bound::Unbounded => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn does_what_a_sorted_vector_does(
            acts in proptest::collection::vec((0u8..4, 0u16..700, -20i32..20), 1..900),
        ) {
            let (mut set, mut model) = (ZSet::default(), BTreeMap::<Vec<u8>, f64>::new());
            for (act, member, score) in acts {
                let (member, score) = (member.to_string().into_bytes(), f64::from(score));
                match act {
                    0 => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                    _ => prop_assert_eq!(set.insert(&member, score), model.insert(member, score)),
                }
                prop_assert_eq!(set.len(), model.len());
            }
            let mut sorted: Vec<(f64, Vec<u8>)> = model.iter().map(|(m, &s)| (s, m.clone())).collect();
            sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let all: Vec<(f64, Vec<u8>)> = set.iter().map(|s| (s.score, s.member.to_vec())).collect();
            prop_assert_eq!(&all, &sorted);
            for (rank, (score, member)) in sorted.iter().enumerate() {
                prop_assert_eq!(set.rank(member), Some(rank));
                prop_assert_eq!(set.score(member), Some(*score));
                prop_assert_eq!(&*set.at(rank).unwrap().member, &member[..]);
            }
            let blocks: usize = set.blocks.iter().map(block_heap).sum();
            prop_assert_eq!(set.heap, blocks + set.iter().map(Scored::member_heap).sum::<usize>());
            let half = sorted.len() / 2;
            let up: Vec<&[u8]> = set.iter_from(half).map(|s| &*s.member).collect();
            prop_assert!(up.into_iter().eq(sorted[half..].iter().map(|(_, m)| &m[..])));
            if half < sorted.len() {
                let down: Vec<&[u8]> = set.iter_down(half).map(|s| &*s.member).collect();
                prop_assert!(down.into_iter().eq(sorted[..=half].iter().rev().map(|(_, m)| &m[..])));
            }
        }
    }
}
