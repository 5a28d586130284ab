//! The range of the log that a command has to read.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A command that needs the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// XREAD.
    Behind {
        streams: Vec<Wanted>,
        /// Entries of each stream at most; 0 for any number.
        count: usize,
    },
    /// XRANGE and XREVRANGE.
    Span {
        stream: Arc<str>,
        positions: Range<u64>,
        /// `None` for any number.
        count: Option<usize>,
        /// Whether the last entry comes first.
        back: bool,
    },
    /// XINFO STREAM.
    About {
        stream: Arc<str>,
        /// Number of entries that XINFO STREAM FULL shows, 0 for all.
        full: Option<usize>,
    },
}

/// A stream that XREAD names, and where reading goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) key: Box<[u8]>,
    /// `None`: no stream can be called that.
    pub(super) stream: Option<Arc<str>>,
    /// `None`: behind all positions that there can be.
    pub(super) from: Option<u64>,
}

/// Whether a command waits for entries that do not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    No,
    For(Duration),
    ForEver,
}
