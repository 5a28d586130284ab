//! A stream and a cursor in the form that tools show.

use crate::StreamSettings;

/// A stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Name of the stream.
    pub name: String,
    /// The oldest position kept.
    pub first: u64,
    /// The position after the last one.
    pub next: u64,
    /// Bytes of the records that are kept, as they are stored.
    pub bytes: u64,
    /// Bytes of the oldest segments that are kept for it, or for it and others: see [`StreamStatus`](crate::StreamStatus::pins).
    pub pins: u64,
    /// The time at which the stream's last record was received: microseconds since the Unix epoch;
    /// 0 if the stream has no record.
    pub newest_us: u64,
    /// The stream's settings.
    pub settings: StreamSettings,
}

/// A named cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorInfo {
    /// The stream's name.
    pub stream: String,
    /// Name of the cursor.
    pub name: String,
    /// The position of the cursor.
    pub position: u64,
}
