//! The catalog by which readers find records: which segments exist, and a sparse index of each.
//!
//! The one idea: an index is a shortcut, never the truth. Entries point to headers of runs, which the
//! reader decodes and verifies, and the whole catalog can be built from the log again. So entries may
//! be left out: the longer the log, the further apart they stand (`spacing`).

mod pins;
mod segment;
mod spacing;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::format::Missing;
use crate::note::{Note, Turn};
use crate::numbered::Numbered;
use crate::state::State;
use crate::{Range, StreamSettings};

pub(crate) use pins::Pins;
pub(crate) use segment::{Entry, Extent, Index, Segment};
pub(crate) use spacing::Spacing;

/// A stream as readers see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    /// The position after the last committed record.
    pub(crate) next: u64,
    /// Records before this position are not kept any more.
    pub(crate) trimmed: u64,
    /// Bytes of the records that are kept, as they are stored.
    pub(crate) held: u64,
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
            first: first.max(self.trimmed),
            next: self.next,
        }
    }

    /// How many records may be read: the records of the range that are not lost.
    pub(crate) fn records(&self) -> u64 {
        let Range { first, next } = self.range();
        let within = |(&from, &to): (&u64, &u64)| to.min(next).saturating_sub(from.max(first));
        let lost: u64 = self.gaps.iter().map(within).sum();
        (next - first).saturating_sub(lost)
    }

    /// Tells a reader the next position behind a gap, or how far it may read before the next gap.
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

/// Whether a position of a stream has a record, and how far the records or the gap go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// A gap up to this position: its records are lost.
    Missing { next: u64 },
    /// Records without a gap up to this position, if the given position is below it.
    Until(u64),
}

/// Everything committed.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) streams: Numbered<Stream>,
    pub(crate) names: HashMap<Arc<str>, u32>,
    pub(crate) segments: BTreeMap<u64, Segment>,
    /// How far apart entries are, and how many there are.
    spacing: Spacing,
    /// Bytes that are not kept any more, by stream.
    freed: Vec<(u32, i64)>,
}

impl Catalog {
    /// The catalog of the segments that were found on the disk.
    pub(crate) fn of(state: &State, segments: impl IntoIterator<Item = (u64, Segment)>) -> Catalog {
        let mut catalog = Catalog::default();
        for (id, stream) in state.streams.iter() {
            catalog.add_stream(id, stream.name.clone(), stream.next, stream.trimmed);
        }
        for (number, segment) in segments {
            catalog.add_segment(number, segment);
        }
        catalog.thin();
        catalog
    }

    pub(crate) fn find(&self, stream: &str) -> Option<(u32, &Stream)> {
        let id = *self.names.get(stream)?;
        Some((id, self.streams.get(id)?))
    }

    pub(crate) fn add_stream(&mut self, id: u32, name: Arc<str>, next: u64, trimmed: u64) {
        self.names.insert(name, id);
        let stream = Stream {
            next,
            trimmed,
            ..Stream::default()
        };
        self.streams.insert(id, stream);
    }

    pub(crate) fn add_segment(&mut self, number: u64, segment: Segment) {
        self.spacing.add(segment.index.entries());
        for (id, extent) in segment.index.extents() {
            // An index file that tells of a stream that is not known is of no use for it.
            if let Some(stream) = self.streams.get_mut(id) {
                stream.segments.insert(extent.first, number);
                stream.next = stream.next.max(extent.next);
                stream.held += extent.bytes - extent.before(stream.trimmed);
            }
        }
        for gap in &segment.gaps {
            if let Some(stream) = self.streams.get_mut(gap.stream) {
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
        segment.lived_us = segment.lived_us.max(batch.lived_us);
        for note in &batch.notes {
            // A stream that was deleted in the same batch is there still.
            let stream = &mut self.streams[note.stream];
            if segment.index.extent(note.stream).is_none() {
                stream.segments.insert(note.first, number);
            }
            stream.next = note.next;
            stream.held += note.bytes;
            let spacing = &self.spacing;
            if segment.index.add(note, batch.offset, batch.length, spacing) {
                self.spacing.add(1);
            }
        }
        self.thin();
        for turn in &batch.turns {
            match *turn {
                Turn::Deleted(id) => self.delete_stream(id),
                Turn::Passed(id, first, next) => {
                    if let Some(stream) = self.streams.get_mut(id) {
                        stream.next = next;
                        stream.gaps.insert(first, next);
                    }
                    if let Some(segment) = self.segments.get_mut(&number) {
                        let stream = id;
                        segment.gaps.push(Missing {
                            stream,
                            first,
                            next,
                        });
                    }
                }
                Turn::Trimmed(id, position) => {
                    if let Some(stream) = self.streams.get_mut(id) {
                        stream.trimmed = stream.trimmed.max(position);
                        self.recount(id);
                    }
                }
            }
        }
    }

    /// Leaves out entries, if there are too many.
    fn thin(&mut self) {
        let Catalog {
            streams,
            segments,
            spacing,
            ..
        } = self;
        // A stream is counted from this entry on.
        let trimmed = |stream| streams.get(stream).map_or(0, |stream| stream.trimmed);
        spacing.keep_to(|each| segments.values_mut().for_each(each), trimmed);
    }

    /// How many entries all indexes have.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> usize {
        self.segments
            .values()
            .map(|segment| segment.index.entries())
            .sum()
    }

    fn delete_stream(&mut self, id: u32) {
        self.streams.remove(id);
        #[expect(clippy::disallowed_methods, reason = "each is looked at for itself")]
        self.names.retain(|_, named| *named != id);
    }

    pub(crate) fn remove_segment(&mut self, number: u64) {
        let Some(segment) = self.segments.remove(&number) else {
            return;
        };
        self.spacing.remove(segment.index.entries());
        for (id, extent) in segment.index.extents() {
            if let Some(stream) = self.streams.get_mut(id) {
                stream.segments.remove(&extent.first);
                self.recount(id);
            }
        }
        for gap in &segment.gaps {
            if let Some(stream) = self.streams.get_mut(gap.stream) {
                stream.gaps.remove(&gap.first);
            }
        }
    }

    /// The position from which on a stream's settings keep its records: none that are too old, and
    /// no more than is allowed. `newest_us` is when the last one came.
    ///
    /// `now` is what the wall clock and the log's own clock show, see [`Segment::is_older`].
    pub(crate) fn cut(
        &self,
        id: u32,
        set: &StreamSettings,
        newest_us: u64,
        now: (u64, u64),
    ) -> u64 {
        let Some(stream) = self.streams.get(id) else {
            return 0;
        };
        let age = set.retain_age.map(|age| age.as_micros() as u64);
        let oldest_us = age.map_or(0, |age| now.0.saturating_sub(age));
        let mut is_segment_old = false;
        let (mut cut, mut left) = (stream.trimmed, stream.held);
        // Bytes between the cut and where the walk is.
        let mut passed = 0;
        let begin = stream.segments.range(..=cut).next_back();
        let begin = begin.map_or(0, |(&first, _)| first);
        for number in stream.segments.range(begin..).map(|(_, number)| number) {
            let segment = self.segments.get(number);
            let Some(segment) = segment else { continue };
            let Some(extent) = segment.index.extent(id) else {
                continue;
            };
            is_segment_old = age.is_some_and(|age| segment.is_older(age, now));
            let mut at = extent.before(stream.trimmed);
            let behind = |entry: &&Entry| entry.first > stream.trimmed;
            for entry in extent.entries.iter().filter(behind) {
                passed += entry.before - at;
                at = entry.before;
                // Records before an entry are no younger than the entry.
                let is_old = is_segment_old || entry.timestamp_us < oldest_us;
                if !is_old && set.retain_bytes.is_none_or(|limit| left <= limit) {
                    return cut;
                }
                cut = entry.first;
                // Some of the passed records may have been cut off before, between two entries.
                // Then fewer are left than this estimate says, and one entry too many is kept.
                left = left.saturating_sub(std::mem::take(&mut passed));
            }
            passed += extent.bytes - at;
        }
        match is_segment_old || newest_us < oldest_us {
            true => stream.next,
            false => cut,
        }
    }

    /// Whether nothing in a segment is kept: all of its records are of streams that were deleted or cut
    /// off behind them, or it has none.
    pub(crate) fn is_dead(&self, segment: &Segment) -> bool {
        let is_dead = |stream: u32, next: u64| {
            let stream = self.streams.get(stream);
            stream.is_none_or(|stream| stream.trimmed >= next)
        };
        let mut extents = segment.index.extents();
        extents.all(|(id, extent)| is_dead(id, extent.next))
            && segment.gaps.iter().all(|gap| is_dead(gap.stream, gap.next))
    }

    /// Which streams keep the oldest segments.
    pub(crate) fn pins(&self) -> Pins {
        let streams = self.streams.iter();
        let firsts = streams.filter_map(|(id, stream)| {
            let is_kept = |number: &u64| {
                let segment = self.segments.get(number)?;
                let extent = segment.index.extent(id)?;
                (extent.next > stream.trimmed).then_some((id, *number))
            };
            let around = stream.segments.range(..=stream.trimmed).next_back();
            let behind = stream.segments.range(stream.trimmed..).take(2);
            let mut numbers = around.into_iter().chain(behind).map(|(_, number)| number);
            numbers.find_map(is_kept)
        });
        let used = self.segments.iter();
        Pins::of_streams(
            firsts,
            used.map(|(number, segment)| (*number, segment.used)),
        )
    }

    /// Bytes of records from these positions of streams on, by up to 64 KiB of each more.
    pub(crate) fn bytes_from(&self, position_of: impl Fn(u32) -> u64) -> u64 {
        let mut bytes = 0;
        for (id, stream) in self.streams.iter() {
            let from = position_of(id).max(stream.trimmed);
            if from >= stream.next {
                continue;
            }
            let begin = stream.segments.range(..=from).next_back();
            let begin = begin.map_or(0, |(&first, _)| first);
            for number in stream.segments.range(begin..).map(|(_, number)| number) {
                let segment = self.segments.get(number);
                if let Some(extent) = segment.and_then(|segment| segment.index.extent(id)) {
                    bytes += extent.bytes - extent.before(from).min(extent.bytes);
                }
            }
        }
        bytes
    }

    /// Counts the kept records of a stream again.
    fn recount(&mut self, id: u32) {
        let stream = &self.streams[id];
        let held = stream.segments.values().filter_map(|number| {
            let extent = self.segments.get(number)?.index.extent(id)?;
            Some(extent.bytes - extent.before(stream.trimmed))
        });
        let held: u64 = held.sum();
        let before = std::mem::replace(&mut self.streams[id].held, held);
        // If an index has become coarser meanwhile, more records count as kept than before.
        self.freed
            .push((id, before.cast_signed() - held.cast_signed()));
    }

    /// Bytes of streams that are not kept any more, since this was asked last.
    pub(crate) fn take_freed(&mut self) -> Vec<(u32, i64)> {
        std::mem::take(&mut self.freed)
    }

    /// Where to begin to read a stream forward from one of its positions: the segment, and the
    /// entry at or before the position.
    pub(crate) fn entry(&self, stream: u32, position: u64) -> Option<(u64, Entry)> {
        let (_, &number) = self
            .streams
            .get(stream)?
            .segments
            .range(..=position)
            .next_back()?;
        let extent = self.segments.get(&number)?.index.extent(stream)?;
        let after = extent
            .entries
            .partition_point(|entry| entry.first <= position);
        Some((number, *extent.entries.get(after.checked_sub(1)?)?))
    }

    /// The next segment after this one that holds records of the stream, and the first entry in it.
    pub(crate) fn entry_after(&self, stream: u32, segment: u64) -> Option<(u64, Entry)> {
        let later = self.segments.range(segment + 1..);
        later.into_iter().find_map(|(&number, segment)| {
            let extent = segment.index.extent(stream)?;
            Some((number, *extent.entries.first()?))
        })
    }

    /// The last place of a stream before the first record at or after a time: the segment and the
    /// entry; `None` if the stream is empty.
    pub(crate) fn before_time(&self, stream: u32, time_us: u64) -> Option<(u64, Entry)> {
        let mut found = None;
        for number in self.streams.get(stream)?.segments.values() {
            let extent = self.segments.get(number)?.index.extent(stream)?;
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

/// The entries that a written batch adds to the catalog when it is committed.
#[derive(Debug, Default)]
pub(crate) struct BatchNotes {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) newest_us: u64,
    pub(crate) lived_us: u64,
    pub(crate) notes: Vec<Note>,
    pub(crate) turns: Vec<Turn>,
}
