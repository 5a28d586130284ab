//! The contents of a log, in the order in which they were written.

use std::io;
use std::ops::ControlFlow::{self, Break, Continue};

use super::inside;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    ALIGN, BatchHeader, Fault, Flags, Missing, RunView, SEGMENT_HEADER, SegmentHeader, is_batch,
    segment_name, u64_at,
};
use crate::recovery::{
    Bytes, Window, batch_at, refuse_later, refuse_later_file, seek_batch, segments,
};
use crate::state::State;
use crate::{Damage, OpenError, StreamSettings};

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
        /// The number of the segment's first batch.
        first_batch: u64,
    },
    /// A batch begins.
    Batch {
        /// The place of the batch in the file.
        offset: u64,
        /// Number of the batch.
        number: u64,
        /// Length of the batch in bytes.
        length: u32,
        /// The last batch that was known to be durable when it was written.
        durable_through: u64,
        /// When the batch was written: microseconds since the Unix epoch.
        written_us: u64,
        /// How many records the batch has.
        records: u32,
        /// Whether this is the last batch of a log that was closed in order.
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
        /// The time at which the records were received: microseconds since the Unix epoch.
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
        /// Number of the stream.
        id: u32,
        /// Name of the stream.
        name: &'a str,
    },
    /// A producer has this name from here on.
    Producer {
        /// Number of the producer.
        id: u32,
        /// The number of the producer's stream.
        stream: u32,
        /// Name of the producer.
        name: &'a str,
    },
    /// A cursor was set.
    Cursor {
        /// The number of the cursor's stream.
        stream: u32,
        /// Name of the cursor.
        name: &'a str,
        /// The position of the cursor.
        position: u64,
    },
    /// The whole state after the batch was saved here.
    Checkpoint {
        /// The streams: name and next position, by number.
        streams: Vec<(String, u64)>,
        /// How many producers have a mark.
        producers: usize,
        /// Length of the checkpoint in bytes.
        length: usize,
    },
    /// The batches from the gap's own number up to this one are lost, as a repair found.
    Missing {
        /// The last batch that is lost.
        through: u64,
        /// The positions that are known to be lost with them: stream, first position, position
        /// after the last.
        positions: Vec<(u32, u64, u64)>,
    },
    /// A stream has this name and these settings from here on.
    Settings {
        /// Number of the stream.
        id: u32,
        /// Name of the stream.
        name: &'a str,
        /// The new settings.
        settings: StreamSettings,
    },
    /// A stream is deleted from here on.
    Deleted {
        /// Number of the stream.
        id: u32,
    },
    /// Records of a stream are kept from a position on.
    Trimmed {
        /// The number of the stream.
        stream: u32,
        /// The first position that is kept.
        position: u64,
    },
    /// Bytes that differ from the bytes that were written. The dump goes on with the next whole
    /// batch of the file.
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
    let _ = refuse_later(disk)?;
    let numbers =
        segments(disk).map_err(|error| OpenError::io("listing the log's directory", error))?;
    for (index, &number) in numbers.iter().enumerate() {
        if numbers
            .get(index + 1)
            .is_some_and(|&next| next <= from_batch)
        {
            continue;
        }
        let file = segment_name(number);
        let shown = Window::open(disk, &file)
            .and_then(|mut bytes| segment(&mut bytes, &file, number, from_batch, &mut show));
        match shown {
            Ok(Continue(())) => {}
            Ok(Break(())) => return Ok(()),
            // The log is written, and retention has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(OpenError::io(format!("reading {file}"), error)),
        }
    }
    Ok(())
}

/// Shows everything in one file, which may be one that a repair or an opening has kept (`.cut`,
/// `.tail`): whatever is whole in it, and where something is not.
///
/// # Errors
/// [`OpenError::Io`]; damage is an [`Item::Problem`].
pub fn dump_file<D: Disk>(
    disk: &D,
    file: &str,
    mut show: impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    refuse_later_file(disk, file)?;
    let mut shown = || {
        let mut bytes = Window::open(disk, file)?;
        let digits = file.get(..20).and_then(|digits| digits.parse().ok());
        let number = match digits {
            Some(number) => number,
            None => {
                let header = bytes.get(0, SEGMENT_HEADER)?;
                header.get(24..32).map_or(0, |number| u64_at(number, 0))
            }
        };
        segment(&mut bytes, file, number, 0, &mut show)
    };
    match shown() {
        Ok(_broken_off) => Ok(()),
        Err(error) => Err(OpenError::io(format!("reading {file}"), error)),
    }
}

/// Shows a segment, or a part of one without its header; behind a bad batch the dump goes on with
/// the next whole one.
fn segment<F: DiskFile>(
    bytes: &mut Window<F>,
    file: &str,
    number: u64,
    from_batch: u64,
    show: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let mut next = number;
    let problem = |fault: Fault, batch: u64| {
        Item::Problem(Damage {
            file: file.to_owned(),
            offset: fault.offset,
            batch,
            expected: fault.expected,
            found: fault.found,
        })
    };
    let mut offset = SEGMENT_HEADER as u64;
    let header = bytes.get(0, SEGMENT_HEADER)?;
    let flow = match SegmentHeader::decode(header, number) {
        Ok(header) => show(Item::Segment {
            file,
            log: header.log,
            first_batch: number,
        }),
        // A tail that was cut off begins with a batch.
        Err(_) if is_batch(header) => {
            offset = 0;
            Continue(())
        }
        Err(fault) => show(problem(fault, next)),
    };
    if flow.is_break() {
        return Ok(flow);
    }
    let mut is_bad = false;
    loop {
        let rest = batch_at(bytes, offset, number)?;
        if rest.is_empty() {
            return Ok(Continue(()));
        }
        let whole = BatchHeader::decode(rest, offset, number)
            .and_then(|batch| batch.verify(rest, offset).map(|()| batch));
        match whole {
            Ok(batch) => {
                if batch.number >= from_batch {
                    let flow = match runs(&batch, rest, offset, show) {
                        Continue(Ok(())) => Continue(()),
                        Continue(Err(fault)) => show(problem(fault, batch.number)),
                        Break(()) => Break(()),
                    };
                    if flow.is_break() {
                        return Ok(flow);
                    }
                }
                is_bad = false;
                next = batch.number + 1;
                offset += u64::from(batch.length);
            }
            Err(_) if bytes.is_zero(offset)? => return Ok(Continue(())),
            Err(fault) => {
                if !std::mem::replace(&mut is_bad, true) && show(problem(fault, next)).is_break() {
                    return Ok(Break(()));
                }
                match seek_batch(bytes, offset + ALIGN as u64)? {
                    Some(at) => offset = at,
                    None => return Ok(Continue(())),
                }
            }
        }
    }
}

fn runs(
    batch: &BatchHeader,
    rest: &[u8],
    offset: u64,
    show: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> ControlFlow<(), Result<(), Fault>> {
    let item = Item::Batch {
        offset,
        number: batch.number,
        length: batch.length,
        durable_through: batch.durable_through,
        written_us: batch.written_us,
        records: batch.records,
        closing: batch.flags.has(Flags::CLOSING),
    };
    show(item)?;
    let shown = batch.runs(rest, offset).map(|mut runs| {
        runs.try_for_each(
            |run| match run.and_then(|(offset, run)| shown(&run, offset, show)) {
                Ok(flow) => flow.map_break(|()| None),
                Err(fault) => ControlFlow::Break(Some(fault)),
            },
        )
    });
    match shown {
        Err(fault) | Ok(ControlFlow::Break(Some(fault))) => ControlFlow::Continue(Err(fault)),
        Ok(ControlFlow::Break(None)) => ControlFlow::Break(()),
        Ok(ControlFlow::Continue(())) => ControlFlow::Continue(Ok(())),
    }
}

fn shown(
    run: &RunView<'_>,
    offset: u64,
    show: &mut impl FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Fault> {
    let RunView::Records(run) = *run else {
        return Ok(show(item_of(run, offset)?));
    };
    let frames = inside::frames(&run, offset)?;
    let run = RunView::Records(run.with(&frames));
    Ok(show(item_of(&run, offset)?))
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
        RunView::Checkpoint { bytes, form, .. } => {
            let state = State::decode(bytes, form)
                .ok_or_else(|| Fault::new(offset, "a checkpoint", "one that makes no sense"))?;
            let streams = state.streams.values();
            Item::Checkpoint {
                streams: streams
                    .map(|stream| (stream.name.to_string(), stream.next))
                    .collect(),
                producers: state.producers(),
                length: bytes.len(),
            }
        }
        RunView::StreamSet {
            id, settings, name, ..
        } => Item::Settings { id, name, settings },
        RunView::Deleted { id, .. } => Item::Deleted { id },
        RunView::Trimmed {
            stream, position, ..
        } => Item::Trimmed { stream, position },
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
