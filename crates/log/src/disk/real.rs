//! A directory of the operating system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{Advice, FallocateFlags, FlockOperation};

use super::interface::{Disk, DiskFile, opening, patient};

/// File systems that copy blocks when they are written, by the numbers that the system has for them:
/// btrfs, ZFS, bcachefs.
const COPYING: [u32; 3] = [0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e];

/// The file that one process at a time holds locked.
pub(super) const LOCK: &str = "LOCK";

/// A directory, which this process alone uses as a log.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: File,
    lock: File,
    held_back: HeldBack,
}

/// Descriptors that are given back when a file is to be opened and there is no other: connections may have all.
#[derive(Debug, Default)]
struct HeldBack(Mutex<Vec<File>>);

impl HeldBack {
    /// How many: for a segment, the next one and its zeros, the reserve, claims, an index, a snapshot, and one more.
    const MOST: usize = 8;

    fn lock(&self) -> MutexGuard<'_, Vec<File>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds as many again as there are to be had.
    fn fill(&self, from: &File) {
        let mut held = self.lock();
        while held.len() < HeldBack::MOST
            && let Ok(file) = from.try_clone()
        {
            held.push(file);
        }
    }

    fn open<T>(&self, directory: &File, call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let opened = opening(call, || self.lock().pop().is_some());
        self.fill(directory);
        opened
    }
}

impl RealDisk {
    /// Opens a directory, which is made if need be, and locks it until the value is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it open as a log, or what the system says.
    pub fn open(path: &Path) -> io::Result<RealDisk> {
        patient(|| fs::create_dir_all(path))?;
        let lock_path = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let lock = patient(|| options.open(&lock_path))?;
        // More than once: a process that asks whether the log is open holds the lock for a moment.
        patient(|| {
            let taken = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
            taken.map_err(io::Error::from)
        })
        .map_err(|error| match error.kind() {
            // The caller knows where, and says so.
            io::ErrorKind::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                "another process has this log open",
            ),
            _ => error,
        })?;
        let directory = patient(|| File::open(path))?;
        if let Some(parent) = patient(|| fs::canonicalize(path))?.parent() {
            // The directory itself must survive a crash, too.
            patient(|| File::open(parent)?.sync_all())?;
        }
        let held_back = HeldBack::default();
        held_back.fill(&directory);
        Ok(RealDisk {
            path: path.to_owned(),
            directory,
            lock,
            held_back,
        })
    }

    /// Lets another process have the directory as a log. This process may not write to the
    /// directory any more.
    pub(crate) fn unlock(&self) {
        // Nothing but the value's end can be in the way, and that unlocks too.
        let _ = rustix::fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let list = || listed(&self.path);
        let mut names = self.held_back.open(&self.directory, list)?;
        names.retain(|name| name != LOCK);
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let open = || options.open(self.path.join(name));
        self.held_back
            .open(&self.directory, open)
            .map(RealFile::new)
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let open = || options.open(self.path.join(name));
        self.held_back
            .open(&self.directory, open)
            .map(RealFile::new)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        patient(|| fs::rename(self.path.join(from), self.path.join(to)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        patient(|| fs::remove_file(self.path.join(name)))
    }

    fn free(&self) -> Option<u64> {
        let disk = rustix::fs::fstatvfs(&self.directory).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn holds_room(&self) -> bool {
        let found = rustix::fs::fstatfs(&self.directory);
        !found.is_ok_and(|found| COPYING.contains(&(found.f_type as u32)))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// The names in a directory. The log's own are ASCII; others are none of its business.
pub(super) fn listed(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

/// A file of a [`RealDisk`] or of a [`ReadOnlyDisk`](super::ReadOnlyDisk).
#[derive(Clone, Debug)]
pub struct RealFile {
    file: Arc<File>,
}

impl RealFile {
    pub(super) fn new(file: File) -> RealFile {
        RealFile {
            file: Arc::new(file),
        }
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        let mut parts = parts.to_vec();
        let mut left = parts.as_mut_slice();
        IoSlice::advance_slices(&mut left, 0);
        while !left.is_empty() {
            match rustix::io::pwritev(&*self.file, left, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut left, count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn begin_writing(&self, offset: u64, len: u64) {
        // Linux begins to write dirty pages of the range, and drops clean ones; nothing that was just written is clean. An
        // error shows at the next sync.
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(len), Advice::DontNeed);
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        let reserved = patient(|| {
            rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len)
                .map_err(io::Error::from)
        });
        match reserved {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                self.write_zeros(self.len()?, len)
            }
            reserved => reserved,
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl RealFile {
    /// How room is reserved where the file system has no call for it.
    fn write_zeros(&self, from: u64, to: u64) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut at = from;
        while at < to {
            let count = (to - at).min(ZEROS.len() as u64);
            self.file.write_all_at(&ZEROS[..count as usize], at)?;
            at += count;
        }
        Ok(())
    }
}
