//! What a connection has written and the kernel has not yet taken.
//!
//! Small writes are gathered into blocks that are borrowed from the loop and go back when they are
//! sent, so an idle connection owns none. Taken chunks and shared bytes are queued as they are.
//! A write that fits a block is never split over two, so that one acknowledgement is one piece.
//! What is written behind a mark stays in the queue until the mark is released ([`holds`]).

mod barrier;
mod holds;

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;

use crate::buffer::Chunk;
use holds::Holds;

pub(crate) use barrier::Barriers;

/// First block of a connection that had nothing queued.
const SMALL: usize = 4 << 10;
/// Every further block.
const LARGE: usize = 64 << 10;

/// Empty blocks that a loop keeps for reuse.
#[derive(Default)]
pub(crate) struct Blocks {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

/// Kept of each size; more are freed.
const KEEP: usize = 64;

impl Blocks {
    #[inline]
    fn take(&mut self, size: usize) -> Vec<u8> {
        let list = if size == SMALL {
            &mut self.small
        } else {
            &mut self.large
        };
        list.pop().unwrap_or_else(|| Vec::with_capacity(size))
    }

    #[inline]
    fn give(&mut self, mut block: Vec<u8>) {
        let list = if block.capacity() == SMALL {
            &mut self.small
        } else {
            &mut self.large
        };
        if list.len() < KEEP {
            block.clear();
            list.push(block);
        }
    }
}

enum Segment {
    Block(Vec<u8>),
    Chunk(Chunk),
    Shared(Bytes),
}

impl Segment {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Block(b) => b,
            Segment::Chunk(c) => c,
            Segment::Shared(b) => b,
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
    /// Which of it may not be sent yet. `None` for all who never asked for that.
    holds: Option<Box<Holds>>,
}

impl Output {
    /// Bytes waiting, those that may not be sent yet included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
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

    /// The marks of this queue, made if there are none.
    pub(crate) fn holds(&mut self) -> &mut Holds {
        self.holds.get_or_insert_default()
    }

    /// The marks of this queue, if any were ever set.
    pub(crate) fn known_holds(&mut self) -> Option<&mut Holds> {
        self.holds.as_deref_mut()
    }

    /// What is written from now on may be sent when marks up to `mark` are released.
    pub(crate) fn hold(&mut self, mark: u64) {
        let len = self.len;
        self.holds().hold(mark, len);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn write(&mut self, bytes: &[u8], blocks: &mut Blocks) {
        if bytes.is_empty() {
            return;
        }
        if bytes.len() > LARGE {
            return self.push(Segment::Shared(Bytes::copy_from_slice(bytes)), bytes.len());
        }
        self.room(bytes.len(), blocks).extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends up to `most` bytes (at most a block) that `fill` writes; it says how many it wrote.
    #[inline]
    pub(crate) fn write_with(
        &mut self,
        most: usize,
        blocks: &mut Blocks,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> usize {
        assert!(
            most <= LARGE,
            "write_with is for at most {LARGE} bytes, not {most}"
        );
        let block = self.room(most, blocks);
        let old = block.len();
        block.resize(old + most, 0);
        let n = fill(&mut block[old..]);
        assert!(n <= most);
        block.truncate(old + n);
        self.len += n;
        if self.len == 0 {
            self.advance(0, blocks);
        }
        n
    }

    pub(crate) fn push_chunk(&mut self, chunk: Chunk) {
        let len = chunk.len();
        if len == 0 {
            return;
        }
        self.push(Segment::Chunk(chunk), len);
    }

    pub(crate) fn push_shared(&mut self, bytes: Bytes) {
        let len = bytes.len();
        if len == 0 {
            return;
        }
        self.push(Segment::Shared(bytes), len);
    }

    /// The first slices to send, at most `out.len()`; returns how many there are.
    pub(crate) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        let mut skip = self.sent;
        let mut left = self.sendable();
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
    #[inline]
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
    #[inline]
    pub(crate) fn advance(&mut self, n: usize, blocks: &mut Blocks) {
        assert!(n <= self.len, "more sent than was queued");
        if let Some(holds) = &mut self.holds {
            holds.advance(n);
        }
        if n == self.len && self.rest.capacity() == 0 {
            (self.len, self.sent) = (0, 0);
            if let Some(Segment::Block(block)) = self.first.take() {
                blocks.give(block);
            }
            return;
        }
        self.advance_partly(n, blocks);
    }

    fn advance_partly(&mut self, n: usize, blocks: &mut Blocks) {
        self.len -= n;
        self.sent += n;
        while let Some(first) = &self.first {
            let have = first.bytes().len();
            if self.sent < have {
                break;
            }
            self.sent -= have;
            if let Some(Segment::Block(block)) = self.first.take() {
                blocks.give(block);
            }
            self.first = self.rest.pop_front();
        }
        if self.rest.is_empty() && self.rest.capacity() > 0 {
            self.rest = VecDeque::new();
        }
    }

    /// Drops everything unsent.
    pub(crate) fn clear(&mut self, blocks: &mut Blocks) {
        self.holds = None;
        let len = self.len;
        self.advance(len, blocks);
    }

    /// A block at the tail with room for `n` more bytes; `n` is at most a large block.
    #[inline]
    fn room(&mut self, n: usize, blocks: &mut Blocks) -> &mut Vec<u8> {
        let fits = match self.last() {
            Some(Segment::Block(b)) => b.capacity() - b.len() >= n,
            _ => false,
        };
        if !fits {
            let size = if self.first.is_none() && n <= SMALL {
                SMALL
            } else {
                LARGE
            };
            self.push(Segment::Block(blocks.take(size)), 0);
        }
        match self.last() {
            Some(Segment::Block(b)) => b,
            _ => unreachable!("a block was just put there"),
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

    fn push(&mut self, segment: Segment, len: usize) {
        if self.first.is_none() {
            self.first = Some(segment);
        } else {
            self.rest.push_back(segment);
        }
        self.len += len;
    }
}

#[cfg(test)]
mod tests;
