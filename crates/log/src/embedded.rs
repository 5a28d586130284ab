//! The log in this process: what callers hold. All the work is done by the [`Writer`].

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::disk::Disk;
use crate::disk::real::RealDisk;
use crate::format::Stored;
use crate::gather::{Gate, Gather, Room};
use crate::pack::pack;
use crate::recovery::{self, OpenError, Opening, Recovery, Watcher};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::times::CommitTimes;
use crate::writer::Writer;
use crate::{
    Begin, Carried, Change, ChangeRefused, Committed, Compression, Credit, CursorStatus, Log, Mark,
    Placed, Policy, ProducerId, Progress, Range, ReadError, Refused, Run, StreamId, StreamStatus,
    Ticket, Wake, Watch,
};

/// The embedded home of records: segments in one directory.
///
/// Dropping the log closes it, as [`EmbeddedLog::close`] does, if a thread runs its writer.
#[derive(Debug)]
pub struct EmbeddedLog<D: Disk = RealDisk> {
    shared: Arc<Shared<D>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EmbeddedLog<RealDisk> {
    /// Opens the log in a directory, which is made if need be, and starts a thread that writes it.
    ///
    /// # Errors
    /// See [`OpenError`]; also when another process has the directory open as a log.
    ///
    /// ```
    /// use tidewire_log::{Begin, Credit, EmbeddedLog, Log, ProducerId, Run, Settings};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (log, _recovery) = EmbeddedLog::start(directory.path(), Settings::default())?;
    /// let stream = log.stream("default")?;
    /// let frames = b"\x01\0\0\0\0\0\0\0\x05\0\0\0hello";
    /// let ticket = log.append(Run {
    ///     stream,
    ///     producer: ProducerId::ANONYMOUS,
    ///     frames,
    ///     count: 1,
    ///     last_id: 1,
    ///     timestamp_us: 0,
    /// })?;
    /// log.close(); // or wait, with `watch` and `progress`, until the ticket is committed
    /// assert!(log.progress().committed >= ticket);
    /// let read = log.read("default", 0, Credit(1024))?;
    /// assert_eq!(read.runs[0].bytes, frames);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(directory: &Path, settings: Settings) -> Result<(Self, Recovery), OpenError> {
        EmbeddedLog::start_watched(directory, settings, &mut |_| {})
    }

    /// [`EmbeddedLog::start`], which tells how far it has come: for each segment, and after each batch
    /// that it reads, which is often.
    ///
    /// # Errors
    /// As there.
    ///
    /// ```
    /// use tidewire_log::{EmbeddedLog, Settings};
    ///
    /// let directory = tempfile::tempdir()?;
    /// EmbeddedLog::start(directory.path(), Settings::default())?.0.close();
    /// let mut said = None;
    /// EmbeddedLog::start_watched(directory.path(), Settings::default(), &mut |how_far| {
    ///     said = Some(how_far);
    /// })?;
    /// assert_eq!(said.map_or(0, |said| said.segments), 0); // nothing was ever written
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_watched(
        directory: &Path,
        settings: Settings,
        watch: &mut dyn FnMut(Opening),
    ) -> Result<(Self, Recovery), OpenError> {
        let what = || format!("opening {} as a log", directory.display());
        let disk = RealDisk::open(directory).map_err(|error| OpenError::io(what(), error))?;
        let (log, writer, recovery) = EmbeddedLog::open_watched(disk, settings, watch)?;
        log.spawn(writer)
            .map_err(|error| OpenError::io("starting the log's thread", error))?;
        Ok((log, recovery))
    }

    /// [Closes](EmbeddedLog::close) the log and releases the directory to another process, though this value lives
    /// on. Later appends are refused; committed records can be read for as long as the other process keeps them.
    ///
    /// ```
    /// use tidewire_log::{EmbeddedLog, Settings};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (log, _) = EmbeddedLog::start(directory.path(), Settings::default())?;
    /// assert!(EmbeddedLog::start(directory.path(), Settings::default()).is_err());
    /// log.release();
    /// let successor = EmbeddedLog::start(directory.path(), Settings::default())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self) {
        self.close();
        self.shared.disk.unlock();
    }
}

impl<D: Disk> EmbeddedLog<D> {
    /// Opens the log on a disk. Nothing is written until the caller drives the writer: by
    /// [`EmbeddedLog::spawn`], or step by step.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(disk: D, settings: Settings) -> Result<(Self, Writer<D>, Recovery), OpenError> {
        EmbeddedLog::open_watched(disk, settings, &mut |_| {})
    }

    fn open_watched(
        disk: D,
        settings: Settings,
        watch: Watcher<'_>,
    ) -> Result<(Self, Writer<D>, Recovery), OpenError> {
        let (writer, recovery) = recovery::open(disk, settings, watch)?;
        let shared = writer.shared().clone();
        Ok((
            EmbeddedLog {
                shared,
                thread: Mutex::new(None),
            },
            writer,
            recovery,
        ))
    }

    /// The disk of the log. Files of the caller's own may lie beside the log's files, as long as
    /// the log does not know their names (`docs/formats/log-format.md` lists them).
    pub fn disk(&self) -> &D {
        &self.shared.disk
    }

    /// Ends the log as if a write had failed: for a caller that has had an error on its disk which
    /// puts its content in doubt.
    pub fn fail(&self, why: &str) {
        self.shared.fail(why.into());
    }

    /// Has the log leave `how_many()` bytes of its disk free, checked whenever it takes space: for
    /// a caller that needs them for files of its own. `how_many` is called on the writer's thread,
    /// must be quick and must not call the log. Later appends may make the caller's files longer,
    /// so the log also leaves as many bytes free as it could still take. The first call counts.
    pub fn leave_free(&self, how_many: impl Fn() -> u64 + Send + Sync + 'static) {
        self.shared.leave_free(Box::new(how_many));
    }

    /// How much space the log has on its disk. The log updates this by itself.
    pub fn room(&self) -> Room {
        self.shared.gather().room()
    }

    /// Has the log look for room again at once: a caller has made some.
    pub fn look_for_room(&self) {
        let mut gather = self.shared.gather();
        gather.discard_asked = true;
        gather.looks_asked += 1;
        self.shared.unpark(&mut gather);
    }

    /// Bytes that are held for what makes room, see [`Settings::holds_reserve`](crate::Settings::holds_reserve).
    pub fn reserve_bytes(&self) -> u64 {
        self.shared.reserve.length()
    }

    /// Gives the reserve (space for changes that make room) back to the disk, for a caller that
    /// makes room with it: at once, or when promised bytes of it are written. The reserve is not
    /// held again before [`EmbeddedLog::hold_reserve`].
    pub fn lend_reserve(&self) {
        self.shared.reserve.lend(&self.shared.disk);
        self.look_for_room();
    }

    /// Has the [lent](EmbeddedLog::lend_reserve) reserve be held again.
    pub fn hold_reserve(&self) {
        if self.shared.reserve.take_back() {
            self.look_for_room();
        }
    }

    /// Whether bytes that were [lent](EmbeddedLog::lend_reserve) are not held again yet.
    pub fn is_reserve_owed(&self) -> bool {
        self.shared.reserve.is_owed()
    }

    /// How long a segment is, at least.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.settings.segment_length(0)
    }

    /// Most bytes that are taken at once.
    pub fn group_bytes(&self) -> usize {
        self.shared.settings.group_bytes
    }

    /// Bytes of records that a replicator has not carried home yet; 0 where there is none.
    pub fn backlog_bytes(&self) -> u64 {
        let gather = self.shared.gather();
        gather.backlog.as_ref().map_or(0, |backlog| backlog.bytes())
    }

    /// The random number that tells this log from others.
    pub fn identity(&self) -> u64 {
        self.shared.identity
    }

    pub(crate) fn shared(&self) -> &Shared<D> {
        &self.shared
    }

    /// Starts a thread that drives the writer of this log, until [`EmbeddedLog::close`].
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn spawn(&self, writer: Writer<D>) -> std::io::Result<()> {
        assert!(
            Arc::ptr_eq(&self.shared, writer.shared()),
            "the writer is another log's"
        );
        let thread = crate::thread::spawn(writer)?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Takes no more batches, settles all batches that were taken before, closes the log in order,
    /// and waits for all of this. Reading still works. With a writer that is driven by hand, this
    /// call only refuses new batches; [`Writer::close`] does the rest.
    pub fn close(&self) {
        let mut gather = self.shared.gather();
        gather.closing = true;
        gather.gate = Gate::Shut;
        self.shared.unpark(&mut gather);
        drop(gather);
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic of the writer has been reported by its thread; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl<D: Disk> Drop for EmbeddedLog<D> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<D: Disk> Log for EmbeddedLog<D> {
    fn policy(&self) -> Policy {
        self.shared.settings.policy
    }

    fn payload_max(&self) -> u32 {
        self.shared.settings.payload_max
    }

    fn stream(&self, name: &str) -> Result<StreamId, Refused> {
        let mut gather = self.shared.gather();
        let is_new = gather.state.stream(name).is_none();
        let id = gather.stream(name, &self.shared.settings);
        if is_new && id.is_ok() {
            self.list_stream(&gather, name);
        }
        if is_new {
            // The writer is woken even when the record was refused: it may have to make room.
            self.shared.unpark(&mut gather);
        }
        id
    }

    fn producer(&self, stream: StreamId, name: &str) -> Result<ProducerId, Refused> {
        let mut gather = self.shared.gather();
        let id = gather.producer(stream, name, &self.shared.settings)?;
        self.shared.unpark(&mut gather);
        Ok(id)
    }

    fn mark(&self, producer: ProducerId) -> Mark {
        self.shared.gather().state.mark(producer.0)
    }

    fn hold(&self, producer: ProducerId) -> bool {
        self.shared.gather().state.hold(producer.0)
    }

    fn let_go(&self, producer: ProducerId) {
        let mut gather = self.shared.gather();
        let lived_us = gather.lived_us;
        gather.state.let_go(producer.0, lived_us);
    }

    fn append(&self, run: Run<'_>) -> Result<Ticket, Refused> {
        debug_assert!(
            run.count > 0 && !run.frames.is_empty(),
            "a run has at least one record"
        );
        let packed = self.packed(&run);
        let frames = match &packed {
            Some((by, packed)) => stored(*by, packed),
            None => stored(Compression::None, run.frames),
        };
        let mut gather = self.shared.gather();
        let ticket = gather.append(run, frames, &self.shared.settings);
        // The writer is woken even when the run was refused: it may have to make room for groups of
        // that size.
        self.shared.unpark(&mut gather);
        ticket
    }

    fn reserve(&self, bytes: usize) -> Result<(), Refused> {
        let mut gather = self.shared.gather();
        let reserved = gather.reserve(bytes, &self.shared.settings);
        if reserved.is_err() {
            // The writer may have to make room for groups of that size.
            self.shared.unpark(&mut gather);
        }
        reserved
    }

    fn reserve_to_make_room(&self, bytes: usize) -> Result<(), Refused> {
        let mut gather = self.shared.gather();
        let reserved = gather.reserve_to_make_room(bytes, &self.shared.settings);
        if reserved.is_err() {
            self.shared.unpark(&mut gather);
        }
        reserved
    }

    fn append_reserved(&self, run: Run<'_>, reserved: usize) -> Result<Placed, Refused> {
        let frames = stored(Compression::None, run.frames);
        let mut gather = self.shared.gather();
        let placed = gather.append_reserved(run, frames, reserved);
        self.shared.unpark(&mut gather);
        placed
    }

    fn begin_growing(&self, reserved: usize) -> Result<(), Refused> {
        let mut gather = self.shared.gather();
        let begun = gather.begin_growing(reserved, &self.shared.settings);
        if begun.is_err() {
            // The writer may have to make room for that.
            self.shared.unpark(&mut gather);
        }
        begun
    }

    fn grow(&self, bytes: usize) -> Result<(), Refused> {
        self.shared.gather().grow(bytes, &self.shared.settings)
    }

    fn end_growing(&self) {
        self.shared.gather().end_growing();
    }

    fn give_back(&self, reserved: usize) {
        self.shared.gather().give_back(reserved);
    }

    fn sync(&self) {
        let mut gather = self.shared.gather();
        gather.sync_asked = true;
        self.shared.unpark(&mut gather);
    }

    fn discard(&self, stream: StreamId, before: u64) {
        let mut gather = self.shared.gather();
        let of_stream = gather.discarded.entry(stream.0).or_default();
        *of_stream = before.max(*of_stream);
        gather.discard_asked = true;
        self.shared.unpark(&mut gather);
    }

    fn carried(&self, carried: Carried) {
        let mut gather = self.shared.gather();
        let home = carried.home.iter();
        let home =
            home.filter_map(|(name, &position)| Some((gather.state.stream(name)?, position)));
        let home = home.collect();
        if let Some(backlog) = &mut gather.backlog {
            backlog.carried(home, &self.shared.catalog());
        }
        drop(gather);
        let mut progress = self.shared.progress();
        progress.replicated = progress.replicated.max(carried.replicated);
        progress.replicates = carried.replicates;
        progress.seeks_home = carried.seeks_home;
        progress.away = carried.away;
        drop(progress);
        self.shared.watchers.wake();
    }

    fn comes_home(&self, stream: &str) -> bool {
        self.shared.settings.carries.takes(stream)
    }

    fn progress(&self) -> Progress {
        self.shared.progress().clone()
    }

    fn watch(&self, wake: Wake) -> Watch {
        Watch::new(self.shared.watchers.add(wake))
    }

    fn range(&self, stream: &str) -> Option<Range> {
        self.shared
            .catalog()
            .find(stream)
            .map(|(_, stream)| stream.range())
    }

    fn records(&self, stream: &str) -> Option<u64> {
        let catalog = self.shared.catalog();
        catalog.find(stream).map(|(_, stream)| stream.records())
    }

    fn locate(&self, stream: &str, begin: Begin) -> Result<u64, ReadError> {
        self.shared.locate(stream, begin)
    }

    fn read(&self, stream: &str, from: u64, credit: Credit) -> Result<Committed, ReadError> {
        self.shared.read(stream, from, credit)
    }

    fn cursor(&self, stream: &str, name: &str) -> Option<u64> {
        self.shared.gather().state.cursor(stream, name)
    }

    fn set_cursor(&self, stream: &str, name: &str, position: u64) -> Result<(), Refused> {
        let mut gather = self.shared.gather();
        let set = gather.set_cursor(stream, name, position, &self.shared.settings);
        self.shared.unpark(&mut gather);
        set
    }

    fn administer(&self, change: Change<'_>) -> Result<Ticket, ChangeRefused> {
        let mut gather = self.shared.gather();
        let ticket = gather.administer(change, &self.shared.settings);
        if let (Change::Create { stream, .. }, Ok(_)) = (change, ticket) {
            self.list_stream(&gather, stream);
        }
        gather.is_changed |= ticket.is_ok();
        self.shared.note_compression(&gather);
        // The writer is woken even when the record was refused: it may have to make room.
        self.shared.unpark(&mut gather);
        ticket
    }

    fn streams(&self, after: &str, most: usize) -> Vec<StreamStatus> {
        self.shared.statuses(after, most)
    }

    fn stream_status(&self, stream: &str) -> Option<StreamStatus> {
        self.shared.status(stream)
    }

    fn cursors(&self, stream: &str, after: &str, most: usize) -> Vec<CursorStatus> {
        self.shared.cursor_statuses(stream, after, most)
    }
}

impl<D: Disk> EmbeddedLog<D> {
    /// Shows a new stream to readers, while no caller can append to it yet.
    pub(crate) fn list_stream(&self, gather: &Gather, name: &str) {
        let Some(id) = gather.state.stream(name) else {
            return;
        };
        let stream = &gather.state.streams[id];
        let (name, next, trimmed) = (stream.name.clone(), stream.next, stream.trimmed);
        self.shared
            .change_catalog(|catalog| catalog.add_stream(id, name, next, trimmed));
    }

    /// The records of a run as they are to be stored, if that is another form than theirs. The lock
    /// is free meanwhile.
    fn packed(&self, run: &Run<'_>) -> Option<(Compression, Vec<u8>)> {
        let by = self.shared.compression_of(run.stream.0);
        Some((by, pack(by, run.frames)?))
    }
}

fn stored(compression: Compression, bytes: &[u8]) -> Stored<'_> {
    let crc = crc32c::crc32c(bytes);
    Stored {
        bytes,
        crc,
        compression,
    }
}

impl<D: Disk> EmbeddedLog<D> {
    /// Histogram of commit times since the log was opened: from when the writer took the oldest batch of a group until the
    /// whole group was committed, in the sense of the [`Policy`](crate::Policy). A batch that is appended while another
    /// group is written waits for that group too.
    ///
    /// ```
    /// use tidewire_log::{COMMIT_BOUNDS, EmbeddedLog, Settings};
    ///
    /// let directory = tempfile::tempdir()?;
    /// let (log, _) = EmbeddedLog::start(directory.path(), Settings::default())?;
    /// assert_eq!(log.commit_times().parts.len(), COMMIT_BOUNDS.len() + 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn commit_times(&self) -> CommitTimes {
        self.shared().times.read()
    }
}
