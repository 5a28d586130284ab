//! Frames from a reader to the server, after the welcome.

use super::field::{Fields, Malformed, Read};

/// Bytes in front of the body of a reader's frame.
pub const READER_HEADER: usize = 8;

/// Largest body of a frame of a reader or an administrator, in bytes: known frames are shorter, unknown ones are
/// skipped or refused.
const BODY_MAX: usize = 1024;

const CREDIT: u8 = 1;
const CURSOR: u8 = 2;

/// A frame from a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReaderFrame {
    /// Number of further bytes of batch frames that may be sent.
    Credit(u64),
    /// The cursor named in the hello now stands at this position.
    CommitCursor(u64),
    /// A kind that this version does not know; to be skipped.
    Unknown(u8),
}

impl ReaderFrame {
    /// Adds the frame to `out`. [`ReaderFrame::Unknown`] adds a frame with an empty body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (kind, body) = match self {
            ReaderFrame::Credit(bytes) => (CREDIT, Some(bytes)),
            ReaderFrame::CommitCursor(position) => (CURSOR, Some(position)),
            ReaderFrame::Unknown(kind) => (*kind, None),
        };
        out.extend_from_slice(&[kind, 0, 0, 0]);
        match body {
            Some(number) => {
                out.extend_from_slice(&8u32.to_le_bytes());
                out.extend_from_slice(&number.to_le_bytes());
            }
            None => out.extend_from_slice(&[0; 4]),
        }
    }

    /// Reads the frame at the start of `bytes`.
    ///
    /// # Errors
    /// A [`Malformed`] names the fault of the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Read<ReaderFrame>, Malformed> {
        let (kind, body) = match whole(bytes)? {
            Read::Partial(needed) => return Ok(Read::Partial(needed)),
            Read::Whole(found, _) => found,
        };
        let used = READER_HEADER + body.len();
        let mut fields = Fields(body);
        let frame = match kind {
            CREDIT => ReaderFrame::Credit(fields.u64()?),
            CURSOR => ReaderFrame::CommitCursor(fields.u64()?),
            kind => return Ok(Read::Whole(ReaderFrame::Unknown(kind), used)),
        };
        if !fields.0.is_empty() {
            return Err(Malformed("a frame is longer than its fields"));
        }
        Ok(Read::Whole(frame, used))
    }
}

/// The kind and the body of the frame at the start of `bytes`, from a reader or an administrator.
pub(super) fn whole(bytes: &[u8]) -> Result<Read<(u8, &[u8])>, Malformed> {
    let Some(([kind, reserved @ .., l0, l1, l2, l3], rest)) =
        bytes.split_first_chunk::<READER_HEADER>()
    else {
        return Ok(Read::Partial(READER_HEADER));
    };
    if *reserved != [0; 3] {
        return Err(Malformed("a reserved field is not 0"));
    }
    let len = u32::from_le_bytes([*l0, *l1, *l2, *l3]) as usize;
    if len > BODY_MAX {
        return Err(Malformed("a frame is too long"));
    }
    Ok(match rest.get(..len) {
        Some(body) => Read::Whole((*kind, body), READER_HEADER + len),
        None => Read::Partial(READER_HEADER + len),
    })
}
