//! The state that readers share: open files, buffers, and where each reader stopped.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::Compression;
use crate::catalog::Entry;
use crate::format::RECORDS_HEADER;

/// Files kept open for readers.
pub(super) const FILES_MAX: usize = 32;
/// Places remembered.
const HINTS_MAX: usize = 256;
/// Runs kept for readers that have seen a part.
const HELD_MAX: usize = 16;
/// Buffers kept for the next reader.
pub(super) const BUFFERS_MAX: usize = 8;

/// The state that readers share.
#[derive(Debug)]
pub(crate) struct Readers<F> {
    pub(super) files: Mutex<VecDeque<(u64, F)>>,
    pub(super) hints: Mutex<VecDeque<Hint>>,
    pub(super) buffers: Mutex<Vec<Vec<u8>>>,
}

/// Where the next read of a stream may go on.
#[derive(Debug)]
pub(super) struct Hint {
    pub(super) stream: u32,
    pub(super) position: u64,
    pub(super) place: Place,
    pub(super) held: Option<Held>,
}

impl<F> Readers<F> {
    pub(crate) fn new() -> Readers<F> {
        Readers {
            files: Mutex::default(),
            hints: Mutex::default(),
            buffers: Mutex::default(),
        }
    }

    /// Closes the file of a segment that was removed: as long as it is open, its room is taken.
    pub(crate) fn forget(&self, number: u64) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|(of, _)| *of != number);
    }

    /// The segments whose files are open.
    #[cfg(test)]
    pub(crate) fn open(&self) -> Vec<u64> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().map(|(number, _)| *number).collect()
    }

    pub(super) fn hint(&self, stream: u32, position: u64) -> Option<Hint> {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |hint: &Hint| hint.stream == stream && hint.position == position;
        let index = hints.iter().rposition(is_it)?;
        hints.remove(index)
    }

    pub(super) fn remember(&self, hint: Hint) {
        let mut hints = self.hints.lock().unwrap_or_else(PoisonError::into_inner);
        if hint.held.is_some() {
            let mut holding = hints.iter_mut().filter(|hint| hint.held.is_some());
            if let Some(oldest) = holding.next()
                && holding.count() + 1 >= HELD_MAX
            {
                // The run will be read and verified again.
                oldest.held = None;
            }
        }
        if hints.len() == HINTS_MAX {
            hints.pop_front();
        }
        hints.push_back(hint);
    }
}

/// A run of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) segment: u64,
    /// Offset of a run, or of a batch if it is `batch_end`.
    pub(super) offset: u64,
    pub(super) batch_end: u64,
}

impl Place {
    pub(super) fn new((segment, entry): (u64, Entry)) -> Place {
        Place {
            segment,
            offset: entry.offset,
            batch_end: entry.batch_end,
        }
    }
}

/// A run of records, without its frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) producer: u32,
    pub(super) timestamp_us: u64,
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) compression: Compression,
    pub(super) header: [u8; RECORDS_HEADER],
    /// Where the frames begin, and their length.
    pub(super) frames: (u64, usize),
}

impl Found {
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(self.count.into())
    }
}

/// A run that was read and verified, and returned in part.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) run: Found,
    pub(super) frames: Vec<u8>,
    /// Bytes and frames that were returned, or passed over.
    pub(super) done: (usize, u32),
}
