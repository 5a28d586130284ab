//! Output that a connection has written and the kernel has not taken yet.
//!
//! Small writes are gathered into blocks that are borrowed from the loop and go back when they are
//! sent, so an idle connection owns none. Taken chunks and shared bytes are queued as they are. A
//! write that fits a block is never split over two, so that one acknowledgement is one piece.
//! Output that is written behind a mark stays in the queue until the mark is released ([`holds`]).
//!
//! Memory counts against a connection's marks: the queued bytes, and the memory that is tied up beside
//! them. A segment is freed when its last byte is sent, so the sent bytes of the first segment count like
//! unsent ones. Two exceptions, at most a block each, do not count: free room in the block that is being
//! written to, and the first 64 KiB that are sent of the first segment. (So a queue of blocks counts its
//! unsent bytes, and only a segment larger than any block needs a second look.)

mod block;
mod holds;
mod shared;

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use crate::memory::buffer::Piece;
use block::{Block, LARGE, SMALL, between_size, first_size, next_size};
use holds::Holds;
use shared::Shared;

pub(crate) use block::Blocks;
pub(crate) use shared::OwnerPanicked;

/// A shared piece that is no longer than this is copied: a copy costs less than a separate send.
const COPIED: usize = 256;
/// The bytes that each segment but the first takes besides its contents: its place in the queue,
/// which may have twice the places it needs.
const ENTRY: usize = 2 * size_of::<Segment>();

/// Places that a queue keeps when it gets shorter.
const PLACES_KEPT: usize = 64;

enum Segment {
    Block(Block),
    Piece(Piece),
    Shared(Shared),
}

impl Segment {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Block(b) => b.bytes(),
            Segment::Piece(p) => p,
            Segment::Shared(s) => s.bytes(),
        }
    }

    /// Drops a segment.
    #[inline(always)]
    fn let_go(self, blocks: &mut Blocks) -> Result<(), OwnerPanicked> {
        match self {
            Segment::Block(block) => blocks.give(block),
            Segment::Piece(_) => {}
            Segment::Shared(shared) => return shared.let_go(),
        }
        Ok(())
    }

    /// Drops a segment that is seldom small.
    #[inline(never)]
    fn let_go_apart(self, blocks: &mut Blocks) -> Result<(), OwnerPanicked> {
        self.let_go(blocks)
    }

    /// Memory that the segment holds beyond its bytes, once another segment is queued behind it; bytes.
    fn waste(&self) -> usize {
        match self {
            Segment::Block(b) => b.room(),
            Segment::Piece(p) => p.footprint().saturating_sub(p.len()),
            Segment::Shared(_) => 0,
        }
    }
}

/// The queue of one connection. The first segment stands apart so that the common case of one
/// segment needs no allocation.
#[derive(Default)]
pub(crate) struct Output {
    first: Option<Segment>,
    rest: VecDeque<Segment>,
    /// Bytes of `first` that are sent already.
    sent: usize,
    len: usize,
    /// Memory that is tied up beside the unsent bytes; sent bytes of `first` that count are part of
    /// it.
    waste: usize,
    /// The parts of the queue that may not be sent yet. `None` for connections that never held
    /// output.
    holds: Option<Box<Holds>>,
}

impl Output {
    /// Bytes waiting, including bytes that may not be sent yet.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Memory that the queue ties up; 0 when it is empty.
    #[inline]
    pub(crate) fn footprint(&self) -> usize {
        self.len + self.waste
    }

    /// Bytes that may be sent.
    #[inline]
    pub(crate) fn sendable(&self) -> usize {
        match &self.holds {
            None => self.len,
            Some(holds) => holds.sendable(self.len),
        }
    }

    /// Whether there is anything that may be sent.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.len != 0 && (self.holds.is_none() || self.sendable() != 0)
    }

    /// The marks of this queue, if any were ever set.
    pub(crate) fn holds(&self) -> Option<&Holds> {
        self.holds.as_deref()
    }

    /// Whether any output of the queue waits for a mark.
    pub(crate) fn is_holding(&self) -> bool {
        self.holds().is_some_and(Holds::any)
    }

    /// Output that is written from now on may be sent when marks up to `mark` are released.
    pub(crate) fn hold(&mut self, mark: u64) {
        let len = self.len;
        self.change_holds(|holds| holds.hold(mark, len));
    }

    /// Releases marks up to `upto`; whether anything waited for one of them.
    pub(crate) fn release(&mut self, upto: u64) -> bool {
        self.change_holds(|holds| holds.release(upto))
    }

    /// Notes whether the queue is on the list of queues that hold output; returns whether it was.
    pub(crate) fn set_listed(&mut self, on: bool) -> bool {
        self.change_holds(|holds| std::mem::replace(&mut holds.listed, on))
    }

    fn change_holds<R>(&mut self, f: impl FnOnce(&mut Holds) -> R) -> R {
        let holds = self.holds.get_or_insert_default();
        let before = holds.footprint();
        let result = f(holds);
        self.waste = self.waste - before + holds.footprint();
        result
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, bytes: &[u8], blocks: &mut Blocks) {
        match self.last() {
            Some(Segment::Block(b)) if b.room() >= bytes.len() => {
                b.append(bytes);
                self.len += bytes.len();
            }
            // The first write of most batches, and often the only one.
            None if matches!(bytes.len(), 1..=SMALL) => {
                let mut block = blocks.take(SMALL);
                block.append(bytes);
                self.len = bytes.len();
                self.first = Some(Segment::Block(block));
            }
            _ => self.write_apart(bytes, blocks),
        }
    }

    /// Appends up to `most` bytes (at most a large block) that `fill` writes; it says how many it
    /// wrote.
    #[inline]
    pub(crate) fn write_with(
        &mut self,
        most: usize,
        blocks: &mut Blocks,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize {
        match self.last() {
            Some(Segment::Block(b)) if b.room() >= most => {
                let n = b.fill(most, fill);
                self.len += n;
                n
            }
            _ => {
                assert!(
                    most <= LARGE,
                    "write_with is for at most {LARGE} bytes, not {most}"
                );
                let mut block = blocks.take(first_size(most));
                let n = block.fill(most, fill);
                self.place(block, blocks);
                n
            }
        }
    }

    pub(crate) fn push_piece(&mut self, piece: Piece, blocks: &mut Blocks) {
        if piece.len() <= COPIED {
            return self.write(&piece, blocks);
        }
        self.push(Segment::Piece(piece));
    }

    pub(crate) fn push_shared(&mut self, bytes: Bytes, blocks: &mut Blocks) {
        if bytes.len() <= COPIED {
            return self.write(&bytes, blocks);
        }
        self.push(Segment::Shared(Shared::new(bytes)));
    }

    /// The first slices to send, at most `out.len()` of at most `most` bytes together; returns how many
    /// there are.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>], most: usize) -> usize {
        let mut n = 0;
        let mut skip = self.sent;
        let mut left = self.sendable().min(most);
        for segment in self.first.iter().chain(&self.rest) {
            if n == out.len() || left == 0 {
                break;
            }
            let bytes = &segment.bytes()[skip..];
            let bytes = &bytes[..bytes.len().min(left)];
            out[n] = IoSlice::new(bytes);
            left -= bytes.len();
            skip = 0;
            n += 1;
        }
        n
    }

    /// The first slice to send, if the queue has only one segment.
    #[inline(always)]
    pub(crate) fn single(&self) -> Option<&[u8]> {
        match &self.first {
            Some(s) if self.rest.is_empty() => {
                let bytes = &s.bytes()[self.sent..];
                match &self.holds {
                    None => Some(bytes),
                    Some(holds) => Some(&bytes[..holds.sendable(bytes.len())]),
                }
            }
            _ => None,
        }
    }

    /// Forgets the first `n` bytes, which the kernel has taken.
    #[inline(always)]
    pub(crate) fn advance(&mut self, n: usize, blocks: &mut Blocks) -> Result<(), OwnerPanicked> {
        assert!(n <= self.len, "more sent than was queued");
        if n == self.len && self.rest.capacity() == 0 && self.holds.is_none() {
            (self.len, self.sent, self.waste) = (0, 0, 0);
            return match self.first.take() {
                Some(Segment::Block(block)) => {
                    blocks.give(block);
                    Ok(())
                }
                Some(other) => other.let_go_apart(blocks),
                None => Ok(()),
            };
        }
        self.advance_partly(n, blocks)
    }

    #[inline(never)]
    fn advance_partly(&mut self, n: usize, blocks: &mut Blocks) -> Result<(), OwnerPanicked> {
        let mut result = Ok(());
        self.waste -= self.sent_and_held();
        self.len -= n;
        self.sent += n;
        if let Some(holds) = &mut self.holds {
            holds.advance(n);
        }
        while let Some(first) = &self.first {
            let have = first.bytes().len();
            if self.sent < have {
                break;
            }
            self.sent -= have;
            let next = self.rest.pop_front();
            if next.is_some() {
                self.waste -= first.waste() + ENTRY;
            } else {
                self.waste = self.holds.as_ref().map_or(0, |h| h.footprint());
            }
            if let Some(first) = std::mem::replace(&mut self.first, next) {
                result = result.and(first.let_go(blocks));
            }
        }
        self.waste += self.sent_and_held();
        // A queue that was long once gives its memory back.
        if self.rest.is_empty() && self.rest.capacity() > 0 {
            self.rest = VecDeque::new();
        } else if self.rest.len() * 4 < self.rest.capacity() && self.rest.capacity() > PLACES_KEPT {
            self.rest.shrink_to(self.rest.len() * 2);
        }
        result
    }

    /// Bytes of the first segment that are sent and count all the same: it is longer than a block, and
    /// stays whole until it has left.
    fn sent_and_held(&self) -> usize {
        self.sent.saturating_sub(LARGE)
    }

    /// Drops everything unsent.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) -> Result<(), OwnerPanicked> {
        self.holds = None;
        let len = self.len;
        self.advance(len, blocks)
    }

    /// Writes bytes that do not fit into the last segment.
    #[inline(never)]
    fn write_apart(&mut self, bytes: &[u8], blocks: &mut Blocks) {
        if bytes.is_empty() {
            return;
        }
        if bytes.len() > LARGE {
            let copy = Shared::new(Bytes::copy_from_slice(bytes));
            return self.push(Segment::Shared(copy));
        }
        let size = self.size_for(bytes.len());
        let mut block = blocks.take(size);
        block.append(bytes);
        self.push(Segment::Block(block));
    }

    /// Queues a block that was made in the hope of more output: as it is if its size fits,
    /// otherwise a copy of its bytes.
    fn place(&mut self, block: Block, blocks: &mut Blocks) {
        let n = block.bytes().len();
        let fits = matches!(self.last(), Some(Segment::Block(b)) if b.room() >= n);
        if n > 0 && !fits && self.size_for(n) >= block.size() {
            return self.push(Segment::Block(block));
        }
        self.write(block.bytes(), blocks);
        blocks.give(block);
    }

    /// How large a block `n` bytes get that do not fit the last segment.
    fn size_for(&mut self, n: usize) -> usize {
        match self.last() {
            None => first_size(n),
            Some(Segment::Block(b)) => next_size(n, b.size()),
            Some(_) => between_size(n),
        }
    }

    #[inline]
    fn last(&mut self) -> Option<&mut Segment> {
        if self.rest.is_empty() {
            self.first.as_mut()
        } else {
            self.rest.back_mut()
        }
    }

    fn push(&mut self, segment: Segment) {
        self.len += segment.bytes().len();
        if !matches!(segment, Segment::Block(_)) {
            self.waste += segment.waste();
        }
        match self.last() {
            None => self.first = Some(segment),
            Some(last) => {
                // Nothing more will be written to that block.
                let room = match last {
                    Segment::Block(b) => b.room(),
                    _ => 0,
                };
                self.waste += room + ENTRY;
                self.rest.push_back(segment);
            }
        }
    }
}

#[cfg(test)]
mod tests;
