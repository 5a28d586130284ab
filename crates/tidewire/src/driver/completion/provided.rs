//! A group of receive buffers that the kernel picks from: pieces of a [`Pool`], passed through a
//! ring in shared memory.
//!
//! The kernel takes pieces in the order they were given. A group therefore gives only as many as
//! have been needed at once so far, the most recently used first, so that a loop with little to
//! do stays in a few warm pieces; when the kernel has run dry a few times, the group doubles what
//! it gives.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;

use crate::memory::buffer::{Lease, Pool};

const PAGE: usize = 4096;
/// A burst now and then only means that some receives are armed again. More often than this, and
/// more pieces are given.
const DRY_TURNS: u8 = 4;

#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

pub(super) struct Group {
    id: u16,
    pool: Pool,
    /// Entries of the shared ring. The kernel reads them until the group is unregistered.
    entries: Box<[Page]>,
    /// Entries there are room for, a power of two.
    size: u16,
    tail: u16,
    /// Pieces that the kernel has now.
    given: usize,
    /// Pieces that it should have.
    target: usize,
    /// The kernel has found nothing to pick since the last refill.
    dry: bool,
    /// Refills that this has happened before, since the target was last raised.
    dry_turns: u8,
}

impl Group {
    /// Registers a group for all pieces of `pool`, and gives `first` of them.
    pub(super) fn register(
        submitter: &Submitter<'_>,
        id: u16,
        pool: Pool,
        first: usize,
    ) -> io::Result<Group> {
        let size = u16::try_from(pool.pieces().next_power_of_two())
            .ok()
            .filter(|&n| n <= 1 << 15)
            .ok_or(io::ErrorKind::InvalidInput)?;
        let pages = (usize::from(size) * size_of::<BufRingEntry>()).div_ceil(PAGE);
        let mut entries = vec![Page([0; PAGE]); pages].into_boxed_slice();
        // SAFETY: the entries are page-aligned, have room for `size` of them, and live until
        // `unregister`, or for ever if that is not called (`Drop`).
        unsafe {
            let at = entries.as_mut_ptr() as u64;
            submitter.register_buf_ring_with_flags(at, size, id, 0)?;
        }
        let mut group = Group {
            id,
            target: first.min(pool.pieces()),
            pool,
            entries,
            size,
            tail: 0,
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

    /// Gives the kernel free pieces up to the target; how many it has then.
    pub(super) fn refill(&mut self) -> usize {
        let before = self.tail;
        if std::mem::take(&mut self.dry) {
            self.dry_turns += 1;
            if self.dry_turns == DRY_TURNS {
                self.dry_turns = 0;
                self.target = (self.target * 2).min(self.pool.pieces());
            }
        }
        while self.given < self.target {
            let Some((piece, start)) = self.pool.give() else {
                break;
            };
            let at = usize::from(self.tail & (self.size - 1));
            let entries: *mut BufRingEntry = self.entries.as_mut_ptr().cast();
            // SAFETY: `at` is inside the ring. The kernel reads no entry at or after the published
            // tail, and writes none; the tail itself lies in a field that is not touched here.
            let entry = unsafe { &mut *entries.add(at) };
            entry.set_addr(start as u64);
            entry.set_len(self.pool.piece_len() as u32);
            entry.set_bid(piece as u16);
            self.tail = self.tail.wrapping_add(1);
            self.given += 1;
        }
        if self.tail != before {
            let entries: *mut BufRingEntry = self.entries.as_mut_ptr().cast();
            // SAFETY: the tail is two aligned bytes in the first entry, alive as long as the ring;
            // the kernel only reads them, so an atomic store is all the synchronisation there is.
            let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
            tail.store(self.tail, Ordering::Release);
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
    pub(super) fn unregister(mut self, submitter: &Submitter<'_>) -> io::Result<()> {
        submitter.unregister_buf_ring(self.id)?;
        self.given = 0;
        self.entries = Box::default();
        Ok(())
    }
}

/// A group that is still registered leaves its memory to the kernel.
impl Drop for Group {
    fn drop(&mut self) {
        if !self.entries.is_empty() {
            std::mem::forget(std::mem::take(&mut self.entries));
            std::mem::forget(self.pool.clone());
        }
    }
}
