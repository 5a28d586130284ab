//! What readers need to find records: which segments there are, and a sparse index of each.
//!
//! The one idea: an index is a shortcut, never the truth. Entries lead to headers of runs that the
//! reader decodes and verifies, and everything here can be built from the log again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::Range;
use crate::format::Missing;
use crate::gather::{NOTE_BYTES, Note};
use crate::recovery::Found;
use crate::state::State;

/// A place in a segment from which a stream can be read forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The position of the first record of the run at `offset`.
    pub(crate) first: u64,
    /// Of a run, in the segment's file.
    pub(crate) offset: u64,
    /// Where the batch of that run ends.
    pub(crate) batch_end: u64,
    /// Of that run; they never go back within a stream.
    pub(crate) timestamp_us: u64,
}

/// What a segment holds of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The first position.
    pub(crate) first: u64,
    /// One past the last.
    pub(crate) next: u64,
    pub(crate) entries: Vec<Entry>,
}

/// The index of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) extents: BTreeMap<u32, Extent>,
}

impl Index {
    /// Adds what a batch at `offset` of the segment, with this length, holds.
    pub(crate) fn add(&mut self, note: &Note, offset: u64, length: u64) {
        // Many streams keep fewer entries each, so that an index stays small beside its segment.
        let spacing = NOTE_BYTES * (1 + self.extents.len() as u64 / 16);
        let extent = self.extents.entry(note.stream).or_insert_with(|| Extent {
            first: note.first,
            ..Extent::default()
        });
        extent.next = note.next;
        let at = offset + note.offset;
        if extent
            .entries
            .last()
            .is_none_or(|last| at - last.offset >= spacing)
        {
            extent.entries.push(Entry {
                first: note.first,
                offset: at,
                batch_end: offset + length,
                timestamp_us: note.timestamp_us,
            });
        }
    }
}

/// A segment as readers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Bytes in use.
    pub(crate) used: u64,
    /// The highest timestamp in it.
    pub(crate) newest_us: u64,
    pub(crate) index: Index,
    /// Positions that a repair has found to be lost.
    pub(crate) gaps: Vec<Missing>,
}

/// A stream as readers see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// One past the last committed record.
    pub(crate) next: u64,
    /// The segments that hold records of it, by the first position in each.
    pub(crate) segments: BTreeMap<u64, u64>,
    /// Positions that are lost: the first, and the one after the last.
    gaps: BTreeMap<u64, u64>,
}

impl Stream {
    pub(crate) fn range(&self) -> Range {
        let record = self.segments.first_key_value().map(|(&first, _)| first);
        let gap = self.gaps.first_key_value().map(|(&first, _)| first);
        let first = record.into_iter().chain(gap).min().unwrap_or(self.next);
        Range {
            first,
            next: self.next,
        }
    }

    /// Where a position leads: past the gap it is in, and how far reading may go from there without
    /// meeting the next one.
    pub(crate) fn passage(&self, position: u64) -> Passage {
        if let Some((_, &next)) = self.gaps.range(..=position).next_back()
            && next > position
        {
            return Passage::Missing { next };
        }
        let gap = self.gaps.range(position..).next();
        let end = gap.map_or(self.next, |(&first, _)| first);
        Passage::Until(end)
    }
}

/// What is at a position of a stream, and behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// Nothing up to this one: what was there is lost.
    Missing { next: u64 },
    /// Records without a gap up to this one, if the position is below it.
    Until(u64),
}

/// Everything committed.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) streams: Vec<Stream>,
    pub(crate) names: HashMap<Arc<str>, u32>,
    pub(crate) segments: BTreeMap<u64, Segment>,
}

impl Catalog {
    /// What was found on the disk.
    pub(crate) fn of(state: &State, segments: impl IntoIterator<Item = Found>) -> Catalog {
        let mut catalog = Catalog::default();
        for stream in &state.streams {
            catalog.add_stream(stream.name.clone(), stream.next);
        }
        for segment in segments {
            catalog.add_segment(segment.number, segment.view);
        }
        catalog
    }

    pub(crate) fn find(&self, stream: &str) -> Option<(u32, &Stream)> {
        let id = *self.names.get(stream)?;
        Some((id, &self.streams[id as usize]))
    }

    pub(crate) fn add_stream(&mut self, name: Arc<str>, next: u64) {
        self.names.insert(name, self.streams.len() as u32);
        self.streams.push(Stream {
            next,
            ..Stream::default()
        });
    }

    pub(crate) fn add_segment(&mut self, number: u64, segment: Segment) {
        for (&id, extent) in &segment.index.extents {
            // An index file that tells of a stream that is not known is of no use for it.
            if let Some(stream) = self.streams.get_mut(id as usize) {
                stream.segments.insert(extent.first, number);
                stream.next = stream.next.max(extent.next);
            }
        }
        for gap in &segment.gaps {
            if let Some(stream) = self.streams.get_mut(gap.stream as usize) {
                stream.gaps.insert(gap.first, gap.next);
            }
        }
        self.segments.insert(number, segment);
    }

    /// Adds a committed batch of a segment.
    pub(crate) fn commit(&mut self, number: u64, batch: &BatchNotes) {
        let segment = self
            .segments
            .get_mut(&number)
            .expect("batches go to a segment that is open");
        segment.used = batch.offset + batch.length;
        segment.newest_us = segment.newest_us.max(batch.newest_us);
        for note in &batch.notes {
            let stream = &mut self.streams[note.stream as usize];
            if !segment.index.extents.contains_key(&note.stream) {
                stream.segments.insert(note.first, number);
            }
            stream.next = note.next;
            segment.index.add(note, batch.offset, batch.length);
        }
    }

    pub(crate) fn remove_segment(&mut self, number: u64) {
        if let Some(segment) = self.segments.remove(&number) {
            for (&id, extent) in &segment.index.extents {
                if let Some(stream) = self.streams.get_mut(id as usize) {
                    stream.segments.remove(&extent.first);
                }
            }
            for gap in &segment.gaps {
                if let Some(stream) = self.streams.get_mut(gap.stream as usize) {
                    stream.gaps.remove(&gap.first);
                }
            }
        }
    }

    /// Where to begin to read a stream forward from a position that it has: the segment, and the
    /// entry at or before it.
    pub(crate) fn entry(&self, stream: u32, position: u64) -> Option<(u64, Entry)> {
        let (_, &number) = self.streams[stream as usize]
            .segments
            .range(..=position)
            .next_back()?;
        let extent = self.segments.get(&number)?.index.extents.get(&stream)?;
        let after = extent
            .entries
            .partition_point(|entry| entry.first <= position);
        Some((number, *extent.entries.get(after.checked_sub(1)?)?))
    }

    /// The next segment after this one that holds records of the stream, and the entry it begins
    /// with.
    pub(crate) fn entry_after(&self, stream: u32, segment: u64) -> Option<(u64, Entry)> {
        let later = self.segments.range(segment + 1..);
        later.into_iter().find_map(|(&number, segment)| {
            let extent = segment.index.extents.get(&stream)?;
            Some((number, *extent.entries.first()?))
        })
    }

    /// The last place of a stream before the first record at or after a time: the segment and the
    /// entry; `None` if the stream is empty.
    pub(crate) fn before_time(&self, stream: u32, time_us: u64) -> Option<(u64, Entry)> {
        let mut found = None;
        for number in self.streams[stream as usize].segments.values() {
            let extent = self.segments.get(number)?.index.extents.get(&stream)?;
            let first = extent.entries.first()?;
            if found.is_some() && first.timestamp_us >= time_us {
                break;
            }
            let after = extent
                .entries
                .partition_point(|entry| entry.timestamp_us < time_us);
            found = Some((*number, extent.entries[after.saturating_sub(1)]));
        }
        found
    }
}

/// What a written batch adds to the catalog when it is committed.
#[derive(Debug, Default)]
pub(crate) struct BatchNotes {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) newest_us: u64,
    pub(crate) notes: Vec<Note>,
}
