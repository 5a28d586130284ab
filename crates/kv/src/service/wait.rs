//! The state of a connection that waits for a key.

use std::sync::Arc;
use std::time::Duration;

use tidewire::Instant;

use crate::store::{Store, Waiter};

/// A connection's wait.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(super) waiter: Arc<Waiter>,
    /// How long the command ran before it began to wait; `None` if it was not timed.
    pub(crate) took: Option<Duration>,
    /// The time at which the wait ends.
    pub(super) until: Option<Instant>,
    /// CLIENT UNBLOCK came when the key was ready already; the value says whether it was to end with an error.
    /// The value takes effect unless there is a reply.
    pub(super) unblocked: Option<bool>,
    /// The command was refused when its key was ready, because rights had changed.
    pub(super) refused: bool,
    /// Since when the command's key is ready and the log too busy, on the loops' clock: the wait is not in the
    /// store any more.
    pub(super) busy_since: Option<Instant>,
}

/// Why a wait is over without a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    TimedOut,
    Unblocked { error: bool },
}

impl Wait {
    /// Gives the wait up. False if a reply is on its way already.
    pub(crate) fn cancel(&self, store: &Store) -> bool {
        self.is_busy() || store.cancel(&self.waiter)
    }

    /// Whether the connection is to run its command again.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy_since.is_some()
    }
}
