//! The entries of a stream in their blocks, and what is known of removed ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::super::frozen::{Frozen, Piece};
use super::block::{Block, Item};
use super::id::StreamId;
use super::part::block_piece;
use crate::allocator::block_of;

/// How far a stream is trimmed: the oldest entries go, as long as this condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// Entries beyond this number.
    MaxLen(u64),
    /// Entries with ids below this one.
    MinId(StreamId),
}

/// Entries in the order of their ids.
#[derive(Debug, Default)]
pub struct Entries {
    blocks: VecDeque<Block>,
    /// Set while a snapshot writes the entries down as they were.
    pub(super) numbered: Option<Box<Numbered>>,
    len: u64,
    /// Bytes of memory of all blocks.
    heap: usize,
    /// Id of the last entry that there is.
    top: StreamId,
    /// Id of the last entry that ever was, or as it was set.
    pub(super) last_id: StreamId,
    /// The greatest that was deleted.
    pub(super) max_deleted: StreamId,
    /// How many were ever added.
    pub(super) added: u64,
}

/// A copy is another stream, which no snapshot writes down.
impl Clone for Entries {
    fn clone(&self) -> Entries {
        let blocks = self.blocks.clone();
        Entries {
            heap: blocks.iter().map(Block::heap).sum(),
            blocks,
            numbered: None,
            ..*self
        }
    }
}

/// Entries that are being written down: the number of each block, as they stood when it began.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) frozen: Frozen,
    /// Numbers of the present blocks; [`NEW`] for later ones.
    numbers: VecDeque<u32>,
}

/// No number.
const NEW: u32 = u32::MAX;

impl Entries {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of blocks of the entries.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The id of the last entry that ever was added, or what was set in its place.
    #[must_use]
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// The greatest id that was deleted; 0-0 if none was.
    #[must_use]
    pub fn max_deleted(&self) -> StreamId {
        self.max_deleted
    }

    /// How many entries were ever added.
    #[must_use]
    pub fn added(&self) -> u64 {
        self.added
    }

    /// The id of the first entry; 0-0 if there is none.
    #[must_use]
    pub fn first_id(&self) -> StreamId {
        let first = self.blocks.front().and_then(|block| block.entries().next());
        first.map_or(StreamId::MIN, |(_, item)| item.id)
    }

    /// The id of the last entry that there is; 0-0 if there is none.
    #[must_use]
    pub fn top(&self) -> StreamId {
        self.top
    }

    /// Bytes of memory that the entries own.
    pub(super) fn heap(&self) -> usize {
        self.heap + block_of::<Block>(self.blocks.capacity())
    }

    /// The id that the next entry would have at this time; `None` if there is none left.
    #[must_use]
    pub fn next_id(&self, now_ms: u64) -> Option<StreamId> {
        if now_ms > self.last_id.ms {
            return Some(StreamId { ms: now_ms, seq: 0 });
        }
        self.last_id.next()
    }

    /// Adds an entry of fields and values in turn, at least one pair. The entry's id has to be
    /// above [`last_id`](Entries::last_id).
    pub fn append(&mut self, id: StreamId, pairs: &[&[u8]]) {
        debug_assert!(id > self.last_id, "ids rise");
        let last = self.blocks.len().wrapping_sub(1);
        let measure = self.blocks.back().map(|block| block.measure(id, pairs));
        match measure {
            Some(measure) if self.blocks[last].has_room(measure) => {
                self.change(last, |block| block.push(id, pairs, measure));
            }
            _ => {
                if measure.is_some() {
                    // The block stays as it is, if a snapshot is being made of it.
                    let block = &mut self.blocks[last];
                    let held = block.heap();
                    block.close();
                    self.heap = self.heap + block.heap() - held;
                }
                let block = Block::new(id, pairs, self.blocks.back());
                self.heap += block.heap();
                self.blocks.push_back(block);
                if let Some(numbered) = &mut self.numbered {
                    numbered.numbers.push_back(NEW);
                }
            }
        }
        self.len += 1;
        self.added = self.added.saturating_add(1);
        (self.last_id, self.top) = (id, id);
    }

    /// Changes a block that there is, and keeps count of memory.
    fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Block) -> R) -> R {
        self.put_aside(number);
        let block = &mut self.blocks[number];
        self.heap -= block.heap();
        let result = change(block);
        self.heap += block.heap();
        result
    }

    fn drop_block(&mut self, number: usize) {
        self.put_aside(number);
        if let Some(numbered) = &mut self.numbered {
            numbered.numbers.remove(number);
        }
        if let Some(block) = self.blocks.remove(number) {
            self.heap -= block.heap();
        }
        if self.blocks.capacity() > 16 && self.blocks.len() < self.blocks.capacity() / 4 {
            self.blocks.shrink_to(self.blocks.len() * 2);
        }
    }

    /// The block in which an id would be.
    fn block_of(&self, id: StreamId) -> Option<usize> {
        // Most look at the end.
        if self.blocks.back()?.first <= id {
            return Some(self.blocks.len() - 1);
        }
        let after = self.blocks.partition_point(|block| block.first <= id);
        after.checked_sub(1)
    }

    /// The entry of an id.
    #[must_use]
    pub fn get(&self, id: StreamId) -> Option<Item<'_>> {
        let block = &self.blocks[self.block_of(id)?];
        block.entries_from(id).next().filter(|item| item.id == id)
    }

    /// Entries from one id to another, both included.
    pub fn range(&self, from: StreamId, to: StreamId) -> impl Iterator<Item = Item<'_>> {
        let start = match self.block_of(from) {
            _ if from > self.top => self.blocks.len(),
            Some(number) => number,
            None => 0,
        };
        self.blocks
            .range(start..)
            .flat_map(move |block| block.entries_from(from))
            .take_while(move |item| item.id <= to)
    }

    /// The entries in a range, the last first.
    pub fn range_back(&self, from: StreamId, to: StreamId) -> impl Iterator<Item = Item<'_>> {
        let end = self.block_of(to).map_or(0, |number| number + 1);
        self.blocks
            .range(..end)
            .rev()
            .flat_map(|block| {
                let offsets: Vec<usize> = block.entries().map(|(offset, _)| offset).collect();
                offsets.into_iter().rev().filter_map(|at| block.at(at))
            })
            .skip_while(move |item| item.id > to)
            .take_while(move |item| item.id >= from)
    }

    /// Deletes an entry; returns whether the entry was there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some(number) = self.block_of(id) else {
            return false;
        };
        if self.get(id).is_none() {
            return false;
        }
        if self.blocks[number].live == 1 {
            self.drop_block(number);
        } else {
            self.change(number, |block| {
                block.remove(id);
                block.compact();
            });
        }
        self.len -= 1;
        self.max_deleted = self.max_deleted.max(id);
        if id == self.top {
            let last = self.blocks.back().and_then(|block| block.entries().last());
            self.top = last.map_or(StreamId::MIN, |(_, item)| item.id);
        }
        true
    }

    /// Removes the oldest entries, whole blocks only if `whole`; at most `limit` unless that is 0. How many
    /// went.
    pub fn trim(&mut self, trim: Trim, whole: bool, limit: u64) -> u64 {
        let before = self.len;
        while let Some(block) = self.blocks.front() {
            let live = u64::from(block.live);
            if let Trim::MaxLen(most) = trim
                && self.len <= most
            {
                break;
            }
            if limit > 0 && before - self.len + live > limit {
                break;
            }
            let all = match trim {
                Trim::MaxLen(most) => self.len - live >= most,
                Trim::MinId(least) => block.last < least,
            };
            if all {
                self.drop_block(0);
                self.len -= live;
                continue;
            }
            if whole {
                break;
            }
            let gone = match trim {
                Trim::MaxLen(most) => (self.len - most) as usize,
                Trim::MinId(least) => {
                    let ids = block.entries().map(|(_, item)| item.id);
                    ids.take_while(|id| *id < least).count()
                }
            };
            if gone as u64 == live {
                self.drop_block(0);
            } else if gone > 0 {
                self.change(0, |block| {
                    (0..gone).for_each(|_| block.pop_front());
                    block.compact();
                });
            }
            self.len -= gone as u64;
            break;
        }
        if self.len == 0 {
            self.top = StreamId::MIN;
        }
        before - self.len
    }

    /// Whether entries from this id on were deleted, so that their number cannot be told from how many were
    /// added.
    #[must_use]
    pub fn has_gaps_from(&self, id: StreamId) -> bool {
        self.len > 0 && self.max_deleted != StreamId::MIN && id <= self.max_deleted
    }

    /// How many entries had been added when that of this id was, if it can be told.
    #[must_use]
    pub fn added_up_to(&self, id: StreamId) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.added);
        }
        if id != StreamId::MIN && id < self.max_deleted {
            return None;
        }
        if id >= self.last_id {
            return (id == self.last_id).then_some(self.added);
        }
        let first = self.first_id();
        if self.max_deleted == StreamId::MIN || self.max_deleted < first {
            if id < first {
                return Some(self.added.saturating_sub(self.len));
            }
            if id == first {
                return Some(self.added.saturating_sub(self.len) + 1);
            }
        }
        None
    }

    /// Puts in a block of a snapshot; false if it does not fit between the present ones.
    pub(super) fn put_block(&mut self, block: Block) -> bool {
        let at = self
            .blocks
            .partition_point(|other| other.first <= block.first);
        let above = at == 0 || self.blocks[at - 1].last < block.first;
        let below = self
            .blocks
            .get(at)
            .is_none_or(|next| block.last < next.first);
        if !above || !below {
            return false;
        }
        self.len += u64::from(block.live);
        self.heap += block.heap();
        if let Some((_, item)) = block.entries().last() {
            self.top = self.top.max(item.id);
        }
        self.last_id = self.last_id.max(self.top);
        self.blocks.insert(at, block);
        true
    }

    /// Has the entries written down in their present state, however they change later. Takes a step
    /// for each block.
    pub(super) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        let blocks = self.blocks.len();
        self.numbered = Some(Box::new(Numbered {
            frozen: Frozen::new(id, blocks, queued.clone()),
            numbers: (0..blocks as u32).collect(),
        }));
    }

    /// Puts a block aside that is about to change, if it is still to be written down.
    #[inline]
    fn put_aside(&mut self, at: usize) {
        if let Some(Numbered { frozen, numbers }) = self.numbered.as_deref_mut()
            && let number = numbers[at]
            && number != NEW
            && frozen.is_owed(number as usize)
        {
            frozen.put_aside(number as usize, vec![block_piece(&self.blocks[at])]);
            numbers[at] = NEW;
        }
    }

    /// Hands out the entries as they were when they were frozen, about `most` bytes of them; returns
    /// whether that is all.
    pub(super) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        let Some(Numbered { frozen, numbers }) = self.numbered.as_deref_mut() else {
            return true;
        };
        let mut bytes = frozen.take(to);
        // The remaining blocks have kept their order, and the ones in front of `next` are done.
        let done = numbers.partition_point(|number| (*number as usize) < frozen.next);
        for (&number, block) in numbers.iter().zip(&self.blocks).skip(done) {
            if bytes >= most {
                return false;
            }
            if number != NEW && frozen.is_owed(number as usize) {
                let piece = block_piece(block);
                bytes += piece.bytes.len() + 1;
                to.push(piece);
                frozen.next = number as usize + 1;
            }
        }
        self.numbered = None;
        true
    }

    /// Shows each block.
    pub(super) fn each_block(&self, show: impl FnMut(&Block)) {
        self.blocks.iter().for_each(show);
    }

    /// Frees up to about `most` entries of what is not used any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while freed < most
            && let Some(block) = self.blocks.pop_back()
        {
            self.heap -= block.heap();
            self.len -= u64::from(block.live);
            freed += block.live as usize;
        }
        freed
    }
}
