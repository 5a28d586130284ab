//! The state that the writer, appending threads and readers have in common.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use crate::catalog::Catalog;
use crate::disk::Disk;
use crate::format::Needs;
use crate::gather::{Gate, Gather};
use crate::read::Readers;
use crate::reserve::Reserve;
use crate::settings::Settings;
use crate::times::Counted;
use crate::zeros::Zeros;
use crate::{Compression, Failure, Progress, Wake};

/// Locks are taken in the order of the fields, where more than one is held.
#[derive(Debug)]
pub(crate) struct Shared<D: Disk> {
    pub(crate) disk: D,
    pub(crate) settings: Settings,
    /// The random number of the log.
    pub(crate) identity: u64,
    gather: Mutex<Gather>,
    /// Where the writer's thread is parked: there is something to write, or the log closes.
    pub(crate) work: Condvar,
    catalog: RwLock<Catalog>,
    progress: Mutex<Progress>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) readers: Readers<D::File>,
    /// Work that a helper thread does for the writer, where there is one.
    pub(crate) zeros: Zeros<D::File>,
    /// Room that only what makes room may use.
    pub(crate) reserve: Reserve<D::File>,
    /// How long commits took.
    pub(crate) times: Counted,
    leaves: Leaves,
    empty_name: Arc<str>,
    /// Some stream may be compressed: otherwise no append need ask.
    compresses: AtomicBool,
}

impl<D: Disk> Shared<D> {
    pub(crate) fn new(
        disk: D,
        settings: Settings,
        identity: u64,
        mut gather: Gather,
        catalog: Catalog,
    ) -> Self {
        for (id, stream) in gather.state.streams.iter_mut() {
            stream.held = catalog.streams.get(id).map_or(0, |known| known.held);
        }
        let compresses = gather.state.needs().has(Needs::COMPRESSION);
        Shared {
            compresses: AtomicBool::new(compresses),
            disk,
            settings,
            identity,
            gather: Mutex::new(gather),
            work: Condvar::new(),
            catalog: RwLock::new(catalog),
            progress: Mutex::default(),
            watchers: Arc::default(),
            readers: Readers::new(),
            zeros: Zeros::default(),
            reserve: Reserve::default(),
            times: Counted::default(),
            leaves: Leaves::default(),
            empty_name: "".into(),
        }
    }

    // A panic elsewhere leaves the state usable: progress is published only after a commit is
    // complete.

    pub(crate) fn gather(&self) -> MutexGuard<'_, Gather> {
        self.gather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn catalog(&self) -> RwLockReadGuard<'_, Catalog> {
        self.catalog.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change_catalog<T>(&self, change: impl FnOnce(&mut Catalog) -> T) -> T {
        change(&mut self.catalog.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on so many bytes of the disk are left free.
    pub(crate) fn leave_free(&self, how_many: Box<dyn Fn() -> u64 + Send + Sync>) {
        self.leaves.0.get_or_init(|| how_many);
    }

    /// Whether the log may take `more` bytes of its disk, beside `idle` bytes that it has taken and not written yet. `fills`
    /// says that the bytes will hold records; records may make the caller's files longer, for which space is left free.
    ///
    /// # Errors
    /// [`StorageFull`](io::ErrorKind::StorageFull).
    pub(crate) fn may_take(&self, more: u64, idle: u64, fills: bool) -> io::Result<()> {
        let Some(how_many) = self.leaves.0.get() else {
            return Ok(());
        };
        let Some(free) = self.disk.free() else {
            return Ok(());
        };
        let written = if fills { more } else { 0 };
        let left_free = how_many().saturating_add(idle).saturating_add(written);
        match free.checked_sub(more).is_some_and(|free| free >= left_free) {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    /// How the records of a stream are to be stored.
    pub(crate) fn compression_of(&self, stream: u32) -> Compression {
        if !self.compresses.load(Ordering::Relaxed) {
            return Compression::None;
        }
        let gather = self.gather();
        let stream = gather.state.streams.get(stream);
        stream.map_or(Compression::None, |stream| stream.settings.compression)
    }

    /// A stream was changed.
    pub(crate) fn note_compression(&self, gather: &Gather) {
        let compresses = gather.state.needs().has(Needs::COMPRESSION);
        self.compresses.store(compresses, Ordering::Relaxed);
    }

    /// Takes removed segments out of the count.
    pub(crate) fn account_freed(&self) {
        let freed = self.change_catalog(Catalog::take_freed);
        if freed.is_empty() {
            return;
        }
        let mut gather = self.gather();
        for (id, bytes) in freed {
            if let Some(stream) = gather.state.streams.get_mut(id) {
                stream.held = stream.held.saturating_add_signed(-bytes);
            }
        }
    }

    /// Empty for anonymous messages and for a producer that has expired.
    pub(crate) fn producer_name(&self, producer: u32) -> Arc<str> {
        if producer == 0 {
            return self.empty_name.clone();
        }
        let gather = self.gather();
        gather
            .state
            .find(producer)
            .map_or(&self.empty_name, |found| &found.name)
            .clone()
    }

    /// Stops the log: it takes no more records, and reports why.
    pub(crate) fn fail(&self, why: Arc<str>) {
        self.gather().gate = Gate::Shut;
        self.progress().failure = Some(Failure(why));
        self.watchers.wake();
    }

    /// Has the writer look for work, if it is parked and does not wait for more than there is.
    pub(crate) fn unpark(&self, gather: &mut Gather) {
        if gather.parked && !gather.is_awaited() {
            gather.parked = false;
            self.work.notify_one();
        }
    }
}

/// How many bytes of the disk are left free for a caller.
#[derive(Default)]
struct Leaves(OnceLock<Box<dyn Fn() -> u64 + Send + Sync>>);

impl std::fmt::Debug for Leaves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Leaves")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// Callbacks that want to be told.
#[derive(Default)]
pub(crate) struct Watchers {
    list: Mutex<Listed>,
}

/// The list is replaced when it changes, so that it can be called without the lock.
#[derive(Default)]
struct Listed {
    last: u64,
    wakes: Arc<Vec<(u64, Wake)>>,
}

impl std::fmt::Debug for Watchers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watchers")
    }
}

impl Watchers {
    pub(crate) fn add(self: &Arc<Self>, wake: Wake) -> Watching {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.last += 1;
        let id = list.last;
        Arc::make_mut(&mut list.wakes).push((id, wake));
        Watching {
            watchers: self.clone(),
            id,
        }
    }

    pub(crate) fn wake(&self) {
        let list = self
            .list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .wakes
            .clone();
        for (_, wake) in list.iter() {
            wake();
        }
    }
}

/// A registered watcher; dropping the value ends the registration.
pub(crate) struct Watching {
    watchers: Arc<Watchers>,
    id: u64,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut list = self
            .watchers
            .list
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut list.wakes).retain(|(id, _)| *id != self.id);
    }
}
