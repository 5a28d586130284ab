//! Sorted sets: members ordered by score, then by their bytes. Small ones are packed in that order, others a
//! table with an order beside it.

use std::ops::Bound;

use super::fit::{BYTES_MAX, Fit};
use super::order::compare;
use super::packed::{Code, ELEMENTS_MAX, Iter, Packed, Raw};
use super::sample::indices;
use super::scored::Scored;
use super::sorted::Sorted;
use super::spread::{Freeze, Spread};
use super::text::Text;
use crate::allocator::block;

impl<'a> Scored<'a> {
    /// A member that is in no set.
    #[must_use]
    pub fn new(score: f64, member: &'a [u8]) -> Scored<'a> {
        Scored {
            score,
            member: Text::bytes(member),
        }
    }
}

#[derive(Clone, Debug)]
enum Form {
    /// Scores and members in turn.
    Packed(Packed),
    Sorted(Box<Sorted>),
}

/// Members ordered by score.
#[derive(Clone, Debug)]
pub struct ZSet {
    form: Form,
}

impl Default for ZSet {
    fn default() -> ZSet {
        ZSet {
            form: Form::Packed(Packed::default()),
        }
    }
}

impl Spread for ZSet {
    fn table(&self) -> Option<&dyn Freeze> {
        match &self.form {
            Form::Sorted(sorted) => Some(&sorted.table),
            Form::Packed(_) => None,
        }
    }

    fn table_mut(&mut self) -> Option<&mut dyn Freeze> {
        match &mut self.form {
            Form::Sorted(sorted) => Some(&mut sorted.table),
            Form::Packed(_) => None,
        }
    }
}

impl ZSet {
    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / 2,
            Form::Sorted(sorted) => sorted.table.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the sorted set's encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.form {
            Form::Packed(_) => "listpack",
            Form::Sorted(_) => "skiplist",
        }
    }

    /// Bytes of memory that the set owns, as the allocator counts; takes constant time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.heap(),
            Form::Sorted(sorted) => block(size_of::<Sorted>()) + sorted.heap(),
        }
    }

    /// Frees up to about `most` members of a set that is not used any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        match &mut self.form {
            Form::Packed(_) => 0,
            Form::Sorted(sorted) => sorted.free_some(most),
        }
    }

    /// The score of a member.
    #[must_use]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Packed(packed) => {
                let at = packed.find(&Code::of(member), 1, 2)?;
                Some(packed.score(at - 1))
            }
            Form::Sorted(sorted) => sorted.score(member),
        }
    }

    /// Makes room for members that are about to be added, if there are none yet.
    pub fn reserve(&mut self, scored: &[(f64, &[u8])], fit: Fit) {
        if let Form::Packed(packed) = &mut self.form
            && packed.len() == 0
            && (2..=fit.entries).contains(&scored.len())
        {
            let sizes = scored.iter().map(|(score, member)| {
                let mut raw = [0; 8];
                let score = Code::score(score + 0.0, &mut raw);
                Packed::size_of(&score) + Packed::size_of(&Code::of(member))
            });
            packed.reserve(sizes.sum::<usize>().min(BYTES_MAX));
        }
    }

    /// Gives back memory that was [reserved](ZSet::reserve) for members that came twice.
    pub fn trim(&mut self) {
        if let Form::Packed(packed) = &mut self.form {
            packed.trim();
        }
    }

    /// Gives a member a score, which is not a NaN; the score that it had.
    pub fn insert(&mut self, member: &[u8], score: f64, fit: Fit) -> Option<f64> {
        // The one zero: a minus in front of it means nothing.
        let score = score + 0.0;
        let Form::Packed(packed) = &mut self.form else {
            return self.spread().insert(member, score);
        };
        let mut raw = [0; 8];
        let codes = [Code::score(score, &mut raw), Code::of(member)];
        let there = packed.find(&codes[1], 1, 2);
        let old = there.map(|at| packed.score(at - 1));
        if old.is_some_and(|old| old.to_bits() == score.to_bits()) {
            return old;
        }
        let entries = fit.entries.min(ELEMENTS_MAX / 2);
        let fits = old.is_some() || packed.len() / 2 < entries && member.len() <= fit.length;
        let size = packed.size() + codes.iter().map(Packed::size_of).sum::<usize>();
        if !fits || size > BYTES_MAX {
            return self.spread().insert(member, score);
        }
        if let Some(at) = there {
            packed.remove(at - 1, 2);
        }
        packed.insert(place(packed, score, member), &codes);
        old
    }

    /// The set as a table; the small form is converted.
    fn spread(&mut self) -> &mut Sorted {
        if let Form::Packed(_) = self.form {
            let mut sorted = Sorted::default();
            self.iter().for_each(|scored| {
                sorted.insert(&scored.member, scored.score);
            });
            self.form = Form::Sorted(Box::new(sorted));
        }
        match &mut self.form {
            Form::Sorted(sorted) => sorted,
            Form::Packed(_) => unreachable!("it was spread if it was packed"),
        }
    }

    /// Removes a member and returns the member's score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Form::Packed(packed) => {
                let at = packed.find(&Code::of(member), 1, 2)? - 1;
                let score = packed.score(at);
                packed.remove(at, 2);
                Some(score)
            }
            Form::Sorted(sorted) => sorted.remove(member),
        }
    }

    /// The member at a rank from 0.
    #[must_use]
    pub fn at(&self, rank: usize) -> Option<Scored<'_>> {
        self.iter_from(rank).next()
    }

    /// How many members are below a member.
    #[must_use]
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.form {
            Form::Packed(packed) => Some(packed.find(&Code::of(member), 1, 2)? / 2),
            Form::Sorted(sorted) => sorted.rank(member),
        }
    }

    /// How many members have a score that `below` holds for: all up to some place in the order, none
    /// after it.
    pub fn count_scores(&self, below: impl Fn(f64) -> bool) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.count_pairs(|score, _| below(score)),
            Form::Sorted(sorted) => sorted.count_scores(below),
        }
    }

    /// As [`count_scores`](ZSet::count_scores), of members.
    pub fn count_members(&self, below: impl Fn(&[u8]) -> bool) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.count_pairs(|_, member| below(&member.text())),
            Form::Sorted(sorted) => sorted.count_members(below),
        }
    }

    /// All members in order.
    pub fn iter(&self) -> impl Iterator<Item = Scored<'_>> {
        self.iter_from(0)
    }

    /// The members from a rank on.
    pub fn iter_from(&self, rank: usize) -> impl Iterator<Item = Scored<'_>> {
        let (packed, sorted) = match &self.form {
            Form::Packed(packed) => {
                let from = packed.len().min(rank.saturating_mul(2));
                (Some(Pairs(packed.iter_from(from)).map(scored)), None)
            }
            Form::Sorted(sorted) => (None, Some(sorted.iter_from(rank))),
        };
        let sorted = sorted.into_iter().flatten();
        packed.into_iter().flatten().chain(sorted)
    }

    /// Shows at most `n` members from a rank on.
    pub fn each_from(&self, rank: usize, n: usize, mut show: impl FnMut(Scored<'_>)) {
        match &self.form {
            Form::Packed(packed) => {
                let mut all = packed.iter_from(packed.len().min(rank.saturating_mul(2)));
                for _ in 0..n {
                    let (Some(score), Some(member)) = (all.advance(), all.advance()) else {
                        break;
                    };
                    show(scored((score, member)));
                }
            }
            Form::Sorted(sorted) => sorted.iter_from(rank).take(n).for_each(show),
        }
    }

    /// The members from a rank on downwards.
    pub fn iter_down(&self, rank: usize) -> impl Iterator<Item = Scored<'_>> {
        let (packed, sorted) = match &self.form {
            Form::Packed(packed) => {
                let above = (packed.len() / 2).saturating_sub(rank.saturating_add(1));
                let all = Pairs(packed.iter()).rev();
                (Some(all.skip(above).map(scored)), None)
            }
            Form::Sorted(sorted) => (None, Some(sorted.iter_down(rank))),
        };
        let sorted = sorted.into_iter().flatten();
        packed.into_iter().flatten().chain(sorted)
    }

    /// The member at an index below the length, in an order of its own: a rank would have to be
    /// counted.
    fn nth(&self, index: usize) -> Scored<'_> {
        match &self.form {
            Form::Packed(packed) => Scored {
                score: packed.score(2 * index),
                member: packed.get(2 * index + 1),
            },
            Form::Sorted(sorted) => sorted.nth(index),
        }
    }

    /// Members at random: `wanted` different ones, or that many with repetitions if it is negative.
    /// Takes the time of as many, whatever the length.
    pub fn sample(&self, wanted: i64, rng: &mut fastrand::Rng) -> Vec<Scored<'_>> {
        let chosen = indices(self.len(), wanted, rng);
        chosen.into_iter().map(|at| self.nth(at)).collect()
    }

    /// Shows about `count` members from a cursor on, all of a small set; the next cursor, 0 at the
    /// end.
    pub fn scan(&self, cursor: u64, count: usize, mut show: impl FnMut(Scored<'_>)) -> u64 {
        match &self.form {
            Form::Packed(_) => {
                self.iter().for_each(show);
                0
            }
            Form::Sorted(sorted) => {
                let table = &sorted.table;
                table.scan(cursor, count, |at| show(sorted.nth(at)))
            }
        }
    }
}

/// The place where a missing member belongs.
fn place(packed: &Packed, score: f64, member: &[u8]) -> usize {
    let comes_first = |s: f64, m: Raw<'_>| compare(s, score, || (*m.text()).cmp(member)).is_lt();
    // Often what is new is the highest.
    let last = Pairs(packed.iter()).next_back();
    if last.is_none_or(|(s, m)| comes_first(s.score(), m)) {
        return packed.len();
    }
    2 * packed.count_pairs(comes_first)
}

/// Scores and members in turn, as pairs.
struct Pairs<'a>(Iter<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (Raw<'a>, Raw<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.advance()?, self.0.advance()?))
    }
}

impl DoubleEndedIterator for Pairs<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let member = self.0.retreat()?;
        Some((self.0.retreat()?, member))
    }
}

fn scored<'a>((score, member): (Raw<'a>, Raw<'a>)) -> Scored<'a> {
    Scored {
        score: score.score(),
        member: member.text(),
    }
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
            entries in 0usize..300,
        ) {
            let fit = Fit { entries, length: 10 };
            let (mut set, mut model) = (ZSet::default(), BTreeMap::<Vec<u8>, f64>::new());
            for (act, member, score) in acts {
                let member = match member % 8 {
                    0 => format!("m{member}").into_bytes(),
                    _ => member.to_string().into_bytes(),
                };
                let score = match score {
                    -20 => f64::NEG_INFINITY,
                    15.. => f64::from(score) / 7.0,
                    10.. => f64::from(score) / 100.0,
                    _ => f64::from(score * 50),
                };
                match act {
                    0 => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                    _ => prop_assert_eq!(set.insert(&member, score, fit), model.insert(member, score)),
                }
                prop_assert_eq!(set.len(), model.len());
            }
            let mut sorted: Vec<(f64, Vec<u8>)> = model.iter().map(|(m, &s)| (s, m.clone())).collect();
            sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let owned = |s: Scored<'_>| (s.score, s.member.to_vec());
            prop_assert_eq!(&set.iter().map(owned).collect::<Vec<_>>(), &sorted);
            for (rank, (score, member)) in sorted.iter().enumerate() {
                prop_assert_eq!(set.rank(member), Some(rank));
                prop_assert_eq!(set.score(member), Some(*score));
                prop_assert_eq!(&*set.at(rank).unwrap().member, &member[..]);
            }
            for score in [f64::NEG_INFINITY, -1.0, 0.11, 2.0, f64::INFINITY] {
                let below = sorted.iter().filter(|(s, _)| *s < score).count();
                prop_assert_eq!(set.count_scores(|s| s < score), below);
            }
            let half = sorted.len() / 2;
            prop_assert!(set.iter_from(half).map(owned).eq(sorted[half..].iter().cloned()));
            if half < sorted.len() {
                prop_assert!(set.iter_down(half).map(owned).eq(sorted[..=half].iter().rev().cloned()));
            }
            let mut scanned = Vec::new();
            let mut cursor = 0;
            loop {
                cursor = set.scan(cursor, 7, |scored| scanned.push(owned(scored)));
                if cursor == 0 { break; }
            }
            scanned.sort_by(|a, b| a.partial_cmp(b).unwrap());
            prop_assert_eq!(scanned, sorted);
        }
    }

    #[test]
    fn members_of_one_score_are_in_order_in_every_form() {
        for entries in [0, 1000] {
            let fit = Fit {
                entries,
                length: 64,
            };
            let mut set = ZSet::default();
            for n in (0..500).rev() {
                set.insert(format!("{n:03}").as_bytes(), 0.0, fit);
            }
            assert_eq!(set.count_members(|member| member < &b"123"[..]), 123);
            assert!(set.iter().map(|s| s.member.to_vec()).is_sorted());
        }
    }

    #[test]
    fn the_limits_are_as_set() {
        let fit = Fit {
            entries: 2,
            length: 3,
        };
        let encoding = |members: &[&str]| {
            let mut set = ZSet::default();
            for member in members {
                set.insert(member.as_bytes(), 1.0, fit);
            }
            set.encoding()
        };
        assert_eq!(encoding(&["a", "abc", "a"]), "listpack");
        assert_eq!(encoding(&["a", "b", "c"]), "skiplist");
        assert_eq!(encoding(&["abcd"]), "skiplist");
    }
}
