//! Whether a later version has written a segment.

use super::batch;
use super::layout::{Needs, SEGMENT_HEADER, SEGMENT_MAGIC, VERSION, VERSION_BEFORE, u32_at};
use crate::Kind;

/// The sign that a later version has written a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Newer {
    /// The offset of the sign in the segment.
    pub(crate) offset: u64,
    /// The version or feature that the segment names.
    pub(crate) found: String,
}

/// Whether a later version has written a segment that begins with these bytes: the segment's header and, as far as it
/// is there, the header of its first batch. A header with a valid checksum is believed. A header that is not whole may be damaged, or
/// have another layout: then the segment is a later one if its first batch says so, too.
pub(crate) fn newer(bytes: &[u8]) -> Option<Newer> {
    let header = bytes.get(..SEGMENT_HEADER)?;
    let is_segment = header[..8] == SEGMENT_MAGIC;
    let version = u32_at(header, 8);
    let later = |offset, found| Some(Newer { offset, found });
    if is_segment && u32_at(header, 60) == crc32c::crc32c(&header[..60]) {
        let needs = Needs(u32_at(header, 12));
        if version > VERSION {
            return later(8, format!("format version {version}"));
        }
        let unknown = needs.0 & !Needs::KNOWN.0;
        if version >= VERSION_BEFORE && unknown != 0 {
            return later(12, format!("needed features {unknown:#x}"));
        }
        let kind = u32_at(header, 32);
        if version >= VERSION_BEFORE && Kind::is_later(kind) {
            return later(32, format!("a log of kind {kind}"));
        }
        return None;
    }
    let batch = &bytes[SEGMENT_HEADER..];
    let offset = SEGMENT_HEADER as u64;
    let written = batch::newer(batch)?;
    later(offset, format!("a batch of format version {written}"))
}
