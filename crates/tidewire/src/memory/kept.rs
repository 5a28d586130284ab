//! Accounts of the chunks that protocols have taken, beside their output and carried input. Each
//! connection that has taken a chunk has an account.

use std::cell::Cell;
use std::rc::Rc;

/// Bytes that one connection's protocol keeps. Clones are the same account; it outlives the
/// connection where a chunk does, and then counts for no connection.
#[derive(Clone, Default)]
pub(crate) struct Kept(Rc<Cell<usize>>);

impl Kept {
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.0.get()
    }

    /// Counts `bytes` until the result is dropped.
    pub(crate) fn tally(&self, bytes: usize) -> Tally {
        self.0.set(self.0.get() + bytes);
        Tally {
            account: self.clone(),
            bytes,
        }
    }
}

/// A part of an account, for as long as this lives.
pub(crate) struct Tally {
    account: Kept,
    bytes: usize,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let account = &self.account.0;
        account.set(account.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_the_sum_of_what_lives() {
        let account = Kept::default();
        let (a, b) = (account.tally(5), account.tally(7));
        assert_eq!(account.bytes(), 12);
        drop(a);
        assert_eq!(account.bytes(), 7);
        drop(b);
        assert_eq!(account.bytes(), 0);
    }
}
