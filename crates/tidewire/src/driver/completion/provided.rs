//! A group of receive buffers that the kernel picks from: pieces of a [`Pool`], passed through a
//! ring in shared memory.
//!
//! The kernel takes pieces in the order they were given. A group therefore gives only as many
//! pieces as were needed at once so far, the most recently used first, so that a loop with little
//! load stays in a few warm pieces. When the kernel has run out a few times, the group doubles the
//! number.

use std::io;

use crate::kernel::queues::{Buffers, Queues};
use crate::memory::buffer::{Lease, Pool};
use crate::mistakes::{Mistake, mistaken};

/// A burst now and then only means that some receives are armed again. More often than this, and
/// more pieces are given.
const DRY_TURNS: u8 = 4;

pub(super) struct Group<B> {
    id: u16,
    /// Gone once the group is unregistered.
    buffers: Option<B>,
    pool: Pool,
    /// Pieces that the kernel has now.
    given: usize,
    /// The number of pieces that the kernel should have.
    target: usize,
    /// The kernel has found nothing to pick since the last refill.
    dry: bool,
    /// Refills that this has happened before, since the target was last raised.
    dry_turns: u8,
}

impl<B: Buffers> Group<B> {
    /// Registers a group for all pieces of `pool`, and gives `first` of them.
    pub(super) fn register(
        queues: &impl Queues<Buffers = B>,
        id: u16,
        pool: Pool,
        first: usize,
    ) -> io::Result<Group<B>> {
        let size = u16::try_from(pool.pieces().next_power_of_two())
            .ok()
            .filter(|&n| n <= 1 << 15)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut group = Group {
            id,
            buffers: Some(queues.register(id, size)?),
            target: first.min(pool.pieces()),
            pool,
            given: 0,
            dry: false,
            dry_turns: 0,
        };
        group.refill();
        Ok(group)
    }

    pub(super) fn id(&self) -> u16 {
        self.id
    }

    /// Bytes of one piece.
    pub(super) fn piece_len(&self) -> usize {
        self.pool.piece_len()
    }

    /// Whether every piece is either free or the kernel's.
    pub(super) fn is_whole(&self) -> bool {
        self.pool.free() + self.given == self.pool.pieces()
    }

    /// Gives the kernel free pieces up to the target; how many it has then.
    pub(super) fn refill(&mut self) -> usize {
        let before = self.given;
        if std::mem::take(&mut self.dry) {
            self.dry_turns += 1;
            if self.dry_turns == DRY_TURNS {
                self.dry_turns = 0;
                self.target = (self.target * 2).min(self.pool.pieces());
            }
        }
        let Some(buffers) = &mut self.buffers else {
            return 0;
        };
        let len = self.pool.piece_len() as u32;
        while self.given < self.target {
            let Some((piece, start)) = self.pool.give() else {
                break;
            };
            // SAFETY: the piece is given to the kernel: no code here looks at it until it is
            // `returned`. The piece's memory lives as long as the pool, which `Drop` leaks while it
            // is registered.
            unsafe { buffers.give(piece as u16, start, len) };
            if mistaken(Mistake::BufferGivenTwice) {
                // SAFETY: none; only the simulated kernel is given this, and does not look.
                unsafe { buffers.give(piece as u16, start, len) };
            }
            self.given += 1;
        }
        if self.given != before {
            buffers.publish();
        }
        self.given
    }

    /// The kernel found nothing to pick. True if it might have had more: it gets them if this
    /// happens often.
    pub(super) fn ran_dry(&mut self) -> bool {
        self.dry = true;
        self.target < self.pool.pieces() && self.pool.free() > 0
    }

    /// The piece that a completion brings back.
    pub(super) fn returned(&mut self, piece: u16) -> Lease {
        self.given -= 1;
        // SAFETY: the completion says that the kernel picked this piece and is done with it. The
        // kernel picks what `refill` gave, and each of these once.
        unsafe { self.pool.take_back(u32::from(piece)) }
    }

    /// Takes the group from the kernel. To be called when no operation is in flight.
    pub(super) fn unregister(mut self, queues: &impl Queues<Buffers = B>) -> io::Result<()> {
        let buffers = self.buffers.take();
        let done = buffers.map_or(Ok(()), |buffers| queues.unregister(buffers));
        if done.is_err() {
            std::mem::forget(self.pool.clone());
        }
        done
    }
}

/// A group that is still registered leaves its memory to the kernel.
impl<B> Drop for Group<B> {
    fn drop(&mut self) {
        if self.buffers.is_some() {
            std::mem::forget(self.pool.clone());
        }
    }
}
