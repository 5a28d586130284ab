//! An open file of the simulated disk.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use super::SimDisk;
use crate::disk::DiskFile;

/// An open file of a [`SimDisk`].
#[derive(Clone)]
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
    /// Keeps the inode's room in use after its name is removed.
    _open: Arc<()>,
}

impl SimFile {
    pub(super) fn new(disk: SimDisk, inode: u64, open: Arc<()>) -> SimFile {
        SimFile {
            disk,
            inode,
            _open: open,
        }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimFile").field(&self.inode).finish()
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.lock().read(self.inode, into, offset)
    }

    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = parts
            .iter()
            .map(|part| &part[..])
            .collect::<Vec<_>>()
            .concat();
        self.disk.lock().write(self.inode, &bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().sync(self.inode)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.disk.lock().reserve(self.inode, len)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.disk.lock().truncate(self.inode, len)
    }

    fn len(&self) -> io::Result<u64> {
        self.disk.lock().len(self.inode)
    }
}
