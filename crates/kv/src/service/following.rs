//! Which changes a client wants to be notified of.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::store::{Store, Tracker};

/// The kinds of tracking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// All keys that the client reads.
    Reads,
    /// Only keys that the client reads after CLIENT CACHING YES.
    OptIn,
    /// All keys that the client reads, except after CLIENT CACHING NO.
    OptOut,
    /// All keys with one of the client's prefixes.
    Broadcast,
}

/// A client's wishes for notifications.
#[derive(Debug)]
pub(crate) struct Following {
    pub(super) tracker: Arc<Tracker>,
    pub(super) mode: Mode,
    pub(super) no_loop: bool,
    pub(super) prefixes: BTreeSet<Arc<[u8]>>,
    /// The connection that is notified instead; 0 for none.
    pub(super) redirect: u64,
    /// CLIENT CACHING was said for the command or transaction to come.
    pub(super) caching: bool,
}

impl Following {
    /// The connection has gone.
    pub(super) fn close(&self, store: &Store) {
        store.end_tracking(&self.tracker, true);
    }
}
