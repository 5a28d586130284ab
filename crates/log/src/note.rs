//! Facts about streams in a batch, for the catalogue: where their records are, and how streams have
//! changed.

/// How far apart notes of one stream are, at least, in bytes of the log.
pub(crate) const NOTE_BYTES: u64 = 64 << 10;

/// Where records of a stream are in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    pub(crate) stream: u32,
    /// The position of the first record of the run at `offset`.
    pub(crate) first: u64,
    /// The position after the last record of this stream up to the next note about it.
    pub(crate) next: u64,
    /// The offset of the run from the start of the batch.
    pub(crate) offset: u64,
    /// Timestamp of that run.
    pub(crate) timestamp_us: u64,
    /// Bytes of the records in their stored form.
    pub(crate) bytes: u64,
}

/// The change of a stream that takes effect when the batch with this note is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Deleted(u32),
    /// The stream's records before the position are not kept any more.
    Trimmed(u32, u64),
    /// The stream goes on at the second position behind the first: what was between is lost.
    Passed(u32, u64, u64),
}
