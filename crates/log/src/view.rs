//! A read-only view of a log: beside a process that writes it, from a read-only file system, or
//! although the log is damaged.
//!
//! The one idea: a view shows the log as it was on the disk when the view was opened. A view has no
//! writer, and it uses the index and the verifying reads of the open log.

use std::io;
use std::path::Path;

use crate::catalog::Catalog;
use crate::disk::{Disk, ReadOnlyDisk};
use crate::gather::Gather;
use crate::recovery::{Found, Loaded, Manner, load};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::tools::{CursorInfo, StreamInfo};
use crate::{Begin, Committed, Credit, Damage, OpenError, Range, ReadError, Verify};

/// How often opening is tried again when retention removes a segment meanwhile.
const TRIES: u32 = 10;

/// A log as it was when the view was opened. Nothing is written, locked or made, also while another
/// process has the log open.
///
/// Records that were written but not yet acknowledged as durable may be in it: at the end of a log
/// that is written just now, or was not closed in order. Damage does not keep a view from being
/// opened: what stands before it can be read, and [`View::problem`] says where that ends.
///
/// ```
/// use tidewire_log::{Credit, EmbeddedLog, Log, ProducerId, Run, Settings, View};
///
/// let directory = tempfile::tempdir()?;
/// assert!(View::open(directory.path()).is_err(), "there is no log, and none is made");
/// let (log, _) = EmbeddedLog::start(directory.path(), Settings::default())?;
/// let stream = log.stream("default")?;
/// let frames = b"\x01\0\0\0\0\0\0\0\x05\0\0\0hello";
/// let (count, last_id, timestamp_us) = (1, 1, 0);
/// let producer = ProducerId::ANONYMOUS;
/// log.append(Run { stream, producer, frames, count, last_id, timestamp_us })?;
/// log.close();
///
/// let view = View::open(directory.path())?;
/// assert_eq!(view.streams()[0].name, "default");
/// assert_eq!(view.read("default", 0, Credit(1024))?.runs[0].bytes, frames);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct View<D: Disk = ReadOnlyDisk> {
    shared: Shared<D>,
    streams: Vec<StreamInfo>,
    cursors: Vec<CursorInfo>,
    durable_through: u64,
    problem: Option<Damage>,
}

impl View<ReadOnlyDisk> {
    /// Opens a view of the log in a directory.
    ///
    /// # Errors
    /// [`OpenError::Io`] with `NotFound` if there is no log, or what the system says.
    pub fn open(directory: &Path) -> Result<View, OpenError> {
        let disk = ReadOnlyDisk::open(directory).map_err(|error| {
            let what = format!("reading {} as a log", directory.display());
            OpenError::io(what, error)
        })?;
        View::on(disk)
    }
}

impl<D: Disk> View<D> {
    /// Opens a view of the log on a disk; nothing is changed there.
    ///
    /// # Errors
    /// [`OpenError::Io`].
    pub fn on(disk: D) -> Result<View<D>, OpenError> {
        let loaded = steady(|| load(&disk, Verify::Tail, Manner::Lenient))?;
        Ok(View::of(disk, loaded))
    }

    fn of(disk: D, loaded: Loaded<D::File>) -> View<D> {
        let streams = loaded.streams();
        let cursors = loaded.cursors();
        let catalog = Catalog::of(
            &loaded.state,
            loaded.segments.into_iter().map(Found::of_catalog),
        );
        // Nothing is ever appended: the smallest buffer will do.
        let settings = Settings {
            group_bytes: 1 << 10,
            payload_max: 512,
            ..Settings::default()
        };
        let gather = Gather::new(loaded.state, &settings, loaded.lived_us);
        View {
            shared: Shared::new(disk, settings, loaded.log.unwrap_or(0), gather, catalog),
            streams,
            cursors,
            durable_through: loaded.claims.through,
            problem: loaded.fault,
        }
    }

    /// The streams, by number.
    pub fn streams(&self) -> &[StreamInfo] {
        &self.streams
    }

    /// The named cursors.
    pub fn cursors(&self) -> &[CursorInfo] {
        &self.cursors
    }

    /// The random number of the log; 0 where nothing was ever written.
    pub fn identity(&self) -> u64 {
        self.shared.identity
    }

    /// The last batch that is known to be durable. Later ones may be in the view.
    pub fn durable_through(&self) -> u64 {
        self.durable_through
    }

    /// The first bytes that are not what was written, where the view ends, if there are any. These
    /// bytes are a group that is being written or was torn, if their batch is above
    /// [`View::durable_through`]; otherwise they are damage.
    pub fn problem(&self) -> Option<&Damage> {
        self.problem.as_ref()
    }

    /// The positions of a stream that can be read; `None` if there is no such stream.
    pub fn range(&self, stream: &str) -> Option<Range> {
        let catalog = self.shared.catalog();
        catalog.find(stream).map(|(_, stream)| stream.range())
    }

    /// The position that `begin` means, as [`Log::locate`](crate::Log::locate) says it.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn locate(&self, stream: &str, begin: Begin) -> Result<u64, ReadError> {
        self.shared.locate(stream, begin)
    }

    /// Records of a stream from a position on, as [`Log::read`](crate::Log::read) returns them.
    ///
    /// # Errors
    /// See [`ReadError`]; [`ReadError::Gone`] also when retention has removed them meanwhile.
    pub fn read(&self, stream: &str, from: u64, credit: Credit) -> Result<Committed, ReadError> {
        self.shared.read(stream, from, credit)
    }
}

/// Looks again when a file that was listed is gone: the log is written, and has removed it.
pub(crate) fn steady<T>(mut look: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let is_gone = |error: &OpenError| match error {
        OpenError::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
        _ => false,
    };
    for _ in 1..TRIES {
        match look() {
            Err(error) if is_gone(&error) => {}
            result => return result,
        }
    }
    look()
}
