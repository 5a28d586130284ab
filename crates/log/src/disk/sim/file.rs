//! An open file of the simulated disk.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::State;
use crate::disk::DiskFile;

/// An open file of a [`SimDisk`](super::SimDisk).
#[derive(Clone)]
pub struct SimFile {
    disk: Arc<Mutex<State>>,
    inode: u64,
    /// Keeps the inode's room in use after its name is removed.
    _open: Arc<()>,
}

impl SimFile {
    pub(super) fn new(disk: Arc<Mutex<State>>, inode: u64, open: Arc<()>) -> SimFile {
        SimFile {
            disk,
            inode,
            _open: open,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panicking test may still want to look at its disk.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimFile").field(&self.inode).finish()
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.state().read(self.inode, into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts
            .iter()
            .map(|part| &part[..])
            .collect::<Vec<_>>()
            .concat();
        self.state().write(self.inode, &bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state().sync(self.inode)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.state().reserve(self.inode, len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.state().truncate(self.inode, len)
    }

    fn len(&self) -> io::Result<u64> {
        self.state().len(self.inode)
    }
}
