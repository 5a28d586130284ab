//! A summary of a log.

use super::described::{CursorInfo, StreamInfo};
use crate::catalog::Pins;
use crate::disk::Disk;
use crate::format::segment_name;
use crate::recovery::{Loaded, Manner, load};
use crate::view::steady;
use crate::{Damage, OpenError, Verify};

/// A summary of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// The random number of the log; `None` if nothing was ever written.
    pub log: Option<u64>,
    /// The segments, the oldest first; up to the first problem.
    pub segments: Vec<SegmentInfo>,
    /// The streams, by number.
    pub streams: Vec<StreamInfo>,
    /// How many producers have a mark.
    pub producers: usize,
    /// The named cursors.
    pub cursors: Vec<CursorInfo>,
    /// Kept records that damage has destroyed: stream, first position, position after the last. A repair has marked
    /// them. A repair has marked it.
    pub lost: Vec<(String, u64, u64)>,
    /// How many batches there are.
    pub batches: u64,
    /// How many records there are.
    pub records: u64,
    /// The last batch that another one says was durable.
    pub durable_through: u64,
    /// Where the good part ends, if anything but zeros follows: a torn tail if its batch is above
    /// `durable_through`, damage otherwise.
    pub problem: Option<Damage>,
}

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// The name of the file.
    pub file: String,
    /// The numbers of the segment's batches: from the first to before the second.
    pub batches: (u64, u64),
    /// Bytes in use.
    pub bytes: u64,
    /// Highest timestamp of the segment: microseconds since the Unix epoch.
    pub newest_us: u64,
}

/// Reads the whole log and describes it. The log may be written meanwhile.
///
/// # Errors
/// [`OpenError::Io`]; damage is told in [`Info::problem`].
pub fn info<D: Disk>(disk: &D) -> Result<Info, OpenError> {
    let loaded = steady(|| load(disk, Verify::All, Manner::Lenient))?;
    let segments = loaded.segments.iter().map(|found| SegmentInfo {
        file: segment_name(found.number),
        batches: (found.number, found.next_batch),
        bytes: found.view.used,
        newest_us: found.view.newest_us,
    });
    Ok(Info {
        log: loaded.log,
        segments: segments.collect(),
        streams: loaded.streams(),
        producers: loaded.state.producers(),
        cursors: loaded.cursors(),
        lost: loaded.lost(),
        batches: loaded.batches,
        records: loaded.records,
        durable_through: loaded.claims.through,
        problem: loaded.fault,
    })
}

impl<F> Loaded<F> {
    /// The streams, by number.
    pub(crate) fn streams(&self) -> Vec<StreamInfo> {
        let firsts = |id: u32| {
            let firsts = self.segments.iter().flat_map(move |found| {
                let extent = found.view.index.extent(id);
                let gaps = found.view.gaps.iter().filter(move |gap| gap.stream == id);
                let record = extent.map(|extent| extent.first);
                record.into_iter().chain(gaps.map(|gap| gap.first))
            });
            firsts.min()
        };
        let kept = |id: u32, trimmed: u64| {
            let extents = self.segments.iter().filter_map(move |found| {
                let extent = found.view.index.extent(id)?;
                Some((found.number, extent))
            });
            extents.filter(move |(_, extent)| extent.next > trimmed)
        };
        let streams = || self.state.streams.iter();
        let oldest = streams().filter_map(|(id, stream)| {
            let (number, _) = kept(id, stream.trimmed).next()?;
            Some((id, number))
        });
        let segments = self.segments.iter();
        let pins = Pins::of_streams(
            oldest,
            segments.map(|found| (found.number, found.view.used)),
        );
        let bytes = |id: u32, trimmed: u64| -> u64 {
            let kept = kept(id, trimmed);
            kept.map(|(_, extent)| extent.bytes - extent.before(trimmed))
                .sum()
        };
        let info = streams().map(|(id, stream)| StreamInfo {
            bytes: bytes(id, stream.trimmed),
            pins: pins.of(id),
            name: stream.name.to_string(),
            first: firsts(id).unwrap_or(stream.next).max(stream.trimmed),
            next: stream.next,
            newest_us: stream.newest_us,
            settings: stream.settings,
        });
        info.collect()
    }

    /// The positions that were lost in damage and would still be kept, in the order of the log.
    fn lost(&self) -> Vec<(String, u64, u64)> {
        let gaps = self.segments.iter().flat_map(|found| &found.view.gaps);
        let lost = gaps.filter_map(|gap| {
            let stream = self.state.streams.get(gap.stream)?;
            let first = gap.first.max(stream.trimmed);
            (first < gap.next).then(|| (stream.name.to_string(), first, gap.next))
        });
        lost.collect()
    }

    /// The named cursors.
    pub(crate) fn cursors(&self) -> Vec<CursorInfo> {
        let cursors = self.state.cursors();
        let info = cursors.map(|(stream, name, position)| CursorInfo {
            stream: stream.to_owned(),
            name: name.to_owned(),
            position,
        });
        info.collect()
    }
}
