//! The findings when a log was opened.

use super::error::Damage;

/// The findings when the log was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// How many segments there are.
    pub segments: u64,
    /// How many batches were read; with [`Verify::Tail`](crate::Verify::Tail) not all.
    pub batches: u64,
    /// How many records were read; with [`Verify::Tail`](crate::Verify::Tail) not all.
    pub records: u64,
    /// The last batch that another one says was durable.
    pub durable_through: u64,
    /// The torn tail that was cut off, if there was one.
    pub cut: Option<Cut>,
    /// The newest segment was made shorter since it was written: nothing says how much is missing, if anything.
    pub short: Option<Short>,
    /// The file of claims was unreadable: what it said of the end of the log is not known.
    pub claims_lost: bool,
    /// Room that was reserved may be gone when it is written, as the file system copies blocks: a
    /// disk that runs full can make the log fail, instead of refuse in time.
    pub room_not_held: bool,
}

/// A torn tail: what was being written when the process or the power went.
///
/// A tail that was cut off. No file on the disk says that the cut group was acknowledged as
/// durable. The group may have been acknowledged all the same, if the process was killed less than
/// a second after its last group and the disk has damaged the group since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The first fault; the cut begins with the batch of this fault.
    pub at: Damage,
    /// Bytes that were not zero behind it, in all segments.
    pub bytes: u64,
    /// Whole batches behind the first bad one.
    pub whole_batches: u64,
    /// The files that keep the bytes that were cut off, as far as there was space; `tidewire log
    /// dump FILE` shows such a file.
    pub kept_in: Vec<String>,
}

/// A newest segment that ends as no crash leaves it: without the space that is reserved behind the last batch, though the log was
/// not closed. Only batches of the last half second, or of an uninterrupted load, had no claim by a later batch and can be
/// missing unnoticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The file.
    pub file: String,
    /// Length of the file; bytes.
    pub length: u64,
    /// The last batch that is whole.
    pub last: u64,
    /// The last batch that is claimed to be durable. Batches behind `last` may have been acknowledged.
    pub durable_through: u64,
}
