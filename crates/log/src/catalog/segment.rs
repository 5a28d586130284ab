//! A segment as readers see it: a sparse index of its records of each stream.

use super::spacing::Spacing;
use crate::format::Missing;
use crate::note::{NOTE_BYTES, Note};

/// Most entries in memory, of 40 bytes each: enough for 16 GiB at 64 KiB. A stream always has an
/// entry in each segment that has records of it, even beyond this limit.
const ENTRIES_MAX: usize = 1 << 18;

/// The largest distance between two entries of a stream, bytes: the length of a segment.
const APART_MAX: u64 = 1 << 30;

/// A place in a segment from which a stream can be read forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The position of the first record of the run at `offset`.
    pub(crate) first: u64,
    /// Offset of a run in the segment's file.
    pub(crate) offset: u64,
    /// Where the batch of that run ends.
    pub(crate) batch_end: u64,
    /// Timestamp of that run; timestamps never go back within a stream.
    pub(crate) timestamp_us: u64,
    /// Bytes of the stream's records in the segment before that run, as they are stored.
    pub(crate) before: u64,
}

/// The records of one stream in a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first position of the extent.
    pub(crate) first: u64,
    /// The position after the last.
    pub(crate) next: u64,
    /// Bytes of the records in their stored form.
    pub(crate) bytes: u64,
    pub(crate) entries: Vec<Entry>,
}

impl Extent {
    /// Bytes of the records that are before a position and known to be: up to the entry before it.
    pub(crate) fn before(&self, position: u64) -> u64 {
        if position >= self.next {
            return self.bytes;
        }
        let after = self
            .entries
            .partition_point(|entry| entry.first <= position);
        let entry = after.checked_sub(1).and_then(|at| self.entries.get(at));
        entry.map_or(0, |entry| entry.before)
    }
}

/// The index of a segment: its extents, by stream. There may be a hundred thousand indexes with one
/// extent each, so an index is a vector and not a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    extents: Vec<(u32, Extent)>,
}

impl Index {
    fn find(&self, stream: u32) -> Result<usize, usize> {
        self.extents.binary_search_by_key(&stream, |(id, _)| *id)
    }

    /// The extent of a stream in this segment.
    pub(crate) fn extent(&self, stream: u32) -> Option<&Extent> {
        Some(&self.extents[self.find(stream).ok()?].1)
    }

    /// All, by stream.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u32, &Extent)> {
        self.extents
            .iter()
            .map(|(stream, extent)| (*stream, extent))
    }

    /// How many streams have records in the segment.
    pub(crate) fn streams(&self) -> usize {
        self.extents.len()
    }

    /// How many entries all streams of the index have.
    pub(crate) fn entries(&self) -> usize {
        self.extents().map(|(_, extent)| extent.entries.len()).sum()
    }

    /// Adds an extent unchanged.
    pub(crate) fn insert(&mut self, stream: u32, extent: Extent) {
        match self.find(stream) {
            Ok(at) => self.extents[at].1 = extent,
            Err(at) => self.extents.insert(at, (stream, extent)),
        }
    }

    /// Adds what a batch at `offset` of the segment, with this length, holds; whether that made an
    /// entry.
    pub(crate) fn add(&mut self, note: &Note, offset: u64, length: u64, spacing: &Spacing) -> bool {
        let at = match self.find(note.stream) {
            Ok(at) => at,
            Err(at) => {
                let extent = Extent {
                    first: note.first,
                    ..Extent::default()
                };
                self.extents.insert(at, (note.stream, extent));
                at
            }
        };
        let apart = spacing.between(self.extents.len());
        let extent = &mut self.extents[at].1;
        extent.next = note.next;
        let at = offset + note.offset;
        let last = extent.entries.last();
        let is_apart = last.is_none_or(|last| at - last.offset >= apart);
        if is_apart {
            extent.entries.push(Entry {
                first: note.first,
                offset: at,
                batch_end: offset + length,
                timestamp_us: note.timestamp_us,
                before: extent.bytes,
            });
        }
        extent.bytes += note.bytes;
        is_apart
    }
}

/// A segment as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Bytes in use.
    pub(crate) used: u64,
    /// The highest timestamp in the segment.
    pub(crate) newest_us: u64,
    /// When the segment's last batch was written, by the log's own clock.
    pub(crate) lived_us: u64,
    pub(crate) index: Index,
    /// Positions that are lost.
    pub(crate) gaps: Vec<Missing>,
    /// Entries of the segment's index that memory has no room for; the index file may have them.
    pub(crate) left_out: u32,
}

impl Segment {
    /// Whether all records in the segment are older than `age`, when the wall clock and the log's
    /// own clock show `now`, all in microseconds. Timestamps may be too high for ever: a wall clock
    /// that once ran ahead has made them, and later timestamps of a stream do not go back. So
    /// records that are old by the log's own clock count as old whatever their timestamps say.
    pub(crate) fn is_older(&self, age: u64, (unix_us, lived_us): (u64, u64)) -> bool {
        let is_past = |then: u64, now: u64| then.saturating_add(age) < now;
        is_past(self.newest_us, unix_us) || is_past(self.lived_us, lived_us)
    }
}

impl Spacing {
    /// Takes a segment, without the entries that are too close together.
    pub(crate) fn take(&mut self, segment: &mut Segment, begin: impl Fn(u32) -> u64) {
        self.entries += match self.apart > NOTE_BYTES {
            true => segment.thin(self, begin),
            false => segment.index.entries(),
        };
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
