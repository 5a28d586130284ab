//! What a home of the log offers: append a batch, be told later when it is durable, read from a
//! position. [`crate`] has the embedded home; a replicated one would stand behind the same trait.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::format::RECORDS_HEADER;
use crate::{Change, ChangeRefused, CursorStatus, StreamStatus};

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
/// batches. It says nothing about whether the batch is durable: compare it with [`Progress`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// When a group of batches counts as committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each group is synced (`fdatasync`) before it is committed.
    Sync,
    /// Groups are written when they are 256 KiB or ten milliseconds old (a tenth of this, if that is less), and
    /// synced at least this often; committed when synced.
    Interval(Duration),
    /// Groups are written, and synced when the operating system likes. Committed when written;
    /// what is in a finished segment is synced a minute or two later, and `durable` is not granted to anybody.
    Os,
}

/// A batch of one producer's messages.
///
/// `frames` holds whole messages back to back, each `id: u64 | size: u32 | payload`, little-endian,
/// which is how they arrive and how they are stored.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// The stream they go to.
    pub stream: StreamId,
    /// Who sent them.
    pub producer: ProducerId,
    /// The messages.
    pub frames: &'a [u8],
    /// How many there are; at least 1.
    pub count: u32,
    /// The id of the last one; it becomes the producer's mark.
    pub last_id: u64,
    /// When they were received: microseconds since the Unix epoch. Within a stream time never goes
    /// back: an earlier one is raised to that of the record before.
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

/// Bytes that a run takes in a group beside its frames.
pub const RUN_BYTES: usize = RECORDS_HEADER;

/// Where a batch was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its place in the order of appending.
    pub ticket: Ticket,
    /// The position of its first record in the stream.
    pub first: u64,
}

/// Why a batch was not taken. Nothing of it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The queue in front of the writer is full. Stop reading and try again at the next [`Wake`]:
    /// there is one as soon as there is room.
    #[error("the log's queue is full")]
    Busy,
    /// There is no room on the disk. Read on, refuse, try again after `retry_after`.
    #[error("the disk is full")]
    DiskFull {
        /// When trying again makes sense.
        retry_after: Duration,
    },
    /// A single batch above what a group may hold.
    #[error("the batch is too large")]
    TooLarge,
    /// A limit on the number of streams, producers or cursors is reached, or a name is not 1 to 255
    /// bytes long.
    #[error("too many streams, producers or cursors")]
    TooMany,
    /// The producer was forgotten since its number was asked for: ask again. One that is
    /// [held](Log::hold) is not.
    #[error("the producer was forgotten meanwhile: connect again")]
    Forgotten,
    /// The stream has its limit of bytes. Read on, refuse, try again after `retry_after`: there is room
    /// when records of it go.
    #[error("the stream is full")]
    StreamFull {
        /// When trying again makes sense.
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
    /// only when somebody asks with [`Log::sync`].
    pub durable: Ticket,
    /// All batches up to this one, and all that was there when the log was opened, are at home: where a
    /// replicator carries them. `None`: there is none, or it has not come so far yet.
    pub replicated: Option<Ticket>,
    /// Whether `replicated` moves on, by what is known: a replicator has its home since the log was
    /// opened, and has not lost it for good. It may be unable to reach it just now.
    pub replicates: bool,
    /// Whether `replicates` is not known yet: a replicator is on its way to its home for the first time since the log was
    /// opened. What depends on it waits.
    pub seeks_home: bool,
    /// Why nothing comes home for now.
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

/// What a replicator tells the log that it reads from: see [`Log::carried`].
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// For each stream the position up to which its records are at home; those of other streams are not.
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

/// What the log knows of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The highest id appended, committed or not. `None`: nothing was ever appended, or so long ago
    /// that the producer has expired.
    pub appended: Option<u64>,
    /// The last batch appended for it since the log was opened; [`Ticket`] 0 if there was none.
    /// When `committed` has reached it, `appended` is committed.
    pub ticket: Ticket,
    /// Nothing is known of it, but something was: it was idle for too long, or there were too many,
    /// and what it sends again is stored again. The last 100,000 that were forgotten are remembered
    /// as such.
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
    /// At this position, or at the oldest kept if that is later. Beyond the end it is refused.
    Position(u64),
    /// After the last committed record.
    Tail,
    /// At the first record received at this time or later: microseconds since the Unix epoch.
    Timestamp(u64),
}

/// Consecutive records of one stream, as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// The position of the first one.
    pub first: u64,
    /// How many there are.
    pub count: u32,
    /// When they were received: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// Who sent them; empty for anonymous messages.
    pub producer: Arc<str>,
    /// The records, in the form of [`Run::frames`].
    pub bytes: Vec<u8>,
}

/// Most bytes of records that one read may return; at least one record is returned however large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit(pub usize);

/// What a read returned, in the order of positions; empty at the tail.
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
        /// What was asked for.
        asked: u64,
        /// The oldest position kept.
        first: u64,
    },
    /// Nothing was ever appended there.
    #[error("position {asked} is beyond the end, the next record will have {next}")]
    Beyond {
        /// What was asked for.
        asked: u64,
        /// The position that the next record will have.
        next: u64,
    },
    /// The records were lost in damage that a repair has marked. The stream goes on behind it.
    #[error("the records from position {asked} up to before {next} were lost in damage")]
    Missing {
        /// What was asked for.
        asked: u64,
        /// The first position behind the gap: go on there.
        next: u64,
    },
    /// The stored bytes are not what was written: file, offset and reason.
    #[error("{0}")]
    Damaged(Arc<str>),
    /// The system could not open or read a file, which says nothing about what is in it: file and
    /// reason. Trying again later may help.
    #[error("{0}")]
    Failed(Arc<str>),
}

/// Called, from any thread, when [`Log::progress`] has moved, room was made in the queue or on the
/// disk, or the log failed. Must be quick, must not block and must not call the log.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Keeps a [`Wake`] registered; dropping it ends that.
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

/// A home of records. All calls are quick and none blocks on a disk or a network, except
/// [`Log::read`].
pub trait Log: Send + Sync + 'static {
    /// When groups are committed.
    fn policy(&self) -> Policy;

    /// Most bytes of payload that one record may have.
    fn payload_max(&self) -> u32;

    /// The number of the stream of this name, which comes into being if need be. Names have 1 to
    /// 255 bytes of UTF-8.
    ///
    /// # Errors
    /// [`Refused::TooMany`], [`Refused::Failed`]; for a new name also [`Refused::Busy`] and
    /// [`Refused::DiskFull`].
    fn stream(&self, name: &str) -> Result<StreamId, Refused>;

    /// The number of the producer of this name (1 to 255 bytes of UTF-8) on a stream.
    ///
    /// # Errors
    /// [`Refused::NoStream`], [`Refused::TooMany`], [`Refused::Failed`]; for a new name also
    /// [`Refused::Busy`] and [`Refused::DiskFull`].
    fn producer(&self, stream: StreamId, name: &str) -> Result<ProducerId, Refused>;

    /// What is known of a producer.
    fn mark(&self, producer: ProducerId) -> Mark;

    /// Keeps a producer from being forgotten until it is [let go](Log::let_go) as often as it was held:
    /// who is connected is not away. False: there is none of this number, it was forgotten just now. A
    /// home that forgets nobody does nothing.
    fn hold(&self, producer: ProducerId) -> bool {
        let _ = producer;
        true
    }

    /// From now on a producer that was held is away.
    fn let_go(&self, producer: ProducerId) {
        let _ = producer;
    }

    /// Takes a batch into the queue of the writer. The batches of one producer are stored in the
    /// order of these calls.
    ///
    /// # Errors
    /// See [`Refused`]; nothing of the batch was taken.
    fn append(&self, run: Run<'_>) -> Result<Ticket, Refused>;

    /// Promises that [`append_reserved`](Log::append_reserved) will take so many bytes: the frames and
    /// [`RUN_BYTES`] for each run. For those who may only change something when they know that the
    /// change will be stored. What is promised counts as if it was appended, so it is for a moment
    /// only: use it or [give it back](Log::give_back).
    ///
    /// # Errors
    /// As [`append`](Log::append); [`Refused::TooLarge`] from a home that promises nothing.
    fn reserve(&self, bytes: usize) -> Result<(), Refused> {
        let _ = bytes;
        Err(Refused::TooLarge)
    }

    /// [`reserve`](Log::reserve) for a change that makes room, such as a removal: on a full disk it may use what
    /// [`Settings::holds_reserve`](crate::Settings::holds_reserve) has held for that.
    ///
    /// # Errors
    /// As [`reserve`](Log::reserve); [`Refused::DiskFull`] when that is used up as well.
    fn reserve_to_make_room(&self, bytes: usize) -> Result<(), Refused> {
        self.reserve(bytes)
    }

    /// Takes a batch for which `reserved` bytes were promised; none of them are left.
    ///
    /// # Errors
    /// [`Refused::Failed`], and nothing else if enough was reserved.
    fn append_reserved(&self, run: Run<'_>, reserved: usize) -> Result<Placed, Refused> {
        let _ = (run, reserved);
        Err(Refused::TooLarge)
    }

    /// Promises that what was [reserved](Log::reserve), `reserved` bytes so far, may [grow](Log::grow), whatever
    /// happens to the disk: for those who find out what they change while they change it, and cannot take it
    /// back. One caller at a time, until [`end_growing`](Log::end_growing).
    ///
    /// # Errors
    /// [`Refused::Busy`] while another may grow, or the room for it is not held yet; [`Refused::DiskFull`] if
    /// there is none; [`Refused::Failed`]; [`Refused::TooLarge`] from a home that promises nothing.
    fn begin_growing(&self, reserved: usize) -> Result<(), Refused> {
        let _ = reserved;
        Err(Refused::TooLarge)
    }

    /// Promises so many bytes more to who may [grow](Log::begin_growing).
    ///
    /// # Errors
    /// [`Refused::TooLarge`] if that is more in all than is ever taken at once, [`Refused::Failed`], and nothing
    /// else.
    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        let _ = bytes;
        Err(Refused::TooLarge)
    }

    /// Who may [grow](Log::begin_growing) needs no more. What was promised stays so.
    fn end_growing(&self) {}

    /// Gives back what was promised and is not needed.
    fn give_back(&self, reserved: usize) {
        let _ = reserved;
    }

    /// Asks for everything appended so far to be synced soon, also where the [`Policy`] would have it
    /// wait: [`Progress::durable`] tells when that has happened. A home without a disk does nothing.
    fn sync(&self) {}

    /// Says that the records of a stream below this position are of no use any more. What holds
    /// nothing but such records is removed soon; what is not removed yet can be read. It is not
    /// remembered when the log is opened again. A home that never removes anything does nothing.
    fn discard(&self, stream: StreamId, before: u64) {
        let _ = (stream, before);
    }

    /// Says how far a replicator has carried the records. What is not at home is not removed, where
    /// [`Settings::backlog`](crate::Settings::backlog) says so. A home that knows no other does nothing.
    fn carried(&self, carried: Carried) {
        let _ = carried;
    }

    /// Whether a replicator carries the records of streams of this name, where there is one.
    fn comes_home(&self, stream: &str) -> bool {
        let _ = stream;
        true
    }

    /// How far the log has come.
    fn progress(&self) -> Progress;

    /// Has `wake` called at every change of progress, once a group of batches.
    fn watch(&self, wake: Wake) -> Watch;

    /// The committed records of a stream that may be read; `None` if the stream does not exist.
    fn range(&self, stream: &str) -> Option<Range>;

    /// How many records that is: the positions of the [range](Log::range) without those that were lost in
    /// damage.
    fn records(&self, stream: &str) -> Option<u64> {
        self.range(stream).map(|range| range.next - range.first)
    }

    /// The position that `begin` means on this stream now; 0 for a stream that does not exist.
    ///
    /// # Errors
    /// [`ReadError::Beyond`], [`ReadError::Damaged`], [`ReadError::Failed`]. May block on the disk for [`Begin::Timestamp`].
    fn locate(&self, stream: &str, begin: Begin) -> Result<u64, ReadError>;

    /// Committed records of a stream from a position on, up to `credit`. **Blocks** on the disk:
    /// not for a loop. Where records are lost it ends, and says [`ReadError::Missing`] when it is
    /// called there.
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read(&self, stream: &str, from: u64, credit: Credit) -> Result<Committed, ReadError>;

    /// Where the named cursor of a stream stands; `None` if it was never set, or this home keeps no
    /// cursors.
    fn cursor(&self, stream: &str, name: &str) -> Option<u64> {
        let _ = (stream, name);
        None
    }

    /// Has the named cursor (1 to 255 bytes of UTF-8) of a stream stand at `position`; durable with
    /// the next commit.
    ///
    /// # Errors
    /// [`Refused::NoStream`];
    /// [`Refused::Beyond`] for a position that no record has had yet and the next one will not have;
    /// [`Refused::TooMany`] at the limit of cursors, and from a home that keeps none;
    /// [`Refused::Busy`], [`Refused::DiskFull`], [`Refused::Failed`].
    fn set_cursor(&self, stream: &str, name: &str, position: u64) -> Result<(), Refused> {
        let _ = (stream, name, position);
        Err(Refused::TooMany)
    }

    /// Creates, sets or deletes a stream; that is done when the ticket is committed.
    ///
    /// # Errors
    /// See [`ChangeRefused`]; nothing was changed.
    fn administer(&self, change: Change<'_>) -> Result<Ticket, ChangeRefused> {
        let _ = change;
        Err(ChangeRefused::Unsupported)
    }

    /// The first `most` streams behind the name `after`, by their names.
    fn streams(&self, after: &str, most: usize) -> Vec<StreamStatus> {
        let _ = (after, most);
        Vec::new()
    }

    /// The stream of this name.
    fn stream_status(&self, stream: &str) -> Option<StreamStatus> {
        let _ = stream;
        None
    }

    /// The first `most` named cursors of a stream behind the name `after`, by their names.
    fn cursors(&self, stream: &str, after: &str, most: usize) -> Vec<CursorStatus> {
        let _ = (stream, after, most);
        Vec::new()
    }
}
