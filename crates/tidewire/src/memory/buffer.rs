//! Receive buffers: one allocation for a loop, cut into equal pieces that are leased to receive
//! into, lent to protocols as slices, and shared as [`Chunk`]s when a protocol keeps a piece.
//!
//! The reference count of a piece tells its state: *free* (0), *leased* (1: one [`Lease`] holds the
//! piece, and only the lease may write), *shared* (any number of [`Chunk`]s, no writer), *given* to
//! a kernel that may write at any time ([`GIVEN`]; no code here looks at the bytes). The count
//! returns to 0 when the last holder is dropped, on the loop's own thread: a holder contains an
//! `Rc` and so cannot leave the thread.
//!
//! Pieces start at a stride that is not a power of two, so that the first cache lines of different
//! pieces do not compete for the same cache sets. Each piece has headroom in front; a connection's
//! unconsumed bytes are copied into the headroom, so that they are contiguous with new bytes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use bytes::Bytes;

use crate::memory::kept::{Kept, Tally};
use crate::memory::pages::Pages;

/// Room in front of each piece for carried bytes. A larger remainder takes the slow way round.
pub(crate) const HEADROOM: usize = 4096;
/// Added to each stride: an odd number of cache lines.
const COLOUR: usize = 64 * 9;
/// A taken piece smaller than this is copied, so that it cannot hold a whole receive buffer.
pub(crate) const SHARE_MIN: usize = 4096;

struct Inner {
    memory: Pages,
    stride: usize,
    size: usize,
    refs: Box<[Cell<u32>]>,
    /// Free pieces, last freed on top: the warmest is used first.
    free: RefCell<Vec<u32>>,
    /// Never lent to protocols beyond this many pieces: the rest keeps receiving going.
    share_max: usize,
    /// Pieces that outlived the call of `received` they came in.
    kept: Cell<usize>,
}

/// A loop's receive buffers.
#[derive(Clone)]
pub(crate) struct Pool(Rc<Inner>);

impl Pool {
    /// `count` pieces of `size` bytes each (plus headroom). The memory is untouched until used.
    pub(crate) fn new(count: usize, size: usize) -> Pool {
        Pool::with_share(count, size, count / 2)
    }

    /// A pool of which protocols get copies only: for pieces that are not worth sharing.
    pub(crate) fn unshared(count: usize, size: usize) -> Pool {
        Pool::with_share(count, size, 0)
    }

    fn with_share(count: usize, size: usize, share_max: usize) -> Pool {
        assert!(count > 0 && size > 0);
        let stride = (HEADROOM + size + COLOUR).next_multiple_of(64);
        assert!(
            u32::try_from(count * stride).is_ok(),
            "receive buffers of a loop exceed 4 GiB"
        );
        Pool(Rc::new(Inner {
            memory: Pages::new(count * stride),
            stride,
            size,
            refs: (0..count).map(|_| Cell::new(0)).collect(),
            free: RefCell::new((0..count as u32).rev().collect()),
            share_max,
            kept: Cell::new(0),
        }))
    }

    /// A piece to receive into, or `None` when all are in use.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let id = self.0.free.borrow_mut().pop()?;
        debug_assert_eq!(self.0.refs[id as usize].get(), 0);
        self.0.refs[id as usize].set(1);
        Some(Lease {
            pool: self.clone(),
            id,
        })
    }

    /// Gives a free piece to a kernel that receives into it at any time: returns its number, and
    /// where its space starts. The piece stays with the kernel until
    /// [`take_back`](Pool::take_back), and the memory must not be freed before: keep the pool.
    pub(crate) fn give(&self) -> Option<(u32, *mut u8)> {
        let id = self.0.free.borrow_mut().pop()?;
        let refs = &self.0.refs[id as usize];
        debug_assert_eq!(refs.get(), 0);
        refs.set(GIVEN);
        let start = self.start(id);
        let space = &self.0.memory[start..start + self.0.size];
        Some((id, space.as_ptr() as *mut u8))
    }

    /// Takes back a piece that was given away.
    ///
    /// # Safety
    /// The receiver of the piece has finished with it and will not touch it again.
    pub(crate) unsafe fn take_back(&self, id: u32) -> Lease {
        let refs = &self.0.refs[id as usize];
        assert_eq!(refs.get(), GIVEN, "receive buffer {id} was not given away");
        refs.set(1);
        Lease {
            pool: self.clone(),
            id,
        }
    }

    /// How many pieces there are, in whatever state.
    pub(crate) fn pieces(&self) -> usize {
        self.0.refs.len()
    }

    /// Free pieces.
    pub(crate) fn free(&self) -> usize {
        self.0.free.borrow().len()
    }

    /// Bytes of one piece, headroom not counted.
    pub(crate) fn piece_len(&self) -> usize {
        self.0.size
    }

    fn start(&self, id: u32) -> usize {
        id as usize * self.0.stride + HEADROOM
    }

    /// Pieces that protocols keep.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        self.0.kept.get()
    }

    fn release(&self, id: u32) {
        let refs = &self.0.refs[id as usize];
        refs.set(refs.get() - 1);
        if refs.get() == KEPT {
            self.0.kept.set(self.0.kept.get() - 1);
            refs.set(0);
        }
        if refs.get() == 0 {
            self.0.free.borrow_mut().push(id);
        }
    }
}

/// Set in a piece's count once only protocols hold it.
const KEPT: u32 = 1 << 31;
/// The count of a piece that is given away.
const GIVEN: u32 = 1 << 30;

/// The only holder of one piece: the engine, while it receives into it.
pub(crate) struct Lease {
    pool: Pool,
    id: u32,
}

impl Lease {
    /// The space for received bytes.
    ///
    /// # Panics
    /// Panics if a protocol keeps a part of the earlier bytes: see [`is_shared`](Lease::is_shared).
    #[inline]
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.range_mut(0, self.pool.0.size)
    }

    /// Lends `carried` in front of the first `len` received bytes, as one slice. `carried` is at
    /// most [`HEADROOM`] long.
    // In line, as is the like of it wherever a request passes once: a call costs as much as it does.
    #[inline(always)]
    pub(crate) fn lend(&mut self, carried: &[u8], len: usize) -> Lent<'_> {
        assert!(carried.len() <= HEADROOM && len <= self.pool.0.size);
        if !carried.is_empty() {
            self.range_mut(-(carried.len() as isize), carried.len())
                .copy_from_slice(carried);
        }
        let start = self.pool.start(self.id) - carried.len();
        let cells = &self.pool.0.memory[start..start + carried.len() + len];
        // SAFETY: the lease is borrowed for as long as the slice lives, so no other code can get at
        // its `space`, and no other lease of the piece exists; chunks only read.
        let bytes = unsafe { std::slice::from_raw_parts(cells.as_ptr() as *const u8, cells.len()) };
        Lent {
            pool: &self.pool,
            id: self.id,
            start,
            bytes,
        }
    }

    /// Whether chunks share the piece. If so, it must not be received into again: drop the lease.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.pool.0.refs[self.id as usize].get() != 1
    }

    #[inline]
    fn range_mut(&mut self, from: isize, len: usize) -> &mut [u8] {
        assert!(!self.is_shared(), "a chunk of this receive buffer is kept");
        let start = (self.pool.start(self.id) as isize + from) as usize;
        let cells = &self.pool.0.memory[start..start + len];
        // SAFETY: the piece's count is 1 (looked at above) and this lease is its holder, so no chunk
        // of it exists and no other lease; `&mut self` makes this the only slice. The range stays inside
        // the piece's headroom and space. `Cell` permits writing through the shared pool.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr() as *mut u8, len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let refs = &self.pool.0.refs[self.id as usize];
        if refs.get() > 1 {
            refs.set(refs.get() | KEPT);
            self.pool.0.kept.set(self.pool.0.kept.get() + 1);
        }
        self.pool.release(self.id);
    }
}

/// Received bytes that a protocol looks at.
pub(crate) struct Lent<'a> {
    pool: &'a Pool,
    id: u32,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> Lent<'a> {
    #[inline]
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The part `from..from + len`, sharing the receive buffer if that is allowed now, else `None`.
    #[inline]
    pub(crate) fn share(&self, from: usize, len: usize) -> Option<Piece> {
        assert!(from + len <= self.bytes.len());
        if len < SHARE_MIN || self.pool.0.kept.get() >= self.pool.0.share_max {
            return None;
        }
        let refs = &self.pool.0.refs[self.id as usize];
        refs.set(refs.get() + 1);
        Some(Piece::Pool {
            pool: self.pool.clone(),
            id: self.id,
            start: (self.start + from) as u32,
            len: len as u32,
        })
    }
}

/// An owned run of received bytes that a protocol took out of its input.
///
/// Large pieces share the receive buffer, small ones are copies; both read like a slice. A chunk
/// stays on its loop's thread.
///
/// ```
/// use tidewire::Input;
///
/// let mut input = Input::new(b"head, tail");
/// let head = input.take(4);
/// assert_eq!(&head[..], b"head");
/// assert_eq!(input.bytes(), b", tail");
/// ```
pub struct Chunk {
    piece: Piece,
    /// Counts the piece for the connection that took it.
    _tally: Option<Tally>,
}

/// A run of received bytes, counted by its holder.
pub(crate) enum Piece {
    Pool {
        pool: Pool,
        id: u32,
        start: u32,
        len: u32,
    },
    Heap(Bytes),
}

impl Chunk {
    /// A chunk with a copy of `bytes`.
    ///
    /// ```
    /// use tidewire::Chunk;
    ///
    /// // Where a protocol keeps chunks, and this piece did not come from a peer.
    /// let greeting = Chunk::copy_from(b"hello");
    /// assert_eq!(&greeting[..], b"hello");
    /// ```
    #[must_use]
    pub fn copy_from(bytes: &[u8]) -> Chunk {
        Chunk {
            piece: Piece::copy_from(bytes),
            _tally: None,
        }
    }

    /// A piece that the connection with this account keeps.
    pub(crate) fn taken(piece: Piece, by: &Kept) -> Chunk {
        let _tally = Some(by.tally(piece.len()));
        Chunk { piece, _tally }
    }

    /// Turns the chunk into a piece for an output queue, which counts the memory of its pieces.
    pub(crate) fn into_piece(self) -> Piece {
        self.piece
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.piece
    }
}

impl Piece {
    pub(crate) fn copy_from(bytes: &[u8]) -> Piece {
        Piece::Heap(Bytes::copy_from_slice(bytes))
    }

    /// Bytes that this keeps from being received into: a whole buffer if shared, else the copy.
    pub(crate) fn footprint(&self) -> usize {
        match self {
            Piece::Pool { pool, .. } => pool.0.size,
            Piece::Heap(b) => b.len(),
        }
    }
}

impl Deref for Piece {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Piece::Pool {
                pool, start, len, ..
            } => {
                let (start, len) = (*start as usize, *len as usize);
                let cells = &pool.0.memory[start..start + len];
                // SAFETY: `self` holds a reference, so the piece's count is at least 1 and there is
                // no lease of it until every chunk is dropped; no code writes to the piece
                // meanwhile.
                unsafe { std::slice::from_raw_parts(cells.as_ptr() as *const u8, len) }
            }
            Piece::Heap(b) => b,
        }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.len())
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Piece::Pool { pool, id, .. } = self {
            pool.release(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &Pool, byte: u8, len: usize) -> Lease {
        let mut lease = pool.lease().unwrap();
        lease.space()[..len].fill(byte);
        lease
    }

    #[test]
    fn a_piece_returns_when_its_last_part_is_dropped() {
        let pool = Pool::new(2, 16384);
        let mut lease = filled(&pool, 7, 16384);
        let whole = lease.lend(&[], 16384);
        let a = whole.share(0, 8192).unwrap();
        let b = whole.share(8192, 8192).unwrap();
        assert!(lease.is_shared());
        drop(lease);
        assert_eq!((pool.free(), pool.kept()), (1, 1));
        drop(a);
        assert_eq!((pool.free(), pool.kept()), (1, 1));
        assert!(b.iter().all(|&x| x == 7));
        drop(b);
        assert_eq!((pool.free(), pool.kept()), (2, 0));
    }

    #[test]
    fn small_parts_and_a_low_pool_are_not_shared() {
        let pool = Pool::new(2, 16384);
        let mut lease = filled(&pool, 1, 16384);
        let first = lease.lend(&[], 16384);
        assert!(first.share(0, SHARE_MIN - 1).is_none());
        let kept = first.share(0, SHARE_MIN).unwrap();
        drop(lease);
        let mut lease = filled(&pool, 2, 16384);
        let second = lease.lend(&[], 16384);
        assert!(
            second.share(0, SHARE_MIN).is_none(),
            "half of the pool stays for receiving"
        );
        drop(kept);
        assert!(second.share(0, SHARE_MIN).is_some());
        let pool = Pool::unshared(2, 16384);
        assert!(
            filled(&pool, 3, 16384)
                .lend(&[], 16384)
                .share(0, 16384)
                .is_none()
        );
    }

    #[test]
    fn carried_bytes_stand_in_front() {
        let pool = Pool::new(1, 4096);
        let mut lease = pool.lease().unwrap();
        lease.space()[..3].copy_from_slice(b"def");
        assert_eq!(lease.lend(b"abc", 3).bytes(), b"abcdef");
        assert!(pool.lease().is_none());
        drop(lease);
        assert!(pool.lease().is_some());
    }

    #[test]
    fn a_lease_is_used_again_unless_a_part_is_kept() {
        let pool = Pool::new(2, 16384);
        let mut lease = filled(&pool, 1, 16384);
        drop(lease.lend(&[], 16384).share(0, SHARE_MIN).unwrap());
        assert!(!lease.is_shared());
        lease.space().fill(2);
        let kept = lease.lend(&[], 16384).share(0, SHARE_MIN).unwrap();
        let again = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lease.space().fill(3);
        }));
        assert!(again.is_err(), "it would be written under a reader");
        drop(lease);
        assert!(kept.iter().all(|&b| b == 2));
    }

    #[test]
    fn a_piece_given_away_is_written_elsewhere_and_comes_back() {
        let pool = Pool::new(2, 4096);
        let (id, at) = pool.give().unwrap();
        let lease = pool.lease().unwrap();
        assert!(pool.give().is_none() && pool.free() == 0);
        // SAFETY: the piece is given away: no other code looks at these bytes.
        unsafe { at.write_bytes(5, 4096) };
        // SAFETY: the only writer was the line above.
        let mut back = unsafe { pool.take_back(id) };
        let lent = back.lend(b"abc", 4096);
        assert_eq!(&lent.bytes()[..3], b"abc");
        assert!(lent.bytes()[3..].iter().all(|&b| b == 5));
        drop((back, lease));
        assert_eq!(pool.free(), 2);
    }

    #[test]
    #[should_panic(expected = "was not given away")]
    fn a_piece_that_was_not_given_away_is_not_taken_back() {
        let pool = Pool::new(1, 4096);
        let _lease = pool.lease();
        // SAFETY: no other code has the piece; that the call is wrong all the same is the point.
        let _ = unsafe { pool.take_back(0) };
    }

    #[test]
    fn pieces_do_not_overlap() {
        let pool = Pool::new(3, 4096);
        let mut leases: Vec<Lease> = (0..3).map(|_| pool.lease().unwrap()).collect();
        for (i, lease) in leases.iter_mut().enumerate() {
            lease.space().fill(i as u8);
        }
        let carried = [9u8; HEADROOM];
        let lent: Vec<Lent<'_>> = leases.iter_mut().map(|l| l.lend(&carried, 4096)).collect();
        for (i, lent) in lent.iter().enumerate() {
            assert!(lent.bytes()[..HEADROOM].iter().all(|&x| x == 9));
            assert!(lent.bytes()[HEADROOM..].iter().all(|&x| x == i as u8));
        }
    }
}
