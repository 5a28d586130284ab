//! Receive buffers: one allocation for a loop, cut into equal pieces that are leased to receive
//! into, lent to protocols as slices, and shared as [`Chunk`]s when a protocol keeps a piece.
//!
//! A piece is in one of three states, told by its reference count: *free* (0), *leased* (1, held
//! by exactly one [`Lease`], which alone may write), *shared* (any number of [`Chunk`]s, nobody
//! writes). The count returns to 0 when the last holder is dropped, on the loop's own thread: all
//! of these types hold an `Rc` and so cannot leave it.
//!
//! Pieces start at a stride that is not a power of two, so that the first cache lines of different
//! pieces do not compete for the same cache sets; each has headroom in front, into which a
//! connection's unconsumed remainder is copied so that it stays contiguous with new bytes.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use bytes::Bytes;

/// Room in front of each piece for carried bytes. A larger remainder takes the slow way round.
pub(crate) const HEADROOM: usize = 4096;
/// Added to each stride: an odd number of cache lines.
const COLOUR: usize = 64 * 9;
/// A taken piece smaller than this is copied, so that it cannot hold a whole receive buffer.
pub(crate) const SHARE_MIN: usize = 4096;

struct Inner {
    memory: Box<[Cell<u8>]>,
    stride: usize,
    size: usize,
    refs: Box<[Cell<u32>]>,
    /// Pieces nobody holds, last freed on top: the warmest is used first.
    free: RefCell<Vec<u32>>,
    /// Never lent to protocols beyond this many pieces: the rest keeps receiving going.
    share_max: usize,
    /// Pieces that outlived the call of `received` they came in.
    kept: Cell<usize>,
    exhausted: Cell<u64>,
}

/// A loop's receive buffers.
#[derive(Clone)]
pub(crate) struct Pool(Rc<Inner>);

impl Pool {
    /// `count` pieces of `size` bytes each (plus headroom). The memory is untouched until used.
    pub(crate) fn new(count: usize, size: usize) -> Pool {
        assert!(count > 0 && size > 0);
        let stride = (HEADROOM + size + COLOUR).next_multiple_of(64);
        assert!(
            u32::try_from(count * stride).is_ok(),
            "receive buffers of a loop exceed 4 GiB"
        );
        // A zeroed allocation of this size comes as untouched pages.
        let memory: Box<[u8]> = vec![0u8; count * stride].into_boxed_slice();
        // SAFETY: `Cell<u8>` has the same layout as `u8`, and the box is owned here alone.
        let memory = unsafe { Box::from_raw(Box::into_raw(memory) as *mut [Cell<u8>]) };
        Pool(Rc::new(Inner {
            memory,
            stride,
            size,
            refs: (0..count).map(|_| Cell::new(0)).collect(),
            free: RefCell::new((0..count as u32).rev().collect()),
            share_max: count / 2,
            kept: Cell::new(0),
            exhausted: Cell::new(0),
        }))
    }

    /// A piece to receive into, or `None` (counted) when all are in use.
    pub(crate) fn lease(&self) -> Option<Lease> {
        let Some(id) = self.0.free.borrow_mut().pop() else {
            self.0.exhausted.set(self.0.exhausted.get() + 1);
            return None;
        };
        debug_assert_eq!(self.0.refs[id as usize].get(), 0);
        self.0.refs[id as usize].set(1);
        Some(Lease {
            pool: self.clone(),
            id,
        })
    }

    /// Pieces nobody holds.
    pub(crate) fn free(&self) -> usize {
        self.0.free.borrow().len()
    }

    /// How often a lease was refused.
    pub(crate) fn exhausted(&self) -> u64 {
        self.0.exhausted.get()
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

/// The only holder of one piece: the engine, while it receives into it.
pub(crate) struct Lease {
    pool: Pool,
    id: u32,
}

impl Lease {
    /// Where received bytes go.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.range_mut(0, self.pool.0.size)
    }

    /// The address of `space`, for a kernel that writes later.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.space().as_mut_ptr()
    }

    /// Which piece this is; below the pool's count.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// Ends the writing: `carried` in front of the first `len` received bytes, as one chunk.
    /// `carried` is at most [`HEADROOM`] long.
    pub(crate) fn freeze(mut self, carried: &[u8], len: usize) -> Chunk {
        assert!(carried.len() <= HEADROOM && len <= self.pool.0.size);
        if !carried.is_empty() {
            self.range_mut(-(carried.len() as isize), carried.len())
                .copy_from_slice(carried);
        }
        let start = self.pool.start(self.id) - carried.len();
        let refs = &self.pool.0.refs[self.id as usize];
        // One for the chunk; this lease's own goes when it is dropped below.
        refs.set(refs.get() + 1);
        Chunk(Piece::Pool {
            pool: self.pool.clone(),
            id: self.id,
            start: start as u32,
            len: (carried.len() + len) as u32,
        })
    }

    fn range_mut(&mut self, from: isize, len: usize) -> &mut [u8] {
        let start = (self.pool.start(self.id) as isize + from) as usize;
        let cells = &self.pool.0.memory[start..start + len];
        // SAFETY: the piece's count is 1 and this lease is its holder (`lease`), so no chunk of it
        // exists and no other lease; `&mut self` makes this the only slice. The range stays inside
        // the piece's headroom and space. `Cell` permits writing through the shared pool.
        unsafe { std::slice::from_raw_parts_mut(cells.as_ptr() as *mut u8, len) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.release(self.id);
    }
}

/// An owned run of received bytes that a protocol took out of its input.
///
/// Large pieces share the receive buffer, small ones are copies; both read like a slice. A chunk
/// stays on its loop's thread.
pub struct Chunk(Piece);

enum Piece {
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
    #[must_use]
    pub fn copy_from(bytes: &[u8]) -> Chunk {
        Chunk(Piece::Heap(Bytes::copy_from_slice(bytes)))
    }

    /// The part `from..from + len`, sharing the receive buffer if that is allowed now, else `None`.
    pub(crate) fn share(&self, from: usize, len: usize) -> Option<Chunk> {
        let Piece::Pool {
            pool, id, start, ..
        } = &self.0
        else {
            return None;
        };
        assert!(from + len <= self.len());
        if len < SHARE_MIN || pool.0.kept.get() >= pool.0.share_max {
            return None;
        }
        let refs = &pool.0.refs[*id as usize];
        refs.set(refs.get() + 1);
        Some(Chunk(Piece::Pool {
            pool: pool.clone(),
            id: *id,
            start: start + from as u32,
            len: len as u32,
        }))
    }

    /// Ends the engine's own hold after `received`; what the protocol took is counted as kept.
    pub(crate) fn end_lending(self) {
        if let Piece::Pool { pool, id, .. } = &self.0 {
            let refs = &pool.0.refs[*id as usize];
            if refs.get() & !KEPT > 1 && refs.get() & KEPT == 0 {
                refs.set(refs.get() | KEPT);
                pool.0.kept.set(pool.0.kept.get() + 1);
            }
        }
    }

    /// Bytes that this keeps from being received into: a whole buffer if shared, else the copy.
    pub(crate) fn footprint(&self) -> usize {
        match &self.0 {
            Piece::Pool { pool, .. } => pool.0.size,
            Piece::Heap(b) => b.len(),
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Piece::Pool {
                pool, start, len, ..
            } => {
                let (start, len) = (*start as usize, *len as usize);
                let cells = &pool.0.memory[start..start + len];
                // SAFETY: this chunk holds a reference, so the piece's count is at least 1 and no
                // lease of it exists until every chunk is dropped; nobody writes it meanwhile.
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

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Piece::Pool { pool, id, .. } = &self.0 {
            pool.release(*id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pool: &Pool, byte: u8, len: usize) -> Chunk {
        let mut lease = pool.lease().unwrap();
        lease.space()[..len].fill(byte);
        lease.freeze(&[], len)
    }

    #[test]
    fn a_piece_returns_when_its_last_part_is_dropped() {
        let pool = Pool::new(2, 16384);
        let whole = filled(&pool, 7, 16384);
        let a = whole.share(0, 8192).unwrap();
        let b = whole.share(8192, 8192).unwrap();
        whole.end_lending();
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
        let first = filled(&pool, 1, 16384);
        assert!(first.share(0, SHARE_MIN - 1).is_none());
        let kept = first.share(0, SHARE_MIN).unwrap();
        first.end_lending();
        let second = filled(&pool, 2, 16384);
        assert!(
            second.share(0, SHARE_MIN).is_none(),
            "half of the pool stays for receiving"
        );
        drop(kept);
        assert!(second.share(0, SHARE_MIN).is_some());
    }

    #[test]
    fn carried_bytes_stand_in_front() {
        let pool = Pool::new(1, 4096);
        let mut lease = pool.lease().unwrap();
        lease.space()[..3].copy_from_slice(b"def");
        let chunk = lease.freeze(b"abc", 3);
        assert_eq!(&*chunk, b"abcdef");
        assert!(pool.lease().is_none());
        assert_eq!(pool.exhausted(), 1);
        drop(chunk);
        assert!(pool.lease().is_some());
    }

    #[test]
    fn pieces_do_not_overlap() {
        let pool = Pool::new(3, 4096);
        let mut leases: Vec<Lease> = (0..3).map(|_| pool.lease().unwrap()).collect();
        for (i, lease) in leases.iter_mut().enumerate() {
            lease.space().fill(i as u8);
        }
        let carried = [9u8; HEADROOM];
        let chunks: Vec<Chunk> = leases
            .into_iter()
            .map(|l| l.freeze(&carried, 4096))
            .collect();
        for (i, chunk) in chunks.iter().enumerate() {
            assert!(chunk[..HEADROOM].iter().all(|&x| x == 9));
            assert!(chunk[HEADROOM..].iter().all(|&x| x == i as u8));
        }
    }
}
