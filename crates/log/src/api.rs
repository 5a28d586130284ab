//! The interface of a log: append a batch, learn later when it is durable, read from a position.
//! [`crate`] has the embedded implementation; a replicated one would stand behind the same trait.

use crate::format::RECORDS_HEADER;
use crate::streams::{Change, ChangeRefused, CursorStatus, StreamStatus};
use crate::types::{
    Begin, Carried, Committed, Credit, Mark, Placed, Policy, ProducerId, Progress, Range,
    ReadError, Refused, Run, StreamId, Ticket, Wake, Watch,
};

/// Bytes that a run takes in a group beside its frames.
pub const RUN_BYTES: usize = RECORDS_HEADER;

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

    /// The mark of a producer.
    fn mark(&self, producer: ProducerId) -> Mark;

    /// Keeps a producer from being forgotten until it is [let go](Log::let_go) as often as it was
    /// held: a connected producer is not away. False: the log has no producer with this number; it
    /// was forgotten just now. A log that forgets no producer does nothing.
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
    /// See [`Refused`]; no record of the batch was taken.
    fn append(&self, run: Run<'_>) -> Result<Ticket, Refused>;

    /// Promises that [`append_reserved`](Log::append_reserved) will take this many bytes: the frames
    /// and [`RUN_BYTES`] for each run. For callers that may change something only when they know that
    /// the log will store the change. Promised bytes count as appended, so use them or [give them
    /// back](Log::give_back) at once.
    ///
    /// # Errors
    /// As for [`append`](Log::append); [`Refused::TooLarge`] from a log that makes no promises.
    fn reserve(&self, bytes: usize) -> Result<(), Refused> {
        let _ = bytes;
        Err(Refused::TooLarge)
    }

    /// [`reserve`](Log::reserve) for a change that makes room, such as a removal: on a full disk it may use what
    /// [`Settings::holds_reserve`](crate::Settings::holds_reserve) has held for that.
    ///
    /// # Errors
    /// As for [`reserve`](Log::reserve); [`Refused::DiskFull`] when the space for removals is used
    /// up as well.
    fn reserve_to_make_room(&self, bytes: usize) -> Result<(), Refused> {
        self.reserve(bytes)
    }

    /// Takes a batch for which `reserved` bytes were promised; none of them are left.
    ///
    /// # Errors
    /// [`Refused::Failed`]; no other refusal if enough was reserved.
    fn append_reserved(&self, run: Run<'_>, reserved: usize) -> Result<Placed, Refused> {
        let _ = (run, reserved);
        Err(Refused::TooLarge)
    }

    /// Promises that [reserved](Log::reserve) bytes, `reserved` so far, may [grow](Log::grow),
    /// whatever happens to the disk. For callers that only learn while they make a change how large
    /// it is, and cannot take it back. Only one caller at a time may grow, until
    /// [`end_growing`](Log::end_growing).
    ///
    /// # Errors
    /// [`Refused::Busy`] while another caller may grow, or the space is not reserved yet;
    /// [`Refused::DiskFull`] if there is none; [`Refused::Failed`]; [`Refused::TooLarge`] from a log that
    /// makes no promises.
    fn begin_growing(&self, reserved: usize) -> Result<(), Refused> {
        let _ = reserved;
        Err(Refused::TooLarge)
    }

    /// Promises so many bytes more to the caller that may [grow](Log::begin_growing).
    ///
    /// # Errors
    /// [`Refused::TooLarge`] if that is more in all than is ever taken at once, [`Refused::Failed`], and nothing
    /// else.
    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        let _ = bytes;
        Err(Refused::TooLarge)
    }

    /// The caller that may [grow](Log::begin_growing) needs no more. Bytes that were promised stay
    /// promised.
    fn end_growing(&self) {}

    /// Gives back promised bytes that are not needed.
    fn give_back(&self, reserved: usize) {
        let _ = reserved;
    }

    /// Asks for everything appended so far to be synced soon, also where the [`Policy`] would have it
    /// wait: [`Progress::durable`] tells when that has happened. A home without a disk does nothing.
    fn sync(&self) {}

    /// Says that the records of a stream below this position are not needed any more. Segments that hold
    /// only such records are removed soon; records that are not removed yet can be read. The position is
    /// forgotten when the log is closed. A log that never removes anything does nothing.
    fn discard(&self, stream: StreamId, before: u64) {
        let _ = (stream, before);
    }

    /// Says how far a replicator has carried the records. With
    /// [`Settings::backlog`](crate::Settings::backlog), records that are not in the home are not
    /// removed. A log without a home does nothing.
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

    /// The committed records of a stream that can be read; `None` if the stream does not exist.
    fn range(&self, stream: &str) -> Option<Range>;

    /// The number of records: positions of the [range](Log::range) less the ones that were lost in
    /// damage.
    fn records(&self, stream: &str) -> Option<u64> {
        self.range(stream).map(|range| range.next - range.first)
    }

    /// The position that `begin` means on this stream now; 0 for a stream that does not exist.
    ///
    /// # Errors
    /// [`ReadError::Beyond`], [`ReadError::Damaged`], [`ReadError::Failed`]. May block on the disk for [`Begin::Timestamp`].
    fn locate(&self, stream: &str, begin: Begin) -> Result<u64, ReadError>;

    /// Reads committed records of a stream from a position on, up to `credit`. **Blocks** on the
    /// disk: do not call this on a loop. Before lost records the read ends; a read that begins
    /// there returns [`ReadError::Missing`].
    ///
    /// # Errors
    /// See [`ReadError`].
    fn read(&self, stream: &str, from: u64, credit: Credit) -> Result<Committed, ReadError>;

    /// The position of the named cursor of a stream; `None` if the cursor was never set, or this
    /// log keeps no cursors.
    fn cursor(&self, stream: &str, name: &str) -> Option<u64> {
        let _ = (stream, name);
        None
    }

    /// Has the named cursor (1 to 255 bytes of UTF-8) of a stream stand at `position`; durable with
    /// the next commit.
    ///
    /// # Errors
    /// [`Refused::NoStream`]; [`Refused::Beyond`] for a position behind the next record's;
    /// [`Refused::TooMany`] at the limit of cursors, and from a log that keeps none;
    /// [`Refused::Busy`], [`Refused::DiskFull`], [`Refused::Failed`].
    fn set_cursor(&self, stream: &str, name: &str, position: u64) -> Result<(), Refused> {
        let _ = (stream, name, position);
        Err(Refused::TooMany)
    }

    /// Creates, sets or deletes a stream; that is done when the ticket is committed.
    ///
    /// # Errors
    /// See [`ChangeRefused`]; the streams are unchanged.
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
