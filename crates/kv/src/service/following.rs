//! What a client wants to be told of changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::store::{Store, Tracker};

/// What is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Everything that it reads.
    Reads,
    /// What it reads behind CLIENT CACHING YES.
    OptIn,
    /// What it reads, but not behind CLIENT CACHING NO.
    OptOut,
    /// All keys that begin as it says.
    Broadcast,
}

/// What a client wants to be told.
#[derive(Debug)]
pub(crate) struct Following {
    pub(super) tracker: Arc<Tracker>,
    pub(super) mode: Mode,
    pub(super) no_loop: bool,
    pub(super) prefixes: BTreeSet<Arc<[u8]>>,
    /// The connection that is told instead; 0 for none.
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
