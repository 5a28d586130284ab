//! Where the checkpoint is kept.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::state::Checkpoint;

/// Keeps a checkpoint.
pub trait Store {
    /// From when this returns, and whatever happens then, it is what will be loaded; if it fails, that
    /// or what was saved before.
    ///
    /// # Errors
    /// The error of the operating system.
    fn save(&mut self, checkpoint: &Checkpoint) -> io::Result<()>;
}

/// A directory with a checkpoint, used by one process at a time.
#[derive(Debug)]
pub struct StateDirectory {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
}

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system says so.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The attempt.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error("{} is used by another `tidewire ship`; each needs a --state of its own", .0.display())]
    InUse(PathBuf),
    /// The bytes of the state differ from the bytes that were written.
    #[error(
        "{} is damaged: {why}. Without it, it is unknown which file is which producer: remove it, and \
         everything is shipped again", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault, in words.
        why: String,
    },
}

const NAME: &str = "checkpoint.json";

impl StateDirectory {
    /// Opens or makes the directory; returns the last saved state.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn open(path: &Path) -> Result<(StateDirectory, Checkpoint), StoreError> {
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Io { what, path, source }
        };
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(failed("make", path))?;
        let lock = path.join("LOCK");
        let locked = private().open(&lock).map_err(failed("open", &lock))?;
        match flock(&locked, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::InUse(path.to_owned())),
            Err(e) => return Err(failed("lock", &lock)(e.into())),
        }
        let name = path.join(NAME);
        let checkpoint = match fs::read(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Checkpoint::default(),
            Err(e) => return Err(failed("read", &name)(e)),
            Ok(bytes) => {
                Checkpoint::decode(&bytes).map_err(|why| StoreError::Damaged { path: name, why })?
            }
        };
        let directory = StateDirectory {
            path: path.to_owned(),
            _lock: locked,
        };
        Ok((directory, checkpoint))
    }
}

fn private() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// Makes a file hold `bytes`, synced, or leaves its old contents.
///
/// # Errors
/// The error of the operating system.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = private().open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

impl Store for StateDirectory {
    fn save(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        write_atomically(&self.path.join(NAME), &checkpoint.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded_and_only_one_may() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let (mut store, found) = StateDirectory::open(&path).unwrap();
        assert_eq!(found, Checkpoint::default());
        assert!(matches!(
            StateDirectory::open(&path),
            Err(StoreError::InUse(_))
        ));
        let saved = Checkpoint {
            server: Some("here".into()),
            ..Checkpoint::default()
        };
        store.save(&saved).unwrap();
        drop(store);
        let (store, found) = StateDirectory::open(&path).unwrap();
        assert_eq!(found, saved);
        drop(store);
        fs::write(path.join(NAME), "{").unwrap();
        let damaged = StateDirectory::open(&path);
        assert!(matches!(damaged, Err(StoreError::Damaged { .. })));
    }
}
