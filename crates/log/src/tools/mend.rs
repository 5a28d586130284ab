//! A damaged batch without the runs of records that are damaged in it.
//!
//! The one idea: the checksum of a batch's body covers everything but the frames of its records, and each run of
//! records has a checksum of its own. So if the body's checksum is valid, only two things can be damaged: frames of
//! runs whose positions are known, and the batch's header. Such a batch keeps its place, its names and its checkpoint;
//! its damaged runs become missing positions.

use std::io;

use super::inside;
use crate::format::{
    ALIGN, BATCH_HEADER, BATCH_HEADER_BEFORE, BatchHeader, Fault, Flags, Missing, RunView, Runs,
    body_crc_of, padding, put_missing, restored,
};

/// A piece of a batch that is written.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// Bytes copied unchanged from a segment.
    Copy {
        segment: u64,
        from: u64,
        to: u64,
    },
}

/// Adds a copy of these bytes of a segment.
pub(super) fn add_copy(parts: &mut Vec<Part>, segment: u64, from: u64, to: u64) {
    match parts.last_mut() {
        Some(Part::Copy {
            segment: before,
            to: end,
            ..
        }) if *before == segment && *end == from => *end = to,
        _ => parts.push(Part::Copy { segment, from, to }),
    }
}

/// All bytes of these parts.
///
/// # Errors
/// The error of `read`.
pub(super) fn assemble(
    parts: &[Part],
    mut read: impl FnMut(u64, u64, u64) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for part in parts {
        match *part {
            Part::Bytes(ref part) => bytes.extend_from_slice(part),
            Part::Copy { segment, from, to } => bytes.extend(read(segment, from, to)?),
        }
    }
    Ok(bytes)
}

/// A batch that is written in the place of a damaged one.
#[derive(Debug)]
pub(super) struct Mended {
    pub(super) header: BatchHeader,
    pub(super) parts: Vec<Part>,
    /// Where the damaged one ends in its segment.
    pub(super) end: u64,
    /// The first fault that was found.
    pub(super) fault: Fault,
    /// The positions of the runs that are left out.
    pub(super) missing: Vec<Missing>,
}

/// The known properties of a batch whose header is damaged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) log: u64,
    pub(super) number: u64,
    pub(super) epoch: u32,
    pub(super) lived_us: u64,
}

/// The batch at the start of `rest`, at `offset` of a segment, without its damaged parts; with its bytes. If its header
/// is damaged, the batch must be the one described by `known`. `None` if the batch is whole, or if its body is not
/// proven.
pub(super) fn mend(
    rest: &[u8],
    offset: u64,
    segment: u64,
    known: Option<Known>,
    fault: &Fault,
) -> Option<(Mended, Vec<u8>)> {
    let (mut header, runs, is_harmed) = match BatchHeader::decode(rest, offset, segment) {
        Ok(header) => {
            let (runs, is_padded) = proven(&header, rest, offset)?;
            (header, runs, !is_padded)
        }
        Err(_) => {
            let known = known?;
            let restored =
                restored(rest).map(|header| BatchHeader::decode(&header, offset, segment));
            let (header, runs) = match restored {
                // The file's first bytes alone are damaged.
                Some(Ok(header)) if header.log == known.log => {
                    (header, proven(&header, rest, offset)?.0)
                }
                // The file is of another segment, or of another log.
                Some(_) => return None,
                None => proven_without_header(rest, offset, segment, known)?,
            };
            (header, runs, true)
        }
    };
    let mut body = Body {
        segment,
        header: &mut header,
        parts: Vec::new(),
        bytes: vec![0; BATCH_HEADER],
        missing: Vec::new(),
    };
    body.fill(&runs, rest, offset);
    let Body {
        mut parts,
        mut bytes,
        missing,
        ..
    } = body;
    if !is_harmed && missing.is_empty() {
        // The batch has another fault.
        return None;
    }
    let end = offset + u64::from(header.length);
    let pad = padding(bytes.len());
    parts.push(Part::Bytes(vec![0; pad]));
    bytes.resize(bytes.len() + pad, 0);
    header.header = BATCH_HEADER;
    header.length = u32::try_from(bytes.len()).ok()?;
    let encoded = header.encode();
    bytes[..BATCH_HEADER].copy_from_slice(&encoded);
    parts.insert(0, Part::Bytes(encoded.to_vec()));
    let fault = fault.clone();
    let mended = Mended {
        header,
        parts,
        end,
        fault,
        missing,
    };
    Some((mended, bytes))
}

/// The runs of a batch, each with its offset.
type Placed<'a> = Vec<(u64, RunView<'a>)>;

/// The runs of a batch if its header is whole and the checksum of the body holds; and whether zeros follow as they must.
fn proven<'a>(header: &BatchHeader, rest: &'a [u8], offset: u64) -> Option<(Placed<'a>, bool)> {
    let mut crc = 0;
    let mut iter = header.runs(rest, offset).ok()?;
    let mut runs = Vec::new();
    for run in &mut iter {
        let (at, run) = run.ok()?;
        crc = crc32c::crc32c_append(crc, run.covered());
        runs.push((at, run));
    }
    let is_padded = iter.verify_padding().is_ok();
    (crc == header.body_crc).then_some((runs, is_padded))
}

/// The runs of a batch whose header is damaged, but for the checksum of the body: that holds for so many runs as there
/// were.
fn proven_without_header(
    rest: &[u8],
    offset: u64,
    segment: u64,
    known: Known,
) -> Option<(BatchHeader, Placed<'_>)> {
    let body_crc = body_crc_of(rest);
    [BATCH_HEADER, BATCH_HEADER_BEFORE]
        .into_iter()
        .find_map(|length| {
            let body = rest.get(length..)?;
            let runs = Runs::new(body, offset + length as u64, u32::MAX);
            let mut runs = runs.map_while(Result::ok).collect::<Vec<_>>();
            let mut crc = 0;
            let last = runs.iter().position(|(_, run)| {
                crc = crc32c::crc32c_append(crc, run.covered());
                crc == body_crc
            })?;
            runs.truncate(last + 1);
            let (at, run) = &runs[last];
            let end = at + run.length() as u64;
            let aligned = end.next_multiple_of(ALIGN as u64);
            let has = |is: fn(&RunView<'_>) -> bool| runs.iter().any(|(_, run)| is(run));
            let mut flags = Flags::default();
            if has(|run| matches!(run, RunView::Checkpoint { .. })) {
                flags = Flags(flags.0 | Flags::CHECKPOINT.0);
            }
            if has(|run| matches!(run, RunView::Missing { .. })) {
                flags = Flags(flags.0 | Flags::GAP.0);
            }
            let header = BatchHeader {
                header: length,
                log: known.log,
                segment,
                number: known.number,
                // The batch's claim is lost with its header.
                durable_through: 0,
                written_us: 0,
                length: u32::try_from(aligned - offset).ok()?,
                runs: 0,
                records: 0,
                body_crc,
                flags,
                epoch: known.epoch,
                lived_us: known.lived_us,
            };
            Some((header, runs))
        })
}

/// The body of a batch that is written.
struct Body<'a> {
    segment: u64,
    header: &'a mut BatchHeader,
    parts: Vec<Part>,
    bytes: Vec<u8>,
    missing: Vec<Missing>,
}

impl Body<'_> {
    /// Takes these runs of the batch that begins `rest`, at `offset`, but for records that are damaged.
    fn fill(&mut self, runs: &[(u64, RunView<'_>)], rest: &[u8], offset: u64) {
        let through = runs.iter().find_map(|(_, run)| match run {
            RunView::Missing { bytes, .. } => Missing::decode(bytes).map(|(through, _)| through),
            _ => None,
        });
        let through = through.unwrap_or(self.header.number);
        let header = &mut *self.header;
        (header.runs, header.records, header.body_crc) = (0, 0, 0);
        for (at, run) in runs {
            let damaged = match run {
                RunView::Records(records) if !inside::is_whole(records, *at) => Some(Missing {
                    stream: records.stream,
                    first: records.first,
                    next: records.first.saturating_add(records.count.into()),
                }),
                _ => None,
            };
            let header = &mut *self.header;
            header.runs += 1;
            if let Some(missing) = damaged {
                header.flags = Flags(header.flags.0 | Flags::GAP.0);
                let mut run = Vec::new();
                put_missing(&mut run, through, &[missing]);
                header.body_crc = crc32c::crc32c_append(header.body_crc, &run);
                self.bytes.extend_from_slice(&run);
                self.parts.push(Part::Bytes(run));
                self.missing.push(missing);
                continue;
            }
            if let RunView::Records(records) = run {
                header.records += records.count;
            }
            header.body_crc = crc32c::crc32c_append(header.body_crc, run.covered());
            let (from, to) = (*at, at + run.length() as u64);
            let whole = &rest[(from - offset) as usize..(to - offset) as usize];
            self.bytes.extend_from_slice(whole);
            add_copy(&mut self.parts, self.segment, from, to);
        }
    }
}
