//! Blocks that small writes are gathered in, borrowed from the loop.
//!
//! A block's memory is cleared at most once in its life: the block remembers how far it was ever
//! written, apart from how much is in use. So an encoder that asks for much room and uses little
//! pays only for what it uses.

/// First block of a queue that was empty.
pub(super) const SMALL: usize = 4 << 10;
const MIDDLE: usize = 16 << 10;
/// The largest block, and so the longest write that is gathered.
pub(super) const LARGE: usize = 64 << 10;
/// Smallest block, for a few words between pieces that are queued as they are.
const TINY: usize = 64;

/// A block is this many times as large as the previous one. So no queue holds much more memory than
/// bytes, and a long queue has few blocks.
const GROWTH: usize = 4;

/// Memory of a fixed size, filled from the front. The bytes of a block do not move: the kernel may
/// be sending some while more are added.
pub(super) struct Block {
    /// The vector never grows beyond its first allocation. Bytes behind `used` were written once.
    bytes: Vec<u8>,
    used: usize,
}

impl Block {
    #[cold]
    fn new(size: usize) -> Block {
        Block {
            bytes: Vec::with_capacity(size),
            used: 0,
        }
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.used]
    }

    /// Bytes of memory.
    #[inline]
    pub(super) fn size(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes that may still be added.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.size() - self.used
    }

    /// Adds bytes, for which there must be room.
    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.room());
        let end = self.used + bytes.len();
        match self.bytes.get_mut(self.used..end) {
            Some(place) => place.copy_from_slice(bytes),
            None => {
                self.bytes.truncate(self.used);
                self.bytes.extend_from_slice(bytes);
            }
        }
        self.used = end;
    }

    /// Adds what `fill` writes into a slice of `most` bytes, for which there must be room; `fill`
    /// returns how many it wrote. If `fill` panics, nothing is added.
    #[inline]
    pub(super) fn fill(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> usize {
        debug_assert!(most <= self.room());
        let end = self.used + most;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        let n = fill(&mut self.bytes[self.used..end]);
        assert!(n <= most, "{n} bytes written into a slice of {most}");
        self.used += n;
        n
    }
}

/// Empty blocks that a loop keeps for reuse.
#[derive(Default)]
pub(crate) struct Blocks {
    kept: [Vec<Block>; 3],
}

/// Kept of each size; more are freed.
const KEEP: usize = 64;

/// Which list keeps blocks of this size, if any does.
#[inline]
fn list(size: usize) -> Option<usize> {
    match size {
        SMALL => Some(0),
        MIDDLE => Some(1),
        LARGE => Some(2),
        _ => None,
    }
}

/// The size of a block for a first write of `n` bytes.
#[inline]
pub(super) fn first_size(n: usize) -> usize {
    if n <= SMALL { SMALL } else { between_size(n) }
}

/// The size of a block for `n` bytes behind a piece that is queued as it is: little more follows as
/// a rule.
pub(super) fn between_size(n: usize) -> usize {
    let mut size = TINY;
    while size < n {
        size *= GROWTH;
    }
    size
}

/// The size of a block for `n` bytes behind a block of size `before`.
pub(super) fn next_size(n: usize, before: usize) -> usize {
    (before * GROWTH).min(LARGE).max(between_size(n))
}

impl Blocks {
    /// An empty block of this size.
    #[inline]
    pub(super) fn take(&mut self, size: usize) -> Block {
        let kept = list(size).and_then(|i| self.kept[i].pop());
        kept.unwrap_or_else(|| Block::new(size))
    }

    #[inline]
    pub(super) fn give(&mut self, mut block: Block) {
        if let Some(i) = list(block.size())
            && self.kept[i].len() < KEEP
        {
            block.used = 0;
            self.kept[i].push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_cleared_once_and_never_moves() {
        let mut blocks = Blocks::default();
        let mut block = blocks.take(SMALL);
        let at = block.bytes.as_ptr();
        assert_eq!(
            block.fill(4000, |space| {
                space[..2].fill(7);
                2
            }),
            2
        );
        block.append(b"abc");
        // The old bytes are visible again: the memory was not cleared.
        assert_eq!(
            block.fill(10, |space| {
                assert_eq!(space[0], 0);
                space.fill(9);
                1
            }),
            1
        );
        assert_eq!(
            block.fill(2, |space| {
                assert_eq!(space, [9, 9]);
                0
            }),
            0
        );
        block.append(&[1; SMALL - 6]);
        assert_eq!((block.room(), block.bytes.as_ptr()), (0, at));
        assert_eq!(block.bytes()[..7], [7, 7, b'a', b'b', b'c', 9, 1]);
        blocks.give(block);
        assert_eq!(blocks.take(SMALL).bytes.as_ptr(), at);
    }

    #[test]
    fn a_panic_adds_nothing() {
        let mut block = Blocks::default().take(SMALL);
        block.append(b"a");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            block.fill(10, |space| {
                space.fill(1);
                panic!("on purpose")
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(block.bytes(), b"a");
    }

    #[test]
    fn sizes_grow_with_what_is_written() {
        assert_eq!(
            [0, 1, SMALL, SMALL + 1, LARGE].map(first_size),
            [SMALL, SMALL, SMALL, MIDDLE, LARGE]
        );
        assert_eq!(
            [1, 64, 65, 5000, LARGE].map(between_size),
            [64, 64, 256, MIDDLE, LARGE]
        );
        assert_eq!(next_size(1, 64), 256);
        assert_eq!(next_size(1, SMALL), MIDDLE);
        assert_eq!(next_size(30_000, SMALL), LARGE);
        assert_eq!(next_size(1, LARGE), LARGE);
    }
}
