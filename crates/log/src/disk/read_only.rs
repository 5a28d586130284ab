//! A directory that is read and never changed: beside a process that writes it, on a read-only file
//! system, or without the right to write.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};

use super::interface::{Disk, patient};
use super::real::{LOCK, RealFile, listed};
use crate::format::number_of;

/// A directory with a log in it, of which nothing is changed: no file is made, written or locked
/// for longer than a question takes. A process that writes the log meanwhile is not disturbed.
#[derive(Debug)]
pub struct ReadOnlyDisk {
    path: PathBuf,
}

impl ReadOnlyDisk {
    /// Opens a directory that has a log in it.
    ///
    /// # Errors
    /// `NotFound` if there is no directory or no log in it, or what the system says.
    pub fn open(path: &Path) -> io::Result<ReadOnlyDisk> {
        let is_log = |name: &String| name == LOCK || number_of(name, "seg").is_some();
        let names = patient(|| listed(path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => no_log(path, "there is no such directory"),
            io::ErrorKind::NotADirectory => no_log(path, "it is no directory"),
            _ => error,
        })?;
        if !names.iter().any(is_log) {
            return Err(no_log(path, "the directory has no segment"));
        }
        Ok(ReadOnlyDisk {
            path: path.to_owned(),
        })
    }

    /// Whether a process has the log open for writing now. The result is also `false` if that
    /// cannot be found out, because the directory has no lock file or the file may not be read.
    pub fn is_written(&self) -> bool {
        let Ok(lock) = File::open(self.path.join(LOCK)) else {
            return false;
        };
        // The lock is held for the time of the question only; opening the log tries it more than
        // once.
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err()
    }
}

fn no_log(path: &Path, why: &str) -> io::Error {
    let text = format!("{}: no log there: {why}", path.display());
    io::Error::new(io::ErrorKind::NotFound, text)
}

fn refused() -> io::Error {
    io::Error::new(
        io::ErrorKind::ReadOnlyFilesystem,
        "the log was opened for reading only",
    )
}

impl Disk for ReadOnlyDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        patient(|| listed(&self.path))
    }

    fn create(&self, _: &str) -> io::Result<RealFile> {
        Err(refused())
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        // A pipe of this name would block the open until another process writes to it.
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        patient(|| options.open(self.path.join(name))).map(RealFile::new)
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(refused())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Err(refused())
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::tools;

    #[test]
    fn a_pipe_in_the_place_of_a_segment_is_an_error_and_no_wait() {
        let directory = tempfile::tempdir().expect("a directory");
        let name = "00000000000000000001.seg";
        let path = directory.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let disk = ReadOnlyDisk::open(directory.path()).expect("a log");
        let refused = tools::loss(&disk).expect_err("no file").to_string();
        assert!(refused.contains(name), "{refused}");
    }
}
