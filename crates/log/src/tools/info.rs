//! What is in a log.

use crate::catalog::Catalog;
use crate::disk::Disk;
use crate::format::segment_name;
use crate::recovery::{Manner, load};
use crate::{Damage, OpenError, Verify};

/// What is in a log.
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
    /// The numbers of its batches: from the first to before the second.
    pub batches: (u64, u64),
    /// Bytes in use.
    pub bytes: u64,
    /// Its highest timestamp: microseconds since the Unix epoch.
    pub newest_us: u64,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// The oldest position kept.
    pub first: u64,
    /// The position after the last one.
    pub next: u64,
    /// When its last record was received: microseconds since the Unix epoch; 0 if it has none.
    pub newest_us: u64,
}

/// A named cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorInfo {
    /// The stream's name.
    pub stream: String,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub position: u64,
}

/// Reads everything and tells what is there.
///
/// # Errors
/// [`OpenError::Io`]; damage is told in [`Info::problem`].
pub fn info<D: Disk>(disk: &D) -> Result<Info, OpenError> {
    let loaded = load(disk, Verify::All, Manner::Lenient)?;
    let mut catalog = Catalog::default();
    for stream in &loaded.state.streams {
        catalog.add_stream(stream.name.clone(), stream.next);
    }
    let mut segments = Vec::new();
    for found in loaded.segments {
        segments.push(SegmentInfo {
            file: segment_name(found.number),
            batches: (found.number, found.next_batch),
            bytes: found.view.used,
            newest_us: found.view.newest_us,
        });
        catalog.add_segment(found.number, found.view);
    }
    let streams = loaded
        .state
        .streams
        .iter()
        .zip(&catalog.streams)
        .map(|(stream, view)| {
            let range = view.range();
            StreamInfo {
                name: stream.name.to_string(),
                first: range.first,
                next: range.next,
                newest_us: stream.newest_us,
            }
        });
    let cursors = loaded
        .state
        .cursors()
        .map(|(stream, name, position)| CursorInfo {
            stream: stream.to_owned(),
            name: name.to_owned(),
            position,
        });
    Ok(Info {
        log: loaded.log,
        segments,
        streams: streams.collect(),
        producers: loaded.state.producers(),
        cursors: cursors.collect(),
        batches: loaded.batches,
        records: loaded.records,
        durable_through: loaded.claims.through,
        problem: loaded.fault,
    })
}
