//! The types of calls to a log and of its answers: positions, runs, refusals, progress.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A stream's number in this log; dense from 0, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// A producer's number in this log, of one producer name on one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProducerId(pub u32);

impl ProducerId {
    /// Messages without an identity: no mark is kept and nothing is recognised as sent twice.
    pub const ANONYMOUS: ProducerId = ProducerId(0);
}

/// The place of a batch in the order of appending, over all streams; starts at 1 and counts
/// batches. A ticket does not say whether the batch is durable: compare it with [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// When a group of batches counts as committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each group is synced (`fdatasync`) before it is committed.
    Sync,
    /// A group is written when it has 256 KiB or is ten milliseconds old (a tenth of this interval, if that is
    /// less), and the log is synced at least this often; a batch is committed when synced.
    Interval(Duration),
    /// Groups are written, and synced when the operating system likes. Committed when written; what
    /// is in a finished segment is synced a minute or two later, and `durable` is never granted.
    Os,
}

/// A batch of one producer's messages.
///
/// `frames` holds whole messages back to back, each `id: u64 | size: u32 | payload`, little-endian,
/// which is how they arrive and how they are stored.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The stream of the records.
    pub stream: StreamId,
    /// Producer of the messages.
    pub producer: ProducerId,
    /// The messages.
    pub frames: &'a [u8],
    /// How many there are; at least 1.
    pub count: u32,
    /// The id of the last one; it becomes the producer's mark.
    pub last_id: u64,
    /// The time at which the records were received: microseconds since the Unix epoch. Within a
    /// stream time never goes back: an earlier one is raised to that of the record before.
    pub timestamp_us: u64,
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("stream", &self.stream)
            .field("producer", &self.producer)
            .field("bytes", &self.frames.len())
            .field("count", &self.count)
            .field("last_id", &self.last_id)
            .finish_non_exhaustive()
    }
}

/// The place at which the log has put a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Place of the run in the order of appending.
    pub ticket: Ticket,
    /// The position of the batch's first record in the stream.
    pub first: u64,
}

/// Why a batch was not taken. No part of the batch was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The queue in front of the writer is full. Stop reading and try again at the next [`Wake`]:
    /// there is one as soon as there is room.
    #[error("the log's queue is full")]
    Busy,
    /// The disk has no room. Read on, refuse, try again after `retry_after`.
    #[error("the disk is full")]
    DiskFull {
        /// How long to wait before another attempt makes sense.
        retry_after: Duration,
    },
    /// A single batch is larger than a group may be.
    #[error("the batch is too large")]
    TooLarge,
    /// A limit on the number of streams, producers or cursors is reached, or a name is not 1 to 255
    /// bytes long.
    #[error("too many streams, producers or cursors")]
    TooMany,
    /// The producer was forgotten since the caller asked for its number: ask again. A
    /// [held](crate::Log::hold) producer is not forgotten.
    #[error("the producer was forgotten meanwhile: connect again")]
    Forgotten,
    /// The stream is at its limit of bytes. Read on, refuse, try again after `retry_after`: there is
    /// room when records of it go.
    #[error("the stream is full")]
    StreamFull {
        /// How long to wait before another attempt makes sense.
        retry_after: Duration,
    },
    /// The stream was deleted; or there is none, for a cursor.
    #[error("there is no such stream")]
    NoStream,
    /// A cursor that would stand beyond the end of its stream.
    #[error("the position is beyond the end of the stream")]
    Beyond,
    /// A write or a sync has failed; nothing is taken any more. See [`Progress::failure`].
    #[error("the log has failed")]
    Failed,
}

/// How far the log has come.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// All batches up to this one have been handed to the operating system.
    pub written: Ticket,
    /// All batches up to this one are committed, in the sense of the [`Policy`], and visible to
    /// readers.
    pub committed: Ticket,
    /// All batches up to this one are on the disk, whatever the [`Policy`]. With [`Policy::Os`] it moves
    /// only when a caller asks with [`Log::sync`](crate::Log::sync).
    pub durable: Ticket,
    /// All batches up to this one, and all that were there when the log was opened, are in the home, as
    /// far as a replicator carries them. `None`: there is no replicator, or it has not come so far yet.
    pub replicated: Option<Ticket>,
    /// Whether `replicated` advances, as far as is known: a replicator has reached its home since
    /// the log was opened, and has not lost it for good. The home may be unreachable at the moment.
    pub replicates: bool,
    /// Whether `replicates` is still unknown: a replicator is trying to reach its home for the first time since the log
    /// was opened. Callers that depend on the answer wait.
    pub seeks_home: bool,
    /// Why no record reaches the home for now.
    pub away: Option<Failure>,
    /// Groups of batches that were written since the log was opened: each is one write, and with
    /// [`Policy::Sync`] one sync.
    pub groups: u64,
    /// Why nothing is taken for now ([`Refused::Busy`]), if no room can be reserved though the disk
    /// is not full ([`Refused::DiskFull`]). The log tries again and goes on when it can.
    pub blocked: Option<Failure>,
    /// The disk is full, and so nothing is taken for now ([`Refused::DiskFull`]) but changes of streams.
    pub is_full: bool,
    /// Why the log has stopped for good. Batches above `committed` will never be committed.
    pub failure: Option<Failure>,
}

/// A replicator's report to the log that it reads from: see [`Log::carried`](crate::Log::carried).
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// For each stream that the replicator carries, the position up to which its records are in the
    /// home.
    pub home: BTreeMap<Arc<str>, u64>,
    /// Becomes [`Progress::replicated`]; never goes back.
    pub replicated: Option<Ticket>,
    /// Becomes [`Progress::replicates`].
    pub replicates: bool,
    /// Becomes [`Progress::seeks_home`].
    pub seeks_home: bool,
    /// Becomes [`Progress::away`].
    pub away: Option<Failure>,
}

/// Why a log has stopped for good: what was attempted, on what, and what the system said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Arc<str>);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The log's knowledge of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The highest id appended, committed or not. `None`: nothing was ever appended, or so long ago
    /// that the producer has expired.
    pub appended: Option<u64>,
    /// The last batch appended for it since the log was opened; [`Ticket`] 0 if there was none.
    /// When `committed` has reached this ticket, `appended` is committed.
    pub ticket: Ticket,
    /// The producer has no mark, but had one: it was idle for too long, or there were too many
    /// producers, and messages that it sends again are stored again. The log remembers the last
    /// 100,000 forgotten producers as forgotten.
    pub forgotten: bool,
}

/// The positions a reader may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The oldest position that is still kept.
    pub first: u64,
    /// The position that the next committed record will have or has: one past the last.
    pub next: u64,
}

/// Where to begin reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// At this position, or at the oldest kept if that is later. A position beyond the end is
    /// refused.
    Position(u64),
    /// Reading begins after the last committed record.
    Tail,
    /// At the first record received at this time or later: microseconds since the Unix epoch.
    Timestamp(u64),
}

/// Consecutive records of one stream, in the form in which they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// The position of the first one.
    pub first: u64,
    /// How many there are.
    pub count: u32,
    /// The time at which the records were received: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// Producer of the messages; empty for anonymous messages.
    pub producer: Arc<str>,
    /// The records, in the form of [`Run::frames`].
    pub bytes: Vec<u8>,
}

/// Most bytes of records that one read may return; at least one record is returned, whatever its
/// size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit(pub usize);

/// The result of a read, in the order of positions; empty at the tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// Runs of records; the positions follow each other without gaps.
    pub runs: Vec<Frames>,
    /// Where the next read should begin.
    pub next: u64,
}

/// Why a read failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The records have been removed by retention meanwhile.
    #[error("position {asked} is gone, the oldest kept is {first}")]
    Gone {
        /// The position that was asked for.
        asked: u64,
        /// The oldest position kept.
        first: u64,
    },
    /// No record was ever appended at that position.
    #[error("position {asked} is beyond the end, the next record will have {next}")]
    Beyond {
        /// The position that was asked for.
        asked: u64,
        /// The position that the next record will have.
        next: u64,
    },
    /// The records were lost in damage that a repair has marked. The stream goes on behind it.
    #[error("the records from position {asked} up to before {next} were lost in damage")]
    Missing {
        /// The position that was asked for.
        asked: u64,
        /// The first position behind the gap: go on there.
        next: u64,
    },
    /// The stored bytes differ from the bytes that were written: file, offset and reason.
    #[error("{0}")]
    Damaged(Arc<str>),
    /// The system could not open or read a file, which says nothing about what is in it: file and
    /// reason. Trying again later may help.
    #[error("{0}")]
    Failed(Arc<str>),
}

/// Called, from any thread, when [`Log::progress`](crate::Log::progress) has moved, room was made in the queue or on the
/// disk, or the log failed. Must be quick, must not block and must not call the log.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Keeps a [`Wake`] registered; dropping the value ends the registration.
pub struct Watch(#[allow(dead_code, reason = "dropped, not read")] Box<dyn Send + Sync>);

impl Watch {
    /// A registration that ends when `guard` is dropped.
    pub fn new(guard: impl Send + Sync + 'static) -> Watch {
        Watch(Box::new(guard))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}
