//! Bytes that a connection has received and its protocol has not consumed yet.

use crate::memory::buffer::{Chunk, Lent, Piece};
use crate::memory::kept::Kept;

/// Received bytes, lent to [`Protocol::received`](crate::Protocol::received) as one contiguous
/// slice: first the bytes that were left unconsumed before, then the new ones.
///
/// Bytes that are unconsumed when `received` returns are carried to the next call.
///
/// ```
/// use tidewire::Input;
///
/// let mut input = Input::new(b"one two");
/// let word = &input.bytes()[..3];
/// input.consume(4);
/// assert_eq!((word, input.bytes()), (&b"one"[..], &b"two"[..]));
/// ```
pub struct Input<'a> {
    bytes: &'a [u8],
    consumed: usize,
    lent: Option<&'a Lent<'a>>,
    /// The connection's account of its taken chunks; made when the connection takes its first
    /// chunk.
    kept: Option<Kept>,
}

impl<'a> Input<'a> {
    /// Plain bytes, for tests of protocols and for layers.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input {
            bytes,
            consumed: 0,
            lent: None,
            kept: None,
        }
    }

    #[inline]
    pub(crate) fn lent(lent: &'a Lent<'a>) -> Input<'a> {
        Input {
            bytes: lent.bytes(),
            consumed: 0,
            lent: Some(lent),
            kept: None,
        }
    }

    /// The bytes not yet consumed. The slice outlives further calls on this input.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        &self.bytes[self.consumed..]
    }

    /// How many bytes are not yet consumed.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.consumed
    }

    /// Whether all is consumed.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Marks the first `n` bytes as dealt with.
    ///
    /// # Panics
    /// If fewer than `n` bytes are left.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len(), "consumed {n} of {} bytes", self.len());
        self.consumed += n;
    }

    /// Consumes the first `n` bytes and returns them. A large run shares the receive buffer,
    /// without a copy; a small one, or any when buffers run low, is copied.
    ///
    /// # Panics
    /// If fewer than `n` bytes are left.
    ///
    /// ```
    /// use tidewire::Input;
    ///
    /// let mut input = Input::new(b"head and the rest");
    /// let head = input.take(4);
    /// assert_eq!((&head[..], input.len()), (&b"head"[..], 13));
    /// input.consume(13);
    /// assert!(input.is_empty());
    /// ```
    #[must_use]
    pub fn take(&mut self, n: usize) -> Chunk {
        let bytes = self.bytes();
        let shared = self.take_shared(n);
        let piece = shared.unwrap_or_else(|| Piece::copy_from(&bytes[..n]));
        self.consume(n);
        Chunk::taken(piece, self.kept.get_or_insert_default())
    }

    /// The first `n` bytes without a copy, if that is possible now; does not consume.
    #[inline]
    pub(crate) fn take_shared(&self, n: usize) -> Option<Piece> {
        self.lent?.share(self.consumed, n)
    }

    /// Chunks that are taken count for this account, which may be none yet.
    #[inline(always)]
    pub(crate) fn for_account(mut self, kept: Option<&Kept>) -> Input<'a> {
        if let Some(kept) = kept {
            self.kept = Some(kept.clone());
        }
        self
    }

    /// The account, if there is one now.
    #[inline]
    pub(crate) fn into_account(self) -> Option<Kept> {
        self.kept
    }

    #[inline]
    pub(crate) fn consumed(&self) -> usize {
        self.consumed
    }
}
