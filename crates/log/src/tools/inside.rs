//! The contents of the runs of a batch: a valid checksum alone does not say that the bytes make
//! sense.

use std::borrow::Cow;

use crate::Compression;
use crate::format::{BatchHeader, FRAME_HEADER, Fault, Records, RunView, u32_at};
use crate::pack::{UNPACKED_MAX, unpack};

/// Whether all records of a batch, which was verified, can be read: compressed ones are unpacked,
/// and there are as many, from end to end, as their runs say.
pub(super) fn look(batch: &BatchHeader, rest: &[u8], offset: u64) -> Result<(), Fault> {
    for run in batch.runs(rest, offset)? {
        let (at, run) = run?;
        if let RunView::Records(run) = run {
            readable(&run, at)?;
        }
    }
    Ok(())
}

/// Whether a run of records, at `offset`, is as it was written, and can be read to its end.
pub(super) fn is_whole(run: &Records<'_>, offset: u64) -> bool {
    run.verify(run.frames, offset).is_ok() && readable(run, offset).is_ok()
}

fn readable(run: &Records<'_>, offset: u64) -> Result<(), Fault> {
    let frames = frames(run, offset)?;
    if are(run.count, &frames) {
        return Ok(());
    }
    let expected = format!("{} whole records in the run", run.count);
    Err(Fault::new(offset, expected, "lengths that do not fit"))
}

/// The records of a run at `offset` as they came.
pub(super) fn frames<'a>(run: &Records<'a>, offset: u64) -> Result<Cow<'a, [u8]>, Fault> {
    if run.compression == Compression::None {
        return Ok(Cow::Borrowed(run.frames));
    }
    let frames = unpack(run.compression, run.frames, UNPACKED_MAX);
    frames.map(Cow::Owned).ok_or_else(|| {
        let expected = format!("records compressed by {}", run.compression.name());
        Fault::new(offset, expected, "something else")
    })
}

/// Whether these are so many frames and nothing else.
fn are(count: u32, mut frames: &[u8]) -> bool {
    for _ in 0..count {
        let Some((header, rest)) = frames.split_at_checked(FRAME_HEADER) else {
            return false;
        };
        let Some(rest) = rest.get(u32_at(header, 8) as usize..) else {
            return false;
        };
        frames = rest;
    }
    frames.is_empty()
}
