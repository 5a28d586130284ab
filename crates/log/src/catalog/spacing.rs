//! How far apart the entries of indexes stand.
//!
//! The one idea: all entries together have a limit. Whenever there are more, they are to stand twice as
//! far apart, and those between are left out. So a log of any length is found one's way in by the same
//! few megabytes, and a reader that begins in the middle of a longer log looks over more headers.

use super::Segment;
use crate::gather::NOTE_BYTES;

/// Most entries in memory, of 40 bytes each: those of 16 GiB at 64 KiB. Every stream has one in each
/// segment that has records of it, however many these are.
const ENTRIES_MAX: usize = 1 << 18;

/// What no two entries of a stream need be further apart: the length of a segment.
const APART_MAX: u64 = 1 << 30;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spacing {
    apart: u64,
    entries: usize,
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

    /// Takes a segment, without the entries that are too close together.
    pub(crate) fn take(&mut self, segment: &mut Segment, begin: impl Fn(u32) -> u64) {
        self.entries += match self.apart > NOTE_BYTES {
            true => segment.thin(self, begin),
            false => segment.index.entries(),
        };
    }

    pub(super) fn remove(&mut self, entries: usize) {
        self.entries -= entries;
    }

    /// Leaves out entries of all segments, which `each` goes over, if there are too many; not the ones
    /// at which streams begin.
    pub(crate) fn keep_to(
        &mut self,
        mut each: impl FnMut(&mut dyn FnMut(&mut Segment)),
        begin: impl Fn(u32) -> u64,
    ) {
        while self.entries > ENTRIES_MAX && self.apart < APART_MAX {
            self.apart *= 2;
            let mut left = 0;
            each(&mut |segment| left += segment.thin(self, &begin));
            self.entries = left;
        }
    }
}

impl Segment {
    /// Leaves out entries that are too close to the one before; says how many there are left.
    fn thin(&mut self, spacing: &Spacing, begin: impl Fn(u32) -> u64) -> usize {
        let apart = spacing.between(self.index.streams());
        let (before, mut left) = (self.index.entries(), 0);
        for (stream, extent) in &mut self.index.extents {
            let begin = begin(*stream);
            let entries = &mut extent.entries;
            let begins = entries.partition_point(|entry| entry.first <= begin);
            let begins = begins.checked_sub(1).map(|at| entries[at].offset);
            let mut last = None;
            // Not shrunk in place, which would leave holes that nothing fits into.
            let mut kept = Vec::new();
            kept.extend(entries.iter().copied().filter(|entry| {
                let is_apart = last.is_none_or(|last| entry.offset - last >= apart);
                if is_apart {
                    last = Some(entry.offset);
                }
                is_apart || begins == Some(entry.offset)
            }));
            kept.shrink_to_fit();
            left += kept.len();
            *entries = kept;
        }
        self.left_out += (before - left) as u32;
        left
    }
}
