//! Frames from an administrator to the server, after the welcome, and what these carry.

use std::time::Duration;

use tidewire_log::{Compression, StreamSettings};

use super::field::{Fields, Malformed, Read, TooLong, check, put_string};
use super::reader::{READER_HEADER, whole};

const LIST: u8 = 1;
const CREATE: u8 = 2;
const SET: u8 = 3;
const DELETE: u8 = 4;
const CURSORS: u8 = 5;
const READERS: u8 = 6;
const DELETE_CURSOR: u8 = 7;
const TRIM: u8 = 8;

/// The numbers of the settings.
const RETAIN_BYTES: u8 = 1;
const RETAIN_AGE: u8 = 2;
const LIMIT_BYTES: u8 = 4;
const COMPRESSION: u8 = 8;

/// New values for settings of a stream; settings without a value stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The most bytes that retention keeps; `Some(None)` for no limit.
    pub retain_bytes: Option<Option<u64>>,
    /// How long records are kept, in microseconds; `Some(None)` for no limit.
    pub retain_age_us: Option<Option<u64>>,
    /// The most bytes that the stream may take; `Some(None)` for no limit.
    pub limit_bytes: Option<Option<u64>>,
    /// How records are stored.
    pub compression: Option<Compression>,
    /// Something else is to be set, or a compression that is not known here: it is refused as `unsupported`. Never sent.
    pub is_unknown: bool,
}

impl Wanted {
    /// The settings after this change.
    #[must_use]
    pub fn over(&self, before: StreamSettings) -> StreamSettings {
        let age = self.retain_age_us.map(|us| us.map(Duration::from_micros));
        StreamSettings {
            retain_bytes: self.retain_bytes.unwrap_or(before.retain_bytes),
            retain_age: age.unwrap_or(before.retain_age),
            limit_bytes: self.limit_bytes.unwrap_or(before.limit_bytes),
            compression: self.compression.unwrap_or(before.compression),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let bits = [
            (RETAIN_BYTES, self.retain_bytes.is_some()),
            (RETAIN_AGE, self.retain_age_us.is_some()),
            (LIMIT_BYTES, self.limit_bytes.is_some()),
            (COMPRESSION, self.compression.is_some()),
        ];
        let bits = bits.into_iter().filter(|(_, is_meant)| *is_meant);
        let mask = bits.fold(0, |mask, (bit, _)| mask | bit);
        out.extend_from_slice(&[mask, self.compression.unwrap_or_default().code(), 0, 0]);
        for limit in [self.retain_bytes, self.retain_age_us, self.limit_bytes] {
            out.extend_from_slice(&limit.flatten().unwrap_or(0).to_le_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Result<Wanted, Malformed> {
        let (mask, compression) = (fields.u8()?, fields.u8()?);
        let is_unknown = mask & !(RETAIN_BYTES | RETAIN_AGE | LIMIT_BYTES | COMPRESSION) != 0;
        if fields.u16()? != 0 {
            return Err(Malformed("a reserved field is not 0"));
        }
        let mut limit = |bit| {
            let limit = fields.u64()?;
            Ok((mask & bit != 0).then_some(Some(limit).filter(|&limit| limit > 0)))
        };
        let named = Compression::of(compression).filter(|_| mask & COMPRESSION != 0);
        Ok(Wanted {
            is_unknown: is_unknown || (mask & COMPRESSION != 0 && named.is_none()),
            retain_bytes: limit(RETAIN_BYTES)?,
            retain_age_us: limit(RETAIN_AGE)?,
            limit_bytes: limit(LIMIT_BYTES)?,
            compression: named,
        })
    }
}

/// A request of an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminFrame<'a> {
    /// The streams behind this name, by their names; all of them behind the empty one.
    List {
        /// The name.
        after: &'a str,
    },
    /// Create a stream.
    Create {
        /// Name of the stream.
        stream: &'a str,
        /// The new settings.
        wanted: Wanted,
    },
    /// A stream is to have other settings.
    Set {
        /// Name of the stream.
        stream: &'a str,
        /// Settings that change.
        wanted: Wanted,
    },
    /// A stream is to be deleted, with all its records.
    Delete {
        /// Name of the stream.
        stream: &'a str,
    },
    /// The cursors of a stream behind this name.
    Cursors {
        /// Name of the stream.
        stream: &'a str,
        /// The name.
        after: &'a str,
    },
    /// The readers of a stream that are connected now.
    Readers {
        /// Name of the stream.
        stream: &'a str,
    },
    /// A cursor is to go.
    DeleteCursor {
        /// The name of the cursor's or reader's stream.
        stream: &'a str,
        /// Name of the cursor.
        cursor: &'a str,
    },
    /// The records of a stream before a position are to go.
    Trim {
        /// Name of the stream.
        stream: &'a str,
        /// The first position that stays.
        before: u64,
    },
    /// A kind that this version does not know; it is refused.
    Unknown(u8),
}

impl<'a> AdminFrame<'a> {
    /// Adds the frame to `out`. [`AdminFrame::Unknown`] adds a frame with an empty body.
    ///
    /// # Errors
    /// [`TooLong`] for one of the names; no byte was added.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let mut position = None;
        let (kind, wanted, names) = match self {
            AdminFrame::Trim { stream, before } => {
                position = Some(*before);
                (TRIM, None, vec![*stream])
            }
            AdminFrame::List { after } => (LIST, None, vec![*after]),
            AdminFrame::Create { stream, wanted } => (CREATE, Some(wanted), vec![*stream]),
            AdminFrame::Set { stream, wanted } => (SET, Some(wanted), vec![*stream]),
            AdminFrame::Delete { stream } => (DELETE, None, vec![*stream]),
            AdminFrame::Cursors { stream, after } => (CURSORS, None, vec![*stream, *after]),
            AdminFrame::Readers { stream } => (READERS, None, vec![*stream]),
            AdminFrame::DeleteCursor { stream, cursor } => {
                (DELETE_CURSOR, None, vec![*stream, *cursor])
            }
            AdminFrame::Unknown(kind) => (*kind, None, vec![]),
        };
        for name in &names {
            check("the name", name)?;
        }
        let start = out.len();
        out.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
        if let Some(wanted) = wanted {
            wanted.encode(out);
        }
        if let Some(position) = position {
            out.extend_from_slice(&position.to_le_bytes());
        }
        names.into_iter().for_each(|name| put_string(name, out));
        let length = (out.len() - start - READER_HEADER) as u32;
        out[start + 4..start + READER_HEADER].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Reads the frame at the start of `bytes`.
    ///
    /// # Errors
    /// A [`Malformed`] names the fault of the bytes.
    pub fn decode(bytes: &'a [u8]) -> Result<Read<AdminFrame<'a>>, Malformed> {
        let (kind, body) = match whole(bytes)? {
            Read::Partial(needed) => return Ok(Read::Partial(needed)),
            Read::Whole(found, _) => found,
        };
        let used = READER_HEADER + body.len();
        let mut fields = Fields(body);
        let frame = match kind {
            LIST => AdminFrame::List {
                after: fields.name()?,
            },
            CREATE => AdminFrame::Create {
                wanted: Wanted::decode(&mut fields)?,
                stream: fields.name()?,
            },
            SET => AdminFrame::Set {
                wanted: Wanted::decode(&mut fields)?,
                stream: fields.name()?,
            },
            DELETE => AdminFrame::Delete {
                stream: fields.name()?,
            },
            CURSORS => AdminFrame::Cursors {
                stream: fields.name()?,
                after: fields.name()?,
            },
            READERS => AdminFrame::Readers {
                stream: fields.name()?,
            },
            DELETE_CURSOR => AdminFrame::DeleteCursor {
                stream: fields.name()?,
                cursor: fields.name()?,
            },
            TRIM => AdminFrame::Trim {
                before: fields.u64()?,
                stream: fields.name()?,
            },
            kind => {
                let frame = AdminFrame::Unknown(kind);
                return Ok(Read::Whole(frame, used));
            }
        };
        if !fields.0.is_empty() {
            return Err(Malformed("a frame is longer than its fields"));
        }
        Ok(Read::Whole(frame, used))
    }
}

/// The state of a stream, as an administrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFrame<'a> {
    /// The oldest position kept.
    pub first: u64,
    /// The position after the last record.
    pub next: u64,
    /// Bytes of the records that are kept, as they are stored.
    pub bytes: u64,
    /// When the last one was received: microseconds since the Unix epoch; 0 if none was.
    pub newest_us: u64,
    /// The most bytes that retention keeps; 0 is no limit.
    pub retain_bytes: u64,
    /// The retention by age in microseconds; 0 means no limit.
    pub retain_age_us: u64,
    /// 0 means no limit.
    pub limit_bytes: u64,
    /// Records behind the slowest cursor or connected reader; 0 if there is neither.
    pub lag: u64,
    /// How many producers have a mark.
    pub producers: u32,
    /// How many named cursors there are.
    pub cursors: u32,
    /// How many readers are connected.
    pub readers: u32,
    /// The number of the stream's compression.
    pub compression: u8,
    /// Name of the stream.
    pub name: &'a str,
    /// Bytes of the log's oldest segments that are on the disk because of this stream, or of it and others; servers before 0.3
    /// do not say.
    pub pins: Option<u64>,
}

impl<'a> StreamFrame<'a> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        let longs = [
            self.first,
            self.next,
            self.bytes,
            self.newest_us,
            self.retain_bytes,
            self.retain_age_us,
            self.limit_bytes,
            self.lag,
        ];
        let words = [self.producers, self.cursors, self.readers];
        longs
            .iter()
            .for_each(|long| out.extend_from_slice(&long.to_le_bytes()));
        words
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&[self.compression, 0, 0, 0]);
        put_string(self.name, out);
        if let Some(pins) = self.pins {
            out.extend_from_slice(&pins.to_le_bytes());
        }
    }

    pub(super) fn take(fields: &mut Fields<'a>) -> Result<StreamFrame<'a>, Malformed> {
        Ok(StreamFrame {
            first: fields.u64()?,
            next: fields.u64()?,
            bytes: fields.u64()?,
            newest_us: fields.u64()?,
            retain_bytes: fields.u64()?,
            retain_age_us: fields.u64()?,
            limit_bytes: fields.u64()?,
            lag: fields.u64()?,
            producers: fields.u32()?,
            cursors: fields.u32()?,
            readers: fields.u32()?,
            compression: {
                let [compression, _, _, _] = fields.array()?;
                compression
            },
            name: fields.string()?,
            pins: fields.u64().ok(),
        })
    }

    /// Bytes of the frame's body.
    pub(super) fn len(&self) -> usize {
        8 * 8 + 4 * 4 + 1 + self.name.len() + self.pins.map_or(0, |_| 8)
    }
}

/// A reader of a stream, or a named cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceFrame<'a> {
    /// The next position to be read.
    pub position: u64,
    /// How many records are behind that.
    pub lag: u64,
    /// The named cursor; empty for a reader without one.
    pub cursor: &'a str,
    /// The reader's address; empty for a cursor.
    pub peer: &'a str,
}

impl<'a> PlaceFrame<'a> {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.lag.to_le_bytes());
        put_string(self.cursor, out);
        put_string(self.peer, out);
    }

    pub(super) fn take(fields: &mut Fields<'a>) -> Result<PlaceFrame<'a>, Malformed> {
        Ok(PlaceFrame {
            position: fields.u64()?,
            lag: fields.u64()?,
            cursor: fields.string()?,
            peer: fields.string()?,
        })
    }

    /// Bytes of the frame's body.
    pub(super) fn len(&self) -> usize {
        2 * 8 + 2 + self.cursor.len() + self.peer.len()
    }
}
