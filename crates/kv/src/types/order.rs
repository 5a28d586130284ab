//! The order of a large sorted set: a row of sorted blocks of a bounded size, so an insertion moves one
//! block's worth, and a rank is counted over blocks.
//!
//! The order holds scores, and the numbers that elements have in a table. The caller knows the
//! members and compares them: each place is found with the caller's comparisons.

use std::cmp::Ordering;

use crate::allocator::block_of;

/// A score, and the member that has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub(super) score: f64,
    pub(super) at: u32,
}

/// Most of a block: what fits 4 KiB, a size that every allocator has without a rest.
const BLOCK: usize = 4096 / size_of::<Ranked>();

/// All elements in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    /// No block is empty.
    blocks: Vec<Vec<Ranked>>,
    len: usize,
    /// Bytes of memory of all blocks.
    heap: usize,
}

/// A block, and a place in it.
pub(super) type Place = (usize, usize);

fn heap(block: &Vec<Ranked>) -> usize {
    block_of::<Ranked>(block.capacity())
}

impl Order {
    /// Bytes of memory.
    pub(super) fn heap(&self) -> usize {
        self.heap + block_of::<Vec<Ranked>>(self.blocks.capacity())
    }

    /// The place of the first element that is not below; the last block's end if all are.
    pub(super) fn find(&self, below: impl Fn(&Ranked) -> bool) -> Place {
        let number = self
            .blocks
            .partition_point(|block| block.last().is_some_and(&below));
        match self.blocks.get(number) {
            Some(block) => (number, block.partition_point(&below)),
            None => {
                let last = number.saturating_sub(1);
                (last, self.blocks.get(last).map_or(0, Vec::len))
            }
        }
    }

    /// How many elements are in front of a place.
    pub(super) fn rank(&self, (number, at): Place) -> usize {
        self.blocks[..number].iter().map(Vec::len).sum::<usize>() + at
    }

    pub(super) fn get_mut(&mut self, (number, at): Place) -> &mut Ranked {
        &mut self.blocks[number][at]
    }

    /// Adds an element in front of the one at a place.
    pub(super) fn insert(&mut self, (number, at): Place, ranked: Ranked) {
        self.len += 1;
        let Some(block) = self.blocks.get_mut(number) else {
            let block = vec![ranked];
            self.heap += heap(&block);
            return self.blocks.push(block);
        };
        self.heap -= heap(block);
        let mut behind = None;
        if block.len() == BLOCK {
            // Elements that come in order fill the last block; elsewhere a split leaves room in both
            // halves. A block's memory is allocated whole: blocks that grew and were split again would
            // leave holes of other sizes.
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
                tail.insert(at - half, ranked);
            } else {
                block.insert(at, ranked);
            }
            behind = Some(tail);
        } else {
            if block.len() == block.capacity() {
                block.reserve_exact(block.len().min(BLOCK - block.len()));
            }
            block.insert(at, ranked);
        }
        self.heap += heap(&self.blocks[number]);
        if let Some(tail) = behind {
            self.heap += heap(&tail);
            self.blocks.insert(number + 1, tail);
        }
    }

    /// Takes the element at a place out.
    pub(super) fn remove(&mut self, (number, at): Place) {
        self.len -= 1;
        let block = &mut self.blocks[number];
        self.heap -= heap(block);
        block.remove(at);
        super::spare::spare(block);
        if block.is_empty() {
            self.blocks.remove(number);
            super::spare::spare(&mut self.blocks);
        } else {
            self.heap += heap(block);
        }
    }

    /// The elements from a rank on.
    pub(super) fn iter_from(&self, rank: usize) -> impl Iterator<Item = Ranked> {
        let mut left = rank;
        let mut number = 0;
        while let Some(block) = self.blocks.get(number).filter(|block| left >= block.len()) {
            left -= block.len();
            number += 1;
        }
        self.blocks[number..].iter().flatten().skip(left).copied()
    }

    /// The elements from a rank on downwards.
    pub(super) fn iter_down(&self, rank: usize) -> impl Iterator<Item = Ranked> {
        // Skips the elements behind the rank.
        let mut left = self.len.saturating_sub(rank + 1);
        let mut end = self.blocks.len();
        while end > 0 && left >= self.blocks[end - 1].len() {
            left -= self.blocks[end - 1].len();
            end -= 1;
        }
        let blocks = self.blocks[..end].iter().flatten().rev();
        blocks.skip(left).copied()
    }

    /// Frees some blocks of an order that is not used any more: about `most` elements; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while freed < most
            && let Some(block) = self.blocks.pop()
        {
            self.heap -= heap(&block);
            self.len -= block.len();
            freed += block.len();
        }
        freed
    }
}

/// The order: the lower score first, then the lower member.
pub(super) fn compare(a: f64, b: f64, members: impl FnOnce() -> Ordering) -> Ordering {
    let by_score = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
    by_score.then_with(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_what_a_sorted_vector_does(
            acts in proptest::collection::vec((0u8..4, 0u32..3000), 1..1500),
        ) {
            let (mut order, mut model) = (Order::default(), Vec::<u32>::new());
            for (act, n) in acts {
                let place = order.find(|ranked| ranked.at < n);
                let at = model.partition_point(|other| *other < n);
                prop_assert_eq!(order.rank(place), at);
                if model.get(at) != Some(&n) {
                    order.insert(place, Ranked { score: 0.0, at: n });
                    model.insert(at, n);
                } else if act == 0 {
                    order.remove(place);
                    model.remove(at);
                }
                prop_assert_eq!(order.len, model.len());
            }
            let half = model.len() / 2;
            let up = order.iter_from(half).map(|ranked| ranked.at);
            prop_assert!(up.eq(model[half..].iter().copied()));
            let down = order.iter_down(half).map(|ranked| ranked.at);
            prop_assert!(down.eq(model[..(half + 1).min(model.len())].iter().rev().copied()));
            prop_assert_eq!(order.heap, order.blocks.iter().map(heap).sum::<usize>());
            while order.free_some(300) > 0 {}
            prop_assert_eq!((order.len, order.heap), (0, 0));
        }
    }
}
