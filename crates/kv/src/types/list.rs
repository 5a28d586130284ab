//! Lists: a deque of blocks, each with its elements packed one after the other.
//!
//! The one idea: both ends are cheap because only the block at that end is touched, and an element
//! in the middle is found by counting blocks, not elements.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::frozen::{Frozen, Piece};
use super::packed::Packed;
use crate::allocator::{block, block_of};
use crate::number::put_text;

/// Most bytes of elements in a block, unless one element alone has more.
const BLOCK_BYTES: usize = 4096;
/// Most elements in a block.
const BLOCK_ELEMENTS: usize = 128;
/// A list with more bytes than this calls itself a quicklist, as Redis does.
const LISTPACK_BYTES: usize = 8192;

fn has_room(block: &Packed, element: &[u8]) -> bool {
    block.len() < BLOCK_ELEMENTS && block.bytes() + element.len() <= BLOCK_BYTES
}

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head.
    Left,
    /// The tail.
    Right,
}

/// Elements in order.
#[derive(Debug, Default)]
pub struct List {
    blocks: VecDeque<Packed>,
    /// It is being written down as it was.
    frozen: Option<Box<Numbered>>,
    len: u32,
    /// Of all elements.
    bytes: usize,
    /// Bytes of memory of all blocks.
    heap: usize,
    /// It has been long, and is not yet short again.
    long: bool,
}

/// A copy is another list, which nobody writes down.
impl Clone for List {
    fn clone(&self) -> List {
        List {
            blocks: self.blocks.clone(),
            frozen: None,
            ..*self
        }
    }
}

/// A list that is being written down: the number of each block, as they stood when it began.
#[derive(Debug)]
struct Numbered {
    frozen: Frozen,
    /// Of the blocks there are now; [`NEW`] for those that came later.
    numbers: VecDeque<u32>,
}

/// No number.
const NEW: u32 = u32::MAX;

impl List {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The name of its encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        if self.long { "quicklist" } else { "listpack" }
    }

    /// Bytes of memory, as the allocator gives it; takes the same time whatever the length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let blocks = block_of::<Packed>(self.blocks.capacity());
        block(size_of::<List>()) + self.heap + blocks
    }

    /// Frees up to about `most` elements of a list that nobody will look into any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while freed < most
            && let Some(block) = self.blocks.pop_back()
        {
            self.heap -= block.heap();
            self.len -= block.len() as u32;
            freed += block.len();
        }
        freed
    }

    /// Changes a block that there is, and keeps count of memory.
    fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Packed) -> R) -> R {
        self.put_aside(number);
        let block = &mut self.blocks[number];
        self.heap -= block.heap();
        let result = change(block);
        self.heap += block.heap();
        result
    }

    /// Adds a block of one element in front of block `number`.
    fn add_block(&mut self, number: usize, element: &[u8]) {
        let mut block = Packed::default();
        block.insert(0, element);
        self.put_block(number, block);
    }

    fn put_block(&mut self, number: usize, block: Packed) {
        self.heap += block.heap();
        self.blocks.insert(number, block);
        if let Some(numbered) = &mut self.frozen {
            numbered.numbers.insert(number, NEW);
        }
    }

    /// Takes a block out.
    fn drop_block(&mut self, number: usize) {
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

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        let number = match end {
            End::Left => 0,
            End::Right => self.blocks.len().saturating_sub(1),
        };
        match self.blocks.get(number) {
            Some(block) if has_room(block, element) => {
                let at = if end == End::Left { 0 } else { block.len() };
                self.change(number, |block| block.insert(at, element));
            }
            _ if end == End::Left => self.add_block(0, element),
            _ => self.add_block(self.blocks.len(), element),
        }
        self.grown(element);
    }

    /// Takes the element at an end.
    pub fn pop(&mut self, end: End) -> Option<Vec<u8>> {
        let last = self.len().checked_sub(1)?;
        let at = if end == End::Left { 0 } else { last };
        self.remove(at)
    }

    /// The element at an index from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let (block, at) = self.find(index)?;
        Some(self.blocks[block].get(at))
    }

    /// Puts another element in the place of one; whether there was one.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        if self.remove(index).is_none() {
            return false;
        }
        self.insert(index, element);
        true
    }

    /// Adds an element in front of the one at `index`, which is at most the length.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let Some((number, at)) = self.find(index) else {
            return self.push(End::Right, element);
        };
        if !has_room(&self.blocks[number], element) && at > 0 {
            let behind = self.change(number, |block| block.split(at));
            self.put_block(number + 1, behind);
        }
        if has_room(&self.blocks[number], element) {
            self.change(number, |block| block.insert(at, element));
        } else {
            self.add_block(number + usize::from(at > 0), element);
        }
        self.grown(element);
    }

    /// Takes out the element at an index.
    pub fn remove(&mut self, index: usize) -> Option<Vec<u8>> {
        let (number, at) = self.find(index)?;
        let element = self.change(number, |block| block.remove(at));
        if self.blocks[number].len() == 0 {
            self.drop_block(number);
        }
        self.len -= 1;
        self.bytes -= element.len();
        if self.bytes + self.len() < LISTPACK_BYTES / 2 {
            self.long = false;
        }
        Some(element)
    }

    /// Keeps the elements from `first` to `last`, both included.
    pub fn keep(&mut self, first: usize, last: usize) {
        while self.len() > last + 1 {
            self.drop_end(End::Right, self.len() - last - 1);
        }
        let mut front = first.min(self.len());
        while front > 0 {
            front -= self.drop_end(End::Left, front);
        }
    }

    /// Removes up to `most` elements of the block at an end; how many.
    fn drop_end(&mut self, end: End, most: usize) -> usize {
        let number = match end {
            End::Left => 0,
            End::Right => self.blocks.len().saturating_sub(1),
        };
        let Some(block) = self.blocks.get(number) else {
            return 0;
        };
        if block.len() > most {
            self.pop(end);
            return 1;
        }
        let (len, bytes) = (block.len(), block.bytes());
        self.drop_block(number);
        self.len -= len as u32;
        self.bytes -= bytes;
        if self.bytes + self.len() < LISTPACK_BYTES / 2 {
            self.long = false;
        }
        len
    }

    /// The elements from an index on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = &[u8]> {
        let (number, at) = self.find(index).unwrap_or((self.blocks.len(), 0));
        let first = self.blocks.get(number).into_iter();
        let rest = self.blocks.iter().skip(number + 1);
        first
            .flat_map(move |block| (at..block.len()).map(|at| block.get(at)))
            .chain(rest.flat_map(|block| (0..block.len()).map(|at| block.get(at))))
    }

    /// All elements, the last first.
    pub fn iter_back(&self) -> impl Iterator<Item = &[u8]> {
        let blocks = self.blocks.iter().rev();
        blocks.flat_map(|block| (0..block.len()).rev().map(|at| block.get(at)))
    }

    /// How many blocks it has: the numbers of [`Piece`]s are below that when it is frozen.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Has it written down as it is now, whatever becomes of it. Takes a step for each block.
    pub(crate) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        let blocks = self.blocks.len();
        self.frozen = Some(Box::new(Numbered {
            frozen: Frozen::new(id, blocks, queued.clone()),
            numbers: (0..blocks as u32).collect(),
        }));
    }

    pub(crate) fn frozen_id(&self) -> Option<u64> {
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

    /// Hands out what it was when it was frozen, about `most` bytes of it; whether that is all.
    pub(crate) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
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
                // Those that stay have kept their order.
                frozen.next = number as usize + 1;
            }
        }
        self.frozen = None;
        true
    }

    fn find(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len() {
            return None;
        }
        if index * 2 < self.len() {
            let mut left = index;
            for (number, block) in self.blocks.iter().enumerate() {
                if left < block.len() {
                    return Some((number, left));
                }
                left -= block.len();
            }
        } else {
            let mut left = self.len() - 1 - index;
            for (number, block) in self.blocks.iter().enumerate().rev() {
                if left < block.len() {
                    return Some((number, block.len() - 1 - left));
                }
                left -= block.len();
            }
        }
        unreachable!("the blocks hold as many elements as the list")
    }

    fn grown(&mut self, element: &[u8]) {
        assert!(self.len < u32::MAX, "as many elements as a list can hold");
        self.len += 1;
        self.bytes += element.len();
        self.long |= self.bytes + self.len() > LISTPACK_BYTES;
    }
}

fn piece(number: u32, block: &Packed) -> Piece {
    let mut piece = Piece::new(number);
    block
        .iter()
        .for_each(|element| put_text(&mut piece.bytes, element));
    piece.count = block.len();
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_what_a_plain_vector_does(
            acts in proptest::collection::vec((0u8..8, any::<u16>(), 0usize..40), 1..400),
            scale in 1usize..60,
        ) {
            let (mut list, mut model) = (List::default(), Vec::<Vec<u8>>::new());
            for (n, (act, place, len)) in acts.into_iter().enumerate() {
                let element = vec![n as u8; len * scale];
                let at = usize::from(place) % (model.len() + 1);
                match act {
                    0 | 1 => { list.push(End::Right, &element); model.push(element); }
                    2 => { list.push(End::Left, &element); model.insert(0, element); }
                    3 => { list.insert(at, &element); model.insert(at, element); }
                    4 => prop_assert_eq!(list.pop(End::Left), (!model.is_empty()).then(|| model.remove(0))),
                    5 => prop_assert_eq!(list.pop(End::Right), model.pop()),
                    6 => {
                        let there = at < model.len();
                        prop_assert_eq!(list.set(at, &element), there);
                        if there { model[at] = element; }
                    }
                    _ if n % 7 == 0 => {
                        let last = at.max(1);
                        list.keep(at / 3, last);
                        model.truncate(last + 1);
                        model.drain(..(at / 3).min(model.len()));
                    }
                    _ => prop_assert_eq!(list.get(at), model.get(at).map(Vec::as_slice)),
                }
                prop_assert_eq!(list.len(), model.len());
            }
            let from = model.len() / 3;
            prop_assert!(list.iter_from(from).eq(model[from..].iter().map(Vec::as_slice)));
            prop_assert!(list.iter_back().eq(model.iter().rev().map(Vec::as_slice)));
            prop_assert_eq!(list.bytes, model.iter().map(Vec::len).sum::<usize>());
            prop_assert_eq!(list.heap, list.blocks.iter().map(Packed::heap).sum::<usize>());
        }
    }

    #[test]
    fn the_encoding_follows_the_size() {
        let mut list = List::default();
        for _ in 0..100 {
            list.push(End::Right, &[7; 100]);
        }
        assert_eq!(list.encoding(), "quicklist");
        list.keep(0, 10);
        assert_eq!(list.encoding(), "listpack");
    }
}
