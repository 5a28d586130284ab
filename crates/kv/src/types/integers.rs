//! Whole numbers in ascending order: what a small set of integers is.
//!
//! The one idea: all numbers take as many bytes as the widest of them needs, so that binary search
//! finds a number.

use std::cmp::Ordering;

use crate::allocator::{block, fitting, growing};

/// Numbers, each once; at most 65,535.
#[derive(Clone, Debug, Default)]
pub(super) struct Integers {
    /// The numbers in two's complement, the lowest byte first.
    room: Box<[u8]>,
    count: u16,
    /// Bytes of each, 1 to 8; 0 before there is one.
    width: u8,
}

/// Bytes that a number takes.
fn width(n: i64) -> u8 {
    let bits = 64 - (n ^ n >> 63).leading_zeros();
    (bits / 8 + 1) as u8
}

impl Integers {
    pub(super) fn len(&self) -> usize {
        self.count.into()
    }

    /// Bytes of memory.
    pub(super) fn heap(&self) -> usize {
        block(self.room.len())
    }

    /// The number at an index below the length.
    #[inline]
    pub(super) fn get(&self, at: usize) -> i64 {
        let width = usize::from(self.width);
        let start = at * width;
        // Eight bytes that end with it, or what there is: the lower ones are shifted out.
        let end = start + width;
        let word = match end.checked_sub(8) {
            Some(from) => self.room[from..end].try_into().expect("eight"),
            None => {
                let mut word = [0; 8];
                word[8 - end..].copy_from_slice(&self.room[..end]);
                word
            }
        };
        i64::from_le_bytes(word) >> (64 - 8 * width as u32)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// The place of a number, or the place where it would be inserted.
    fn find(&self, n: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.get(middle).cmp(&n) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    pub(super) fn contains(&self, n: i64) -> bool {
        self.find(n).is_ok()
    }

    /// Adds a number; returns whether it is new.
    pub(super) fn insert(&mut self, n: i64) -> bool {
        let Err(at) = self.find(n) else {
            return false;
        };
        assert!(self.count < u16::MAX, "as many as the set lets in");
        if width(n) > self.width {
            self.widen(width(n));
        }
        let (width, len) = (usize::from(self.width), self.len());
        if (len + 1) * width > self.room.len() {
            self.set_room(growing((len + 1) * width));
        }
        self.room
            .copy_within(at * width..len * width, (at + 1) * width);
        self.room[at * width..][..width].copy_from_slice(&n.to_le_bytes()[..width]);
        self.count += 1;
        true
    }

    /// Removes a number; returns whether it was there.
    pub(super) fn remove(&mut self, n: i64) -> bool {
        let Ok(at) = self.find(n) else {
            return false;
        };
        let (width, len) = (usize::from(self.width), self.len());
        self.room
            .copy_within((at + 1) * width..len * width, at * width);
        self.count -= 1;
        self.trim();
        true
    }

    /// Gives memory back where more than half is free.
    pub(super) fn trim(&mut self) {
        let size = self.len() * usize::from(self.width);
        if size < self.room.len() / 2 {
            self.set_room(growing(size));
        }
    }

    /// Makes room for numbers that are about to be added, before there is one.
    pub(super) fn reserve_for(&mut self, numbers: impl Iterator<Item = i64>) {
        let (mut count, mut widest) = (0, self.width);
        numbers.for_each(|n| (count, widest) = (count + 1, widest.max(width(n))));
        self.width = widest;
        self.set_room(fitting(count * usize::from(widest)));
    }

    fn set_room(&mut self, bytes: usize) {
        let mut room = vec![0; bytes].into_boxed_slice();
        let size = self.len() * usize::from(self.width);
        room[..size].copy_from_slice(&self.room[..size]);
        self.room = room;
    }

    fn widen(&mut self, width: u8) {
        let each = usize::from(width);
        let mut room = vec![0; growing(self.len() * each)].into_boxed_slice();
        for (n, bytes) in self.iter().zip(room.chunks_exact_mut(each)) {
            bytes.copy_from_slice(&n.to_le_bytes()[..each]);
        }
        (self.room, self.width) = (room, width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn does_what_a_sorted_set_does(
            acts in proptest::collection::vec((any::<i64>(), 0u32..64, any::<bool>()), 1..300),
        ) {
            let (mut integers, mut model) = (Integers::default(), BTreeSet::new());
            for (n, shift, removes) in acts {
                // Numbers of all widths, and some more than once.
                let n = n >> shift;
                if removes {
                    prop_assert_eq!(integers.remove(n), model.remove(&n));
                } else {
                    prop_assert_eq!(integers.insert(n), model.insert(n));
                }
                prop_assert_eq!(integers.contains(n), model.contains(&n));
                prop_assert!(integers.iter().eq(model.iter().copied()));
            }
        }
    }

    #[test]
    fn they_take_as_many_bytes_as_the_widest() {
        for (n, bytes) in [
            (0, 1),
            (127, 1),
            (-128, 1),
            (128, 2),
            (-129, 2),
            (8_388_607, 3),
            (1 << 31, 5),
            (i64::MIN, 8),
            (i64::MAX, 8),
        ] {
            assert_eq!(width(n), bytes, "{n}");
        }
        let mut integers = Integers::default();
        (0..100).for_each(|n| assert!(integers.insert(n * 1000)));
        assert!(integers.heap() <= 336, "{}", integers.heap());
        (0..100).for_each(|n| assert!(integers.remove(n * 1000)));
        assert_eq!(integers.heap(), 0);
    }
}
