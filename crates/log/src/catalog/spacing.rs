//! How far apart the entries of indexes stand.
//!
//! The one idea: all entries together have a limit. Whenever there are more entries, their distance
//! doubles, and every second one is left out. So the index of a log of any length takes the same
//! few megabytes, and a reader that begins in the middle of a long log looks at more headers.

use crate::note::NOTE_BYTES;

/// The module's comment describes the type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    pub(super) apart: u64,
    pub(super) entries: usize,
}

impl Default for Spacing {
    fn default() -> Spacing {
        Spacing {
            apart: NOTE_BYTES,
            entries: 0,
        }
    }
}

impl Spacing {
    /// How far apart entries of a stream are at least, where so many streams share a segment: many
    /// keep fewer each, so that an index stays small beside its segment.
    pub(super) fn between(&self, streams: usize) -> u64 {
        self.apart * (1 + streams as u64 / 16)
    }

    pub(super) fn add(&mut self, entries: usize) {
        self.entries += entries;
    }

    pub(super) fn remove(&mut self, entries: usize) {
        self.entries -= entries;
    }
}
