//! Every record that can be found in one file, even in damaged batches.
//!
//! The one idea: people judge what a repair could not keep. Runs with a valid checksum hold records as they were
//! written; other runs are shown as far as they can be read, and marked as damaged.

use std::io;
use std::ops::ControlFlow;

use super::inside;
use super::rescue::{Batches, search};
use super::salvage::{HEADS_MAX, first_log};
use crate::OpenError;
use crate::disk::{Disk, DiskFile};
use crate::format::{RECORDS_HEADER, Records, SEGMENT_HEADER, SegmentHeader, is_batch, u64_at};
use crate::recovery::{Bytes, Window, refuse_later_file};

/// Records of one producer, as they were found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extracted {
    /// Where the run is in the file.
    pub offset: u64,
    /// The stream's number.
    pub stream: u32,
    /// The producer's number; 0 is anonymous.
    pub producer: u32,
    /// The time at which the records were received: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// The position of the first one.
    pub first: u64,
    /// How many there were.
    pub count: u32,
    /// The records, in the form of [`Run::frames`](crate::Run::frames); for a damaged run, all its bytes.
    pub frames: Vec<u8>,
    /// The records' checksum does not hold: anything of this may be wrong.
    pub is_damaged: bool,
}

/// Shows all records in one file, a segment or what a repair or an opening has kept (`.cut`, `.tail`), until `show` breaks
/// off.
///
/// # Errors
/// [`OpenError::Later`] if a later version has written it; what the system says.
pub fn extract<D: Disk>(
    disk: &D,
    file: &str,
    mut show: impl FnMut(Extracted) -> ControlFlow<()>,
) -> Result<(), OpenError> {
    refuse_later_file(disk, file)?;
    let extracted = Window::open(disk, file).and_then(|mut bytes| all(&mut bytes, file, &mut show));
    match extracted {
        Ok(_broken_off) => Ok(()),
        Err(error) => Err(OpenError::io(format!("reading {file}"), error)),
    }
}

fn all<F: DiskFile>(
    bytes: &mut Window<F>,
    file: &str,
    show: &mut impl FnMut(Extracted) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let header = bytes.get(0, SEGMENT_HEADER)?;
    let said = header.get(24..32).map_or(0, |number| u64_at(number, 0));
    let named = file.get(..20).and_then(|digits| digits.parse().ok());
    let segment = named.unwrap_or(said);
    let whole = SegmentHeader::decode(header, segment);
    // A tail that was cut off begins with a batch.
    let mut from = if is_batch(header) {
        0
    } else {
        SEGMENT_HEADER as u64
    };
    let log = match whole {
        Ok(header) => header.log,
        Err(_) => first_log(bytes, from, segment)?.unwrap_or(0),
    };
    let batches = Batches {
        log,
        segment,
        first: 0,
        epoch: 0,
    };
    let to = bytes.significant(from)?;
    while from < to {
        let length = usize::try_from(to - from).unwrap_or(HEADS_MAX);
        let piece = bytes.get(from, length.min(HEADS_MAX))?;
        if piece.is_empty() {
            break;
        }
        let (found, harmed) = search(piece, from, batches);
        let is_last = from + piece.len() as u64 >= to;
        let next = match found.last() {
            Some(last) if !is_last => last.to,
            _ => from + piece.len() as u64,
        };
        let at = |offset: u64| (offset - from) as usize;
        let found = found.iter().map(|run| (run.from, run.to, false));
        let harmed = harmed.into_iter().map(|(from, to)| (from, to, true));
        let mut runs = found
            .chain(harmed)
            .filter(|run| run.0 < next)
            .collect::<Vec<_>>();
        runs.sort_unstable();
        let runs = runs.into_iter();
        let runs = runs.filter_map(|(from, to, is_damaged)| {
            extracted(piece.get(at(from)..at(to))?, from, is_damaged)
        });
        for run in runs {
            if show(run).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        from = next;
    }
    Ok(ControlFlow::Continue(()))
}

/// The run in `whole`, with its prefix.
fn extracted(whole: &[u8], offset: u64, is_damaged: bool) -> Option<Extracted> {
    let (records, _) = Records::decode(whole)?;
    let records = records.with(whole.get(RECORDS_HEADER..)?);
    let frames = inside::frames(&records, offset);
    Some(Extracted {
        offset,
        stream: records.stream,
        producer: records.producer,
        timestamp_us: records.timestamp_us,
        first: records.first,
        count: records.count,
        frames: frames.map_or_else(|_| Vec::new(), |frames| frames.into_owned()),
        is_damaged,
    })
}
