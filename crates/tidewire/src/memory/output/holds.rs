//! Queued output that may not be sent yet: output that is written behind a *mark* leaves only when
//! the mark is released.
//!
//! The output queue itself does not know marks. `Holds` stands beside the queue: pairs of a
//! position in the stream and the mark that output from this position on waits for. So writing
//! costs nothing extra, and sending costs one comparison.

use std::collections::VecDeque;

/// The marks of one connection. Made when the first is set.
#[derive(Default)]
pub(crate) struct Holds {
    /// Bytes that have left the queue: the position of its front.
    front: u64,
    /// Position and mark of each stretch that waits, in order; both rise strictly.
    marks: VecDeque<(u64, u64)>,
    /// Marks up to this one are released.
    released: u64,
    /// Whether the connection is on the list of its loop and service; see
    /// [`Barrier`](super::Barrier).
    pub(crate) listed: bool,
}

/// Marks for which room is kept while none is set.
const KEEP: usize = 64;

impl Holds {
    /// Output that is written behind the `len` queued bytes waits for `mark`. A mark below the
    /// previous one changes nothing, because output leaves in order.
    pub(crate) fn hold(&mut self, mark: u64, len: usize) {
        let floor = self.marks.back().map_or(self.released, |&(_, last)| last);
        if mark <= floor {
            return;
        }
        let at = self.front + len as u64;
        match self.marks.back_mut() {
            // Nothing was written behind the last one.
            Some(last) if last.0 == at => last.1 = mark,
            _ => self.marks.push_back((at, mark)),
        }
    }

    /// Releases marks up to `upto`; whether anything waited for one of them.
    pub(crate) fn release(&mut self, upto: u64) -> bool {
        self.released = self.released.max(upto);
        let mut some = false;
        while self.marks.front().is_some_and(|&(_, mark)| mark <= upto) {
            self.marks.pop_front();
            some = true;
        }
        if self.marks.is_empty() && self.marks.capacity() > KEEP {
            self.marks = VecDeque::new();
        }
        some
    }

    /// The first `n` queued bytes have gone.
    #[inline]
    pub(crate) fn advance(&mut self, n: usize) {
        self.front += n as u64;
    }

    /// How many of `len` queued bytes may be sent.
    #[inline]
    pub(crate) fn sendable(&self, len: usize) -> usize {
        match self.marks.front() {
            Some(&(at, _)) => (at - self.front) as usize,
            None => len,
        }
    }

    /// Marks that are waited for.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.marks.len()
    }

    /// Memory that marks take; there may be room for twice as many. The first does not count: it may
    /// be set while nothing is queued, which then is not full.
    pub(crate) fn footprint(&self) -> usize {
        2 * size_of::<(u64, u64)>() * self.marks.len().saturating_sub(1)
    }

    /// Whether a mark is set that is not released.
    pub(crate) fn any(&self) -> bool {
        !self.marks.is_empty()
    }
}
