//! A long list: a deque of packed blocks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frozen::{Frozen, Piece};
use super::packed::{Code, ELEMENTS_MAX, Packed};
use super::text::Text;
use crate::allocator::block_of;
use crate::number::put_text;

/// Most bytes of a block, unless one element alone has more: what an allocator has without a rest, and
/// is moved in no time.
pub(super) const BLOCK_BYTES: usize = 4096;

pub(super) fn has_room(block: &Packed, code: &Code<'_>) -> bool {
    block.len() < ELEMENTS_MAX && block.size() + Packed::size_of(code) <= BLOCK_BYTES
}

/// Bytes that these elements would take in a listpack, the two ends of that included.
pub(super) fn listed(block: &Packed) -> usize {
    let mut elements = block.iter();
    let mut bytes = 7;
    while let Some(element) = elements.advance() {
        bytes += element.listed();
    }
    bytes
}

/// Elements in order.
#[derive(Debug)]
pub(super) struct Blocks {
    /// No block is empty.
    blocks: VecDeque<Packed>,
    /// Set while a snapshot writes the list down as it was.
    frozen: Option<Box<Numbered>>,
    len: usize,
    /// Bytes that the list would take in a listpack.
    listed: usize,
    /// Bytes of memory of all blocks.
    heap: usize,
    /// The list has been too long for a listpack, and is not yet short again.
    pub(super) is_long: bool,
}

/// A copy is another list, which no snapshot writes down.
impl Clone for Blocks {
    fn clone(&self) -> Blocks {
        Blocks {
            blocks: self.blocks.clone(),
            frozen: None,
            ..*self
        }
    }
}

/// A list that is being snapshotted: the number of each block, as they stood at the beginning.
#[derive(Debug)]
struct Numbered {
    frozen: Frozen,
    /// Numbers of the present blocks; [`NEW`] for later ones.
    numbers: VecDeque<u32>,
}

/// No number.
const NEW: u32 = u32::MAX;

impl Blocks {
    pub(super) fn new(block: Packed) -> Blocks {
        let mut blocks = Blocks {
            blocks: VecDeque::new(),
            frozen: None,
            len: block.len(),
            listed: listed(&block),
            heap: 0,
            is_long: false,
        };
        if block.len() > 0 {
            blocks.put_block(0, block);
        }
        blocks
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn listed(&self) -> usize {
        self.listed
    }

    pub(super) fn count(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of memory.
    pub(super) fn heap(&self) -> usize {
        self.heap + block_of::<Packed>(self.blocks.capacity())
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Packed> {
        self.blocks.iter()
    }

    /// Frees up to about `most` elements of a list that is not used any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while freed < most
            && let Some(block) = self.blocks.pop_back()
        {
            self.heap -= block.heap();
            self.len -= block.len();
            freed += block.len();
        }
        freed
    }

    /// The only block, if there is no more to know of the list.
    pub(super) fn take_only(&mut self) -> Option<Packed> {
        let is_plain = self.blocks.len() <= 1 && !self.is_long && self.frozen.is_none();
        let small = self.blocks.front().is_none_or(|b| b.size() <= BLOCK_BYTES);
        (is_plain && small).then(|| self.blocks.pop_front().unwrap_or_default())
    }

    /// Changes a block that there is, and keeps count.
    fn change(&mut self, number: usize, change: impl FnOnce(&mut Packed)) {
        self.put_aside(number);
        let block = &mut self.blocks[number];
        self.heap -= block.heap();
        change(block);
        self.heap += block.heap();
    }

    fn put_block(&mut self, number: usize, block: Packed) {
        self.heap += block.heap();
        self.blocks.insert(number, block);
        if let Some(numbered) = &mut self.frozen {
            numbered.numbers.insert(number, NEW);
        }
    }

    /// Takes `n` elements out of a block, and the block with its last.
    fn remove_from(&mut self, number: usize, at: usize, n: usize) {
        let mut elements = self.blocks[number].iter_from(at);
        let listed = (0..n).filter_map(|_| Some(elements.advance()?.listed()));
        self.listed -= listed.sum::<usize>();
        self.len -= n;
        if n < self.blocks[number].len() {
            return self.change(number, |block| block.remove(at, n));
        }
        self.put_aside(number);
        if let Some(numbered) = &mut self.frozen {
            numbered.numbers.remove(number);
        }
        if let Some(block) = self.blocks.remove(number) {
            self.heap -= block.heap();
        }
        // Few blocks are not worth an allocation.
        if self.blocks.capacity() > 16 && self.blocks.len() < self.blocks.capacity() / 4 {
            self.blocks.shrink_to(self.blocks.len() * 2);
        }
    }

    /// Takes an element out that there is.
    pub(super) fn remove(&mut self, index: usize) {
        let (number, at) = self.find(index);
        self.remove_from(number, at, 1);
    }

    /// Takes the last `n` elements out.
    pub(super) fn drop_back(&mut self, mut n: usize) {
        while n > 0
            && let Some(block) = self.blocks.back()
        {
            let some = n.min(block.len());
            self.remove_from(self.blocks.len() - 1, block.len() - some, some);
            n -= some;
        }
    }

    /// Takes the first `n` elements out.
    pub(super) fn drop_front(&mut self, mut n: usize) {
        while n > 0
            && let Some(block) = self.blocks.front()
        {
            let some = n.min(block.len());
            self.remove_from(0, 0, some);
            n -= some;
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Text<'_>> {
        if index >= self.len {
            return None;
        }
        let (number, at) = self.find(index);
        Some(self.blocks[number].get(at))
    }

    /// Adds an element in front of the one at `index`, which is at most the length.
    pub(super) fn insert(&mut self, index: usize, code: Code<'_>) {
        // Between two blocks either has room for it; behind the last there is only one.
        let (mut number, mut at) = if index == self.len {
            let last = self.blocks.len().saturating_sub(1);
            (last, self.blocks.get(last).map_or(0, Packed::len))
        } else {
            self.find(index)
        };
        let end = self.blocks.get(number).map_or(0, Packed::len);
        let is_full = |block: &Packed| !has_room(block, &code);
        if self.blocks.get(number).is_none_or(is_full) {
            if at > 0 && at < end {
                let mut behind = Packed::default();
                self.change(number, |block| behind = block.split(at));
                self.put_block(number + 1, behind);
            }
            // The part in front may have room now.
            if at == 0 || at == end || is_full(&self.blocks[number]) {
                number += usize::from(at > 0);
                at = 0;
                self.put_block(number, Packed::default());
            }
        }
        self.change(number, |block| {
            block.insert(at, &[code]);
        });
        self.len += 1;
        self.listed += code.listed();
    }

    /// The block of an element, and its place there.
    fn find(&self, index: usize) -> (usize, usize) {
        if index * 2 < self.len {
            let mut left = index;
            for (number, block) in self.blocks.iter().enumerate() {
                if left < block.len() {
                    return (number, left);
                }
                left -= block.len();
            }
        } else {
            let mut left = self.len - 1 - index;
            for (number, block) in self.blocks.iter().enumerate().rev() {
                if left < block.len() {
                    return (number, block.len() - 1 - left);
                }
                left -= block.len();
            }
        }
        unreachable!("the blocks hold as many elements as the list")
    }

    pub(super) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        let blocks = self.blocks.len();
        self.frozen = Some(Box::new(Numbered {
            frozen: Frozen::new(id, blocks, queued.clone()),
            numbers: (0..blocks as u32).collect(),
        }));
    }

    pub(super) fn frozen_id(&self) -> Option<u64> {
        self.frozen.as_ref().map(|numbered| numbered.frozen.id)
    }

    /// Puts a block aside that is about to change, if it is still to be written down.
    #[inline]
    fn put_aside(&mut self, at: usize) {
        if let Some(Numbered { frozen, numbers }) = self.frozen.as_deref_mut()
            && let number = numbers[at]
            && number != NEW
            && frozen.is_owed(number as usize)
        {
            frozen.put_aside(number as usize, vec![piece(number, &self.blocks[at])]);
            numbers[at] = NEW;
        }
    }

    pub(super) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        let Some(Numbered { frozen, numbers }) = self.frozen.as_deref_mut() else {
            return true;
        };
        let mut bytes = frozen.take(to);
        for (&number, block) in numbers.iter().zip(&self.blocks) {
            if bytes >= most {
                return false;
            }
            if number != NEW && frozen.is_owed(number as usize) {
                let piece = piece(number, block);
                bytes += piece.bytes.len() + 1;
                to.push(piece);
                // The remaining blocks have kept their order.
                frozen.next = number as usize + 1;
            }
        }
        self.frozen = None;
        true
    }

    /// Checks the counts against the elements.
    #[cfg(test)]
    pub(super) fn check(&self) {
        assert!(self.blocks.iter().all(|block| block.len() > 0));
        let sum = |of: fn(&Packed) -> usize| self.blocks.iter().map(of).sum::<usize>();
        assert_eq!(self.len, sum(Packed::len));
        assert_eq!(self.heap, sum(Packed::heap));
        assert_eq!(self.listed, 7 + sum(|block| listed(block) - 7));
    }
}

fn piece(number: u32, block: &Packed) -> Piece {
    let mut piece = Piece::new(number);
    block
        .iter()
        .for_each(|element| put_text(&mut piece.bytes, &element));
    piece.count = block.len();
    piece
}
