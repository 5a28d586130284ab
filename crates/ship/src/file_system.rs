//! What is asked of a file system; real file systems and test ones answer alike.

use std::collections::BTreeSet;
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
    /// The path of the file at that time.
    pub path: PathBuf,
    /// Which one it is.
    pub id: FileId,
    /// Length of the file in bytes. That of a compressed file says nothing of what it holds, unless
    /// the file was opened.
    pub len: u64,
    /// When it was last written, in nanoseconds since the Unix epoch.
    pub modified: i128,
    /// When it was last written, renamed or changed otherwise, in nanoseconds since the Unix epoch.
    pub changed: i128,
    /// The file has no name any more: its content goes when it is closed.
    pub removed: bool,
}

/// The files that a pattern names.
#[derive(Debug, Default)]
pub struct Found {
    /// The files.
    pub files: Vec<Seen>,
    /// Directories in which there may be more, and why they cannot be looked into.
    pub hidden: Vec<(PathBuf, io::Error)>,
}

/// Files by name and by handle.
pub trait FileSystem {
    /// An open file; it can be read whatever becomes of its name.
    type File;

    /// The regular file of this name; `None` if there is none.
    ///
    /// # Errors
    /// The error of the operating system.
    fn look(&self, path: &Path) -> io::Result<Option<Seen>>;

    /// The regular files that a pattern names.
    ///
    /// # Errors
    /// The error of the operating system.
    fn find(&self, pattern: &Pattern) -> io::Result<Found>;

    /// The regular files right in a directory; none if there is no such directory.
    ///
    /// # Errors
    /// The error of the operating system.
    fn list(&self, directory: &Path) -> io::Result<Vec<Seen>>;

    /// The regular files in the directory in which `path` is, itself included, and in that of the file
    /// to which it leads if it is a symbolic link: files are rotated there.
    ///
    /// # Errors
    /// The error of the operating system.
    fn siblings(&self, path: &Path) -> io::Result<Vec<Seen>> {
        let mut found = self.list(directory_of(path))?;
        let target = self.target(path);
        if directory_of(&target) != directory_of(path) {
            found.extend(self.list(directory_of(&target))?);
        }
        Ok(found)
    }

    /// Where `path` leads, if it is a symbolic link; else it itself.
    fn target(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Opens a file for reading. Of a [compressed](crate::is_packed) one, what it holds is read.
    ///
    /// # Errors
    /// What the system says; of a compressed file that is not whole, that it is not.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Which file that is, and how long what it holds; `path` is empty.
    ///
    /// # Errors
    /// The error of the operating system.
    fn stat(&self, file: &Self::File) -> io::Result<Seen>;

    /// Reads at `offset` until `into` is full or the file ends; how many bytes.
    ///
    /// # Errors
    /// The error of the operating system.
    fn read_at(&self, file: &Self::File, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// The time of the clock that [`Seen::modified`] is of, in nanoseconds since the Unix epoch.
    fn wall(&self) -> i128;

    /// Names in these directories are watched from now on, and in no others. Why some cannot be, where that was not said before: then
    /// only looking at them tells.
    fn watch(&self, _directories: &BTreeSet<PathBuf>) -> Option<String> {
        None
    }

    /// Whether a name has come, gone or changed in a watched directory since this was asked last.
    fn has_news(&self) -> bool {
        false
    }

    /// The first offset from `offset` on that is in a hole. Without one, the file's length or more.
    fn hole_from(&self, _file: &Self::File, _offset: u64) -> u64 {
        u64::MAX
    }

    /// The first offset from `offset` on that is not in a hole, or the file's length.
    fn data_from(&self, _file: &Self::File, offset: u64) -> u64 {
        offset
    }
}

/// Where a file is.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}
