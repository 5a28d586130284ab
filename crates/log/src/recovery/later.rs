//! Refusing a log that a later version has written.
//!
//! The one idea: a file of a later version is neither damaged nor torn. A tool that takes it for damage would cut
//! it off, so every tool looks for it first, before it reads or changes anything else.

use std::io;

use super::{FOUND, MOVED, OpenError, unreadable_file};
use crate::disk::{Disk, DiskFile};
use crate::format::{BATCH_HEADER, Newer, SEGMENT_HEADER, newer, number_of};

/// Refuses if a segment says that a later version has written it, or that its reader must know a feature that this
/// version does not.
///
/// # Errors
/// [`OpenError::Later`]; what the system says.
pub(crate) fn refuse_later<D: Disk>(disk: &D) -> Result<(), OpenError> {
    let mut files = disk
        .list()
        .map_err(|error| OpenError::io("listing the log's directory", error))?;
    let is_segment = |file: &String| {
        let mut extensions = ["seg", MOVED, FOUND].into_iter();
        extensions.any(|extension| number_of(file, extension).is_some())
    };
    files.retain(is_segment);
    files.sort_unstable();
    files
        .iter()
        .try_for_each(|file| refuse_later_file(disk, file))
}

/// [`refuse_later`] of one file.
///
/// # Errors
/// [`OpenError::Later`]; what the system says.
pub(crate) fn refuse_later_file<D: Disk>(disk: &D, file: &str) -> Result<(), OpenError> {
    let mut bytes = [0; SEGMENT_HEADER + BATCH_HEADER];
    let read = disk
        .open(file)
        .and_then(|opened| opened.read_at(&mut bytes, 0));
    let count = match read {
        Ok(count) => count,
        // Retention has removed it meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable_file(file, error)),
    };
    match newer(&bytes[..count]) {
        None => Ok(()),
        Some(Newer { offset, found }) => Err(OpenError::Later {
            file: file.to_owned(),
            offset,
            found,
        }),
    }
}
