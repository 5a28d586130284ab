//! What is asked of a file system; real ones and those of tests answer alike.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::pattern::Pattern;

/// Which file it is, whatever it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileId {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// When it was made, in nanoseconds since the Unix epoch, where the file system knows: inodes
    /// are used again.
    pub born: Option<i128>,
}

impl FileId {
    /// Whether both would be one file if their devices were one: these get other numbers when file
    /// systems are mounted again.
    pub(crate) fn is_but_for_device(self, other: FileId) -> bool {
        (self.inode, self.born) == (other.inode, other.born)
    }
}

/// A regular file as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// What it was called then.
    pub path: PathBuf,
    /// Which one it is.
    pub id: FileId,
    /// Its length in bytes.
    pub len: u64,
    /// When it was last written, in nanoseconds since the Unix epoch.
    pub modified: i128,
}

/// Files by name and by handle.
pub trait FileSystem {
    /// An open file; it can be read whatever becomes of its name.
    type File;

    /// The regular file of this name; `None` if there is none.
    ///
    /// # Errors
    /// What the system says.
    fn look(&self, path: &Path) -> io::Result<Option<Seen>>;

    /// The regular files that a pattern names, in the order of their names.
    ///
    /// # Errors
    /// What the system says.
    fn find(&self, pattern: &Pattern) -> io::Result<Vec<Seen>>;

    /// The regular files in the directory in which `path` is, itself included, and in that of the file
    /// to which it leads if it is a symbolic link: files are rotated there.
    ///
    /// # Errors
    /// What the system says.
    fn siblings(&self, path: &Path) -> io::Result<Vec<Seen>>;

    /// Where `path` leads, if it is a symbolic link; else it itself.
    fn target(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// What the system says.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Which file that is, and how long; `path` is empty.
    ///
    /// # Errors
    /// What the system says.
    fn stat(&self, file: &Self::File) -> io::Result<Seen>;

    /// Reads at `offset` until `into` is full or the file ends; how many bytes.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> io::Result<usize>;
}
