//! Where messages go: the seam between the protocols and the log.
//!
//! A sink is given whole batches, and answers what may be acknowledged. [`Counted`] is the sink of
//! a server without a log.

use crate::classic::Batch;
use crate::ledger::{Ledger, Page};

/// Takes in messages, a batch at a time.
pub trait Sink: Send + Sync + 'static {
    /// State of one loop, so that appending needs no lock.
    type Local: 'static;

    /// Makes the state of one loop.
    fn on_loop(&self) -> Self::Local;

    /// Takes all messages of `batch`, in order. Called at most once for each message of a
    /// connection, and before it is acknowledged. Must not block.
    fn append(&self, batch: &Batch<'_>, local: &mut Self::Local) -> Accepted;
}

/// What a sink makes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Accepted {
    /// The messages may be acknowledged as soon as the policy likes.
    Now,
}

/// Counts messages and drops them. Clones share their counts.
#[derive(Clone, Debug, Default)]
pub struct Counted(Ledger<2>);

/// What a [`Counted`] sink has taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Messages.
    pub messages: u64,
    /// Their payload bytes.
    pub payload_bytes: u64,
}

impl Counted {
    /// What was taken in so far, on all loops.
    #[must_use]
    pub fn stored(&self) -> Stored {
        let [messages, payload_bytes] = self.0.sums();
        Stored {
            messages,
            payload_bytes,
        }
    }
}

/// The page that a loop counts on.
#[derive(Debug)]
pub struct CountedLocal(Page<2>);

impl Sink for Counted {
    type Local = CountedLocal;

    fn on_loop(&self) -> CountedLocal {
        CountedLocal(self.0.page())
    }

    #[inline]
    fn append(&self, batch: &Batch<'_>, local: &mut CountedLocal) -> Accepted {
        local.0.add(0, batch.messages() as u64);
        local.0.add(1, batch.payload_bytes() as u64);
        Accepted::Now
    }
}
