//! A directory of the operating system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation};

use super::{Disk, DiskFile};

/// The file that one process at a time holds locked.
const LOCK: &str = "LOCK";

/// A directory, which this process alone uses as a log.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: File,
    _lock: File,
}

impl RealDisk {
    /// Opens a directory, which is made if need be, and locks it until the value is dropped.
    ///
    /// # Errors
    /// `WouldBlock` if another process has it open as a log, or what the system says.
    pub fn open(path: &Path) -> io::Result<RealDisk> {
        fs::create_dir_all(path)?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
            if error == rustix::io::Errno::WOULDBLOCK {
                let text = format!("{}: another process has this log open", path.display());
                io::Error::new(io::ErrorKind::WouldBlock, text)
            } else {
                error.into()
            }
        })?;
        let directory = File::open(path)?;
        if let Some(parent) = fs::canonicalize(path)?.parent() {
            // The directory itself must survive a crash, too.
            File::open(parent)?.sync_all()?;
        }
        Ok(RealDisk {
            path: path.to_owned(),
            directory,
            _lock: lock,
        })
    }
}

impl Disk for RealDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            // The log's own names are ASCII; others are none of its business.
            names.extend(
                entry?
                    .file_name()
                    .into_string()
                    .ok()
                    .filter(|name| name != LOCK),
            );
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(self.path.join(name)).map(RealFile::new)
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .open(self.path.join(name))
            .map(RealFile::new)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// A file of a [`RealDisk`].
#[derive(Clone, Debug)]
pub struct RealFile {
    file: Arc<File>,
}

impl RealFile {
    fn new(file: File) -> RealFile {
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

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP) => self.write_zeros(self.len()?, len),
            Err(error) => Err(error.into()),
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
