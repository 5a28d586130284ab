//! A store that is being recovered: which clients are answered LOADING, and the progress.
//!
//! The one idea: whether a store loads is looked at when a connection is accepted, and by
//! connections that were accepted then, when they send something. A server that has loaded asks
//! none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::commands::Error;

/// The error for clients that need the keys while the keys are still loaded.
pub(super) fn error() -> Error {
    Error::new("LOADING Tidewire is loading the dataset in memory")
}

/// How much of a snapshot is in the store, or of the log behind it.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(super) done: AtomicU64,
    pub(super) of: AtomicU64,
}

impl Loaded {
    pub(crate) fn set(&self, done: u64, of: u64) {
        self.done.store(done, Relaxed);
        self.of.store(of, Relaxed);
    }
}
