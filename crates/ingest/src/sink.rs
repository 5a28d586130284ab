//! Where messages go: the seam between the protocols and the log.
//!
//! A sink is given whole batches, and answers what may be acknowledged. [`Counted`] is the sink of
//! a server without a log, [`LogSink`](crate::LogSink) that of one with a log.

use std::sync::Arc;
use std::time::Duration;

use tidewire_log::{Log, Ticket};

use crate::classic::Batch;
use crate::ledger::{Ledger, Page};

/// Takes in messages, a batch at a time.
pub trait Sink: Send + Sync + 'static {
    /// State of one loop, so that appending needs no lock.
    type Local: 'static;

    /// Whether [`append`](Sink::append) may answer anything but [`Accepted::Now`]. A service
    /// over a sink that never does has nothing to wait for, and no code for it.
    const LATER: bool;

    /// Makes the state of one loop.
    fn on_loop(&self) -> Self::Local;

    /// Takes all messages of `batch`, in order, or none of them. The function is called before the
    /// messages are acknowledged, and again for the same messages until the sink takes them. Must
    /// not block. `wall` tells the time since the Unix epoch.
    fn append(
        &self,
        batch: &Batch<'_>,
        local: &mut Self::Local,
        wall: impl FnOnce() -> Duration,
    ) -> Accepted;

    /// The log that tickets are of, and that tells when there is room again.
    fn log(&self) -> Option<&Arc<dyn Log>> {
        None
    }
}

/// A sink's answer to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub enum Accepted {
    /// The messages may be acknowledged as soon as the policy likes.
    Now,
    /// The messages are taken, and may be acknowledged once this is committed.
    Later(Ticket),
    /// No message was taken, for want of room: to be tried again when the log has moved.
    Busy,
    /// No message was taken, because there are too many at once: to be tried again with fewer.
    Fewer,
    /// No message was taken, and none will be: the connection is to end, for this reason.
    Refused(&'static str),
}

/// Counts messages and drops them. Clones of the sink share their counts.
#[derive(Clone, Debug, Default)]
pub struct Counted(Ledger<2>);

/// The numbers of messages and bytes that a [`Counted`] sink has taken in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Messages.
    pub messages: u64,
    /// Payload bytes of the messages.
    pub payload_bytes: u64,
}

impl Counted {
    /// Messages that were taken so far, on all loops.
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

    const LATER: bool = false;

    fn on_loop(&self) -> CountedLocal {
        CountedLocal(self.0.page())
    }

    #[inline]
    fn append(
        &self,
        batch: &Batch<'_>,
        local: &mut CountedLocal,
        _: impl FnOnce() -> Duration,
    ) -> Accepted {
        local.0.add(0, batch.messages() as u64);
        local.0.add(1, batch.payload_bytes() as u64);
        Accepted::Now
    }
}
