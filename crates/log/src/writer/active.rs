//! The segment that is written, the file in reserve for the next one, and what each begins with.

use crate::format::{Needs, VERSION, put_checkpoint};
use crate::state::State;

/// The segment that is written.
#[derive(Debug)]
pub(crate) struct Active<F> {
    pub(crate) number: u64,
    /// The version of the format; if it is not the newest, nothing is added.
    pub(crate) version: u32,
    /// The features that readers of the segment must know, as its header says; no feature is added
    /// later.
    pub(crate) needs: Needs,
    pub(crate) file: F,
    /// The offset of the next batch.
    pub(crate) used: u64,
    /// The offset up to which space is reserved.
    pub(crate) length: u64,
    /// The disk has begun to write the bytes before this offset.
    pub(crate) begun: u64,
    /// Whether bytes were written since the last sync.
    pub(crate) unsynced: bool,
    /// The last batch is a closing one.
    pub(crate) closed: bool,
}

impl<F> Active<F> {
    pub(crate) fn left(&self) -> u64 {
        if self.version == VERSION {
            self.length.saturating_sub(self.used)
        } else {
            // Batches of this version must not look like a torn tail to an earlier version.
            0
        }
    }
}

/// The name of the file in reserve.
pub(crate) const SPARE: &str = "spare";

/// A file in reserve.
#[derive(Debug)]
pub(crate) struct Spare<F> {
    pub(super) file: F,
    pub(super) length: u64,
}

/// A run with everything that is known.
pub(super) fn checkpoint(state: &State) -> (Vec<u8>, Needs) {
    let mut run = Vec::new();
    put_checkpoint(&mut run, |to| state.encode(to));
    (run, state.needs())
}
