//! The settings of a stream, and the questions about it.

use std::sync::Arc;
use std::time::Duration;

use crate::{Range, Refused};

/// How the records of a stream are stored from now on. Readers notice no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Compression {
    /// Records are stored without compression.
    #[default]
    None,
    /// By LZ4: a batch of them that becomes shorter by it.
    Lz4,
    /// By Zstandard at level 3: shorter, and slower.
    Zstd,
}

impl Compression {
    /// All compressions.
    pub const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

    /// The name of the compression.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Number of the compression on the disk and in protocols.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Compression::None => 0,
            Compression::Lz4 => 1,
            Compression::Zstd => 2,
        }
    }

    /// The compression with this number.
    #[must_use]
    pub fn of(code: u8) -> Option<Compression> {
        Compression::ALL.into_iter().find(|it| it.code() == code)
    }
}

/// The settings of one stream. Sizes are bytes of records with their headers of 12 bytes, as stored, so
/// after compression. The log's own limits apply to all streams together, in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSettings {
    /// Most bytes that are kept: the oldest records are removed before the limit is exceeded by more
    /// than 64 KiB plus one second's records. Default: no limit.
    pub retain_bytes: Option<u64>,
    /// Records that are older go, some of them up to 64 KiB of the stream later. At least 1 us.
    /// Default: no limit.
    pub retain_age: Option<Duration>,
    /// The most that is taken: then batches are refused ([`Refused::StreamFull`]) until records go.
    /// Default: no limit.
    pub limit_bytes: Option<u64>,
    /// How records are stored. Default: no compression.
    pub compression: Compression,
}

/// A change of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Create a stream.
    Create {
        /// Name of the stream, 1 to 255 bytes.
        stream: &'a str,
        /// The new settings.
        settings: StreamSettings,
    },
    /// A stream that exists has these settings from now on.
    Set {
        /// Name of the stream.
        stream: &'a str,
        /// All settings of the stream.
        settings: StreamSettings,
    },
    /// Deletes the stream, with its records, its cursors and the marks of its producers. A later
    /// stream of the same name goes on behind the last position of this one, so no position is used
    /// twice.
    Delete {
        /// Name of the stream.
        stream: &'a str,
    },
    /// The stream's records before a position go, for good. Positions stay what they are.
    Trim {
        /// Name of the stream.
        stream: &'a str,
        /// The first position that stays: at most the one behind the last record.
        before: u64,
    },
    /// A named cursor goes. A later reader with it begins at the oldest record.
    DeleteCursor {
        /// The name of the cursor's stream.
        stream: &'a str,
        /// Name of the cursor.
        cursor: &'a str,
    },
}

/// Why a stream was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    /// No stream has this name.
    #[error("there is no such stream")]
    NoStream,
    /// The stream has no cursor of this name.
    #[error("there is no such cursor")]
    NoCursor,
    /// A stream has this name already.
    #[error("there is a stream of this name already")]
    Exists,
    /// A setting is out of its range.
    #[error("{0}")]
    Setting(&'static str),
    /// The stream ends before the position that was given: here.
    #[error("the stream ends before that position: its next record has {0}")]
    Beyond(u64),
    /// Records before that position are not at the replicator's home yet, and are kept until they are.
    #[error("records before that position have not been replicated yet")]
    NotHome,
    /// This implementation of the log cannot do that.
    #[error("streams are not administered here")]
    Unsupported,
    /// The log does not take the change, or not now.
    #[error("{0}")]
    Log(#[from] Refused),
}

/// The state of a stream, for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStatus {
    /// Name of the stream.
    pub name: Arc<str>,
    /// The positions that may be read.
    pub range: Range,
    /// Bytes of the stream's records, as [`StreamSettings`] count them.
    pub bytes: u64,
    /// Bytes of segments that are on the disk because of this stream, alone or with others: the
    /// oldest segments, up to the first one that another stream keeps too, or that is in use.
    /// Segments are removed in order, oldest first, so the records of one stream also keep the
    /// later records of all other streams. 0 for streams without records in the oldest segment.
    pub pins: u64,
    /// The time at which the stream's last record was received: microseconds since the Unix epoch;
    /// 0 if the stream has no record.
    pub newest_us: u64,
    /// The stream's settings.
    pub settings: StreamSettings,
    /// How many producers have a mark.
    pub producers: usize,
    /// How many named cursors the stream has.
    pub cursors: usize,
    /// Records behind the slowest cursor; 0 if the stream has no cursor.
    pub lag: u64,
}

/// A named cursor of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorStatus {
    /// Stream of the cursor.
    pub stream: Arc<str>,
    /// Name of the cursor.
    pub name: Arc<str>,
    /// The position at which the cursor stands.
    pub position: u64,
    /// How many records are behind that.
    pub lag: u64,
}

impl StreamSettings {
    /// Whether no setting differs from its default.
    pub(crate) fn is_default(&self) -> bool {
        *self == StreamSettings::default()
    }

    /// The first setting that is out of range, if any.
    pub(crate) fn fault(&self) -> Option<&'static str> {
        match self.retain_age {
            Some(age) if u64::try_from(age.as_micros()).map_or(true, |us| us == 0) => {
                Some("retain_age must be from 1 us to 500,000 years")
            }
            _ => None,
        }
    }
}
