//! A large sorted set: members with their scores in a table, and their order beside it.

use std::cmp::Ordering;

use super::order::{Order, Place, Ranked, compare};
use super::packed::Code;
use super::scored::Scored;
use super::table::{Shape, Table};
use super::text::Text;
use crate::number::put_text;

/// A member, and its score.
#[derive(Debug)]
pub(super) struct Scores;

impl Shape<2> for Scores {
    fn put(table: &Table<Scores, 2>, at: usize, to: &mut Vec<u8>) {
        to.extend_from_slice(&table.score(at, 1).to_le_bytes());
        put_text(to, &table.text(at, 0));
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    pub(super) table: Table<Scores, 2>,
    order: Order,
}

impl Sorted {
    /// Bytes of memory that the collection owns.
    pub(super) fn heap(&self) -> usize {
        self.table.heap() + self.order.heap()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<f64> {
        Some(self.table.score(self.table.position(member)?, 1))
    }

    /// Where a member with a score is, or would be.
    fn place(&self, score: f64, member: &[u8]) -> Place {
        self.order.find(|ranked| {
            let members = || (*self.member(*ranked)).cmp(member);
            compare(ranked.score, score, members) == Ordering::Less
        })
    }

    fn member(&self, ranked: Ranked) -> Text<'_> {
        self.table.text(ranked.at as usize, 0)
    }

    /// Gives a member a score; the one that it had.
    pub(super) fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let mut raw = [0; 8];
        let codes = [Code::of(member), Code::score(score, &mut raw)];
        let (at, old) = match self.table.add(codes, [member, b""]) {
            Ok(at) => (at, None),
            Err(at) => {
                let old = self.table.score(at, 1);
                if old.to_bits() == score.to_bits() {
                    return Some(old);
                }
                let place = self.place(old, member);
                self.order.remove(place);
                self.table.set(at, 1, codes[1], b"");
                (at, Some(old))
            }
        };
        let place = self.place(score, member);
        let at = at as u32;
        self.order.insert(place, Ranked { score, at });
        old
    }

    /// Removes a member and returns its score.
    pub(super) fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let at = self.table.position(member)?;
        let score = self.table.score(at, 1);
        let place = self.place(score, member);
        self.order.remove(place);
        // The last of the table takes the number of the one that goes.
        let last = self.table.len() - 1;
        if at != last {
            let place = self.place(self.table.score(last, 1), &self.table.text(last, 0));
            self.order.get_mut(place).at = at as u32;
        }
        self.table.remove(at);
        Some(score)
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.order.rank(self.place(score, member)))
    }

    /// How many elements `below` holds for: all up to some place in the order, none after it.
    pub(super) fn count_scores(&self, below: impl Fn(f64) -> bool) -> usize {
        self.count(|ranked| below(ranked.score))
    }

    pub(super) fn count_members(&self, below: impl Fn(&[u8]) -> bool) -> usize {
        self.count(|ranked| below(&self.member(*ranked)))
    }

    fn count(&self, below: impl Fn(&Ranked) -> bool) -> usize {
        self.order.rank(self.order.find(below))
    }

    pub(super) fn iter_from(&self, rank: usize) -> impl Iterator<Item = Scored<'_>> {
        self.order.iter_from(rank).map(|ranked| self.scored(ranked))
    }

    pub(super) fn iter_down(&self, rank: usize) -> impl Iterator<Item = Scored<'_>> {
        self.order.iter_down(rank).map(|ranked| self.scored(ranked))
    }

    fn scored(&self, ranked: Ranked) -> Scored<'_> {
        Scored {
            score: ranked.score,
            member: self.member(ranked),
        }
    }

    /// The element of a number, in no order.
    pub(super) fn nth(&self, at: usize) -> Scored<'_> {
        Scored {
            score: self.table.score(at, 1),
            member: self.table.text(at, 0),
        }
    }

    /// Frees up to about `most` elements of a set that is not used any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let freed = self.table.free_some(most);
        // Each is freed with the second of its two places.
        freed + self.order.free_some(most.saturating_sub(freed))
    }
}
