//! A piece of a request's body.

use std::fmt;

use tidewire::Input;

/// A piece of a request's body, borrowed from the connection's input.
///
/// See [`Exchange`](crate::Exchange).
pub struct Data<'d, 'i> {
    pub(crate) input: &'d mut Input<'i>,
    pub(crate) len: usize,
}

impl<'i> Data<'_, 'i> {
    /// The bytes that are not consumed yet.
    #[must_use]
    pub fn bytes(&self) -> &'i [u8] {
        &self.input.bytes()[..self.len]
    }

    /// How many bytes are not yet consumed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether all is consumed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Marks the first `n` bytes as dealt with.
    ///
    /// # Panics
    /// If fewer than `n` bytes are left.
    pub fn consume(&mut self, n: usize) {
        assert!(n <= self.len, "consumed {n} of {} bytes", self.len);
        self.input.consume(n);
        self.len -= n;
    }
}

impl fmt::Debug for Data<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} bytes)", self.len)
    }
}
