//! Everything in a log, in the order in which it was written.

use std::io;
use std::ops::ControlFlow;

use crate::disk::Disk;
use crate::format::{
    BatchHeader, Fault, Flags, Missing, RunView, SEGMENT_HEADER, SegmentHeader, segment_name,
};
use crate::recovery::{contents, segments};
use crate::state::State;
use crate::{Damage, OpenError};

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A segment begins.
    Segment {
        /// The name of the file.
        file: &'a str,
        /// The random number of the log.
        log: u64,
        /// The number of its first batch.
        first_batch: u64,
    },
    /// A batch begins.
    Batch {
        /// Where it is in the file.
        offset: u64,
        /// Its number.
        number: u64,
        /// Its length in bytes.
        length: u32,
        /// The last batch that was known to be durable when it was written.
        durable_through: u64,
        /// When it was written: microseconds since the Unix epoch.
        written_us: u64,
        /// How many records are in it.
        records: u32,
        /// Whether it is the last one of a log that was closed in order.
        closing: bool,
    },
    /// Records of one producer.
    Records {
        /// Where the run is in the file.
        offset: u64,
        /// The stream's number.
        stream: u32,
        /// The producer's number; 0 is anonymous.
        producer: u32,
        /// When they were received: microseconds since the Unix epoch.
        timestamp_us: u64,
        /// The position of the first one.
        first: u64,
        /// How many there are.
        count: u32,
        /// The records, in the form of [`Run::frames`](crate::Run::frames).
        frames: &'a [u8],
    },
    /// A stream has this name from here on.
    Stream {
        /// Its number.
        id: u32,
        /// Its name.
        name: &'a str,
    },
    /// A producer has this name from here on.
    Producer {
        /// Its number.
        id: u32,
        /// The number of its stream.
        stream: u32,
        /// Its name.
        name: &'a str,
    },
    /// A cursor was set.
    Cursor {
        /// The number of its stream.
        stream: u32,
        /// Its name.
        name: &'a str,
        /// Where it stands.
        position: u64,
    },
    /// Everything that is known after the batch was written down.
    Checkpoint {
        /// The streams: name and next position, by number.
        streams: Vec<(String, u64)>,
        /// How many producers have a mark.
        producers: usize,
        /// Its length in bytes.
        length: usize,
    },
    /// Batches from the one it is in up to this one are lost, as a repair found.
    Missing {
        /// The last batch that is lost.
        through: u64,
        /// What is known to be lost with them: stream, first position, position after the last.
        positions: Vec<(u32, u64, u64)>,
    },
    /// Not what was written. The rest of the segment is not shown.
    Problem(Damage),
}

/// Shows everything from a batch on, until `show` breaks off.
///
/// # Errors
/// [`OpenError::Io`]; damage is an [`Item::Problem`].
pub fn dump<D: Disk>(
    disk: &D,
    from_batch: u64,
    mut show: impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    let numbers =
        segments(disk).map_err(|error| OpenError::io("listing the log's directory", error))?;
    let mut bytes = Vec::new();
    for (index, &number) in numbers.iter().enumerate() {
        if numbers
            .get(index + 1)
            .is_some_and(|&next| next <= from_batch)
        {
            continue;
        }
        let file = segment_name(number);
        match contents(disk, &file, &mut bytes) {
            // The log is written, and retention has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => read.map_err(|error| OpenError::io(format!("reading {file}"), error))?,
        }
        let mut next = number;
        match segment(&bytes, number, from_batch, &mut next, &mut show) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            Err(Fault {
                offset,
                expected,
                found,
            }) => {
                let damage = Damage {
                    file,
                    offset,
                    batch: next,
                    expected,
                    found,
                };
                if show(Item::Problem(damage)).is_break() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn segment(
    bytes: &[u8],
    number: u64,
    from_batch: u64,
    next: &mut u64,
    show: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Fault> {
    let header = SegmentHeader::decode(bytes, number)?;
    let file = segment_name(number);
    if show(Item::Segment {
        file: &file,
        log: header.log,
        first_batch: number,
    })
    .is_break()
    {
        return Ok(ControlFlow::Break(()));
    }
    let mut offset = SEGMENT_HEADER;
    while let Some(rest) = bytes
        .get(offset..)
        .filter(|rest| rest.iter().any(|&byte| byte != 0))
    {
        let batch = BatchHeader::decode(rest, offset as u64, number)?;
        batch.verify(rest, offset as u64)?;
        if batch.number >= from_batch && runs(&batch, rest, offset as u64, show)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        *next = batch.number + 1;
        offset += batch.length as usize;
    }
    Ok(ControlFlow::Continue(()))
}

fn runs(
    batch: &BatchHeader,
    rest: &[u8],
    offset: u64,
    show: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Fault> {
    let item = Item::Batch {
        offset,
        number: batch.number,
        length: batch.length,
        durable_through: batch.durable_through,
        written_us: batch.written_us,
        records: batch.records,
        closing: batch.flags.has(Flags::CLOSING),
    };
    if show(item).is_break() {
        return Ok(ControlFlow::Break(()));
    }
    for run in batch.runs(rest, offset)? {
        let (offset, run) = run?;
        if show(item_of(&run, offset)?).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

fn item_of<'a>(run: &RunView<'a>, offset: u64) -> Result<Item<'a>, Fault> {
    Ok(match *run {
        RunView::Records(run) => Item::Records {
            offset,
            stream: run.stream,
            producer: run.producer,
            timestamp_us: run.timestamp_us,
            first: run.first,
            count: run.count,
            frames: run.frames,
        },
        RunView::Stream { id, name, .. } => Item::Stream { id, name },
        RunView::Producer {
            id, stream, name, ..
        } => Item::Producer { id, stream, name },
        RunView::Cursor {
            stream,
            position,
            name,
            ..
        } => Item::Cursor {
            stream,
            name,
            position,
        },
        RunView::Checkpoint { bytes, before, .. } => {
            let state = State::decode(bytes, before)
                .ok_or_else(|| Fault::new(offset, "a checkpoint", "one that makes no sense"))?;
            let streams = state.streams.iter();
            Item::Checkpoint {
                streams: streams
                    .map(|stream| (stream.name.to_string(), stream.next))
                    .collect(),
                producers: state.producers(),
                length: bytes.len(),
            }
        }
        RunView::Missing { bytes, .. } => {
            let (through, lost) = Missing::decode(bytes)
                .ok_or_else(|| Fault::new(offset, "a gap", "one that makes no sense"))?;
            Item::Missing {
                through,
                positions: lost
                    .into_iter()
                    .map(|lost| (lost.stream, lost.first, lost.next))
                    .collect(),
            }
        }
    })
}
