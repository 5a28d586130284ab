//! The file operations of the log, behind a small trait so that a simulated disk can stand in for
//! the real one: all of a log's files live in one flat directory.

pub mod real;
pub mod sim;

use std::fmt;
use std::io::{self, IoSlice};

/// A directory of files.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// An open file. Clones share it.
    type File: DiskFile;

    /// The names of all files, in no order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file for reading and writing. Whether its name survives a crash is open
    /// until [`Disk::sync_directory`].
    ///
    /// # Errors
    /// `AlreadyExists`, or what the system says.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, replacing what had it. Atomic, durable after
    /// [`Disk::sync_directory`].
    ///
    /// # Errors
    /// What the system says.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file's name; open files stay readable.
    ///
    /// # Errors
    /// What the system says.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// What the system says.
    fn sync_directory(&self) -> io::Result<()>;
}

/// An open file.
#[expect(
    clippy::len_without_is_empty,
    reason = "nobody asks a file whether it is empty"
)]
pub trait DiskFile: Clone + fmt::Debug + Send + Sync + 'static {
    /// Reads at an offset; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `parts` one after the other from `offset` on. After an error any part of it
    /// may have been written.
    ///
    /// # Errors
    /// `StorageFull`, or what the system says.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Makes what was written durable, with as much metadata as reading it back needs
    /// (`fdatasync`). After an error it is unknown what is durable, and asking again proves
    /// nothing.
    ///
    /// # Errors
    /// What the system says.
    fn sync_data(&self) -> io::Result<()>;

    /// Sets the length and reserves the blocks up to it, which read as zeros where nothing was
    /// written (`fallocate`): writes below `len` then need no more room.
    ///
    /// # Errors
    /// `StorageFull`, or what the system says.
    fn reserve(&self, len: u64) -> io::Result<()>;

    /// Cuts the file to `len`.
    ///
    /// # Errors
    /// What the system says.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn len(&self) -> io::Result<u64>;
}
