//! Refusing a log that a later version has written.
//!
//! The one idea: a file of a later version is neither damaged nor torn. A tool that took it for damage would cut
//! it off. So every tool looks for such files first, before it reads or changes anything else.

use std::io;

use super::error::{OpenError, unreadable_file};
use super::names::{FOUND, MOVED};
use crate::Kind;
use crate::disk::{Disk, DiskFile};
use crate::format::{BATCH_HEADER, Newer, SEGMENT_HEADER, SegmentHeader, newer, number_of, u64_at};

/// Refuses the log if a segment says that a later version has written it, or that its reader must know a feature
/// that this version does not. Returns the kind of the log, if a segment records it.
///
/// # Errors
/// [`OpenError::Later`]; the error of the operating system.
pub(crate) fn refuse_later<D: Disk>(disk: &D) -> Result<Option<Kind>, OpenError> {
    let mut files = disk
        .list()
        .map_err(|error| OpenError::io("listing the log's directory", error))?;
    let is_segment = |file: &String| {
        let mut extensions = ["seg", MOVED, FOUND].into_iter();
        extensions.any(|extension| number_of(file, extension).is_some())
    };
    files.retain(is_segment);
    files.sort_unstable();
    let mut kind = None;
    for file in &files {
        kind = refuse_later_file(disk, file)?.or(kind);
    }
    Ok(kind)
}

/// [`refuse_later`] of one file.
///
/// # Errors
/// [`OpenError::Later`]; the error of the operating system.
pub(crate) fn refuse_later_file<D: Disk>(disk: &D, file: &str) -> Result<Option<Kind>, OpenError> {
    let mut bytes = [0; SEGMENT_HEADER + BATCH_HEADER];
    let read = disk
        .open(file)
        .and_then(|opened| opened.read_at(&mut bytes, 0));
    let count = match read {
        Ok(count) => count,
        // Retention has removed the file meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable_file(file, error)),
    };
    match newer(&bytes[..count]) {
        None => Ok(kind_in(&bytes[..count])),
        Some(Newer { offset, found }) => Err(OpenError::Later {
            file: file.to_owned(),
            offset,
            found,
        }),
    }
}

/// The kind of the log according to a segment that begins with these bytes, whatever number the
/// segment has.
fn kind_in(bytes: &[u8]) -> Option<Kind> {
    let number = u64_at(bytes.get(..SEGMENT_HEADER)?, 24);
    SegmentHeader::decode(bytes, number).ok()?.kind
}
