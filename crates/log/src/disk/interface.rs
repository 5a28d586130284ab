//! The operations of a log on a directory and on its files, and which errors are temporary.

use std::fmt;
use std::io::{self, IoSlice};
use std::time::Duration;

/// A directory of files.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// An open file. Clones share it.
    type File: DiskFile;

    /// The names of all files, in no order.
    ///
    /// # Errors
    /// The error of the operating system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file for reading and writing. Whether the file's name survives a crash is
    /// open until [`Disk::sync_directory`].
    ///
    /// # Errors
    /// `AlreadyExists`, or the error of the operating system.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// `NotFound`, or the error of the operating system.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name, and replaces the file that had this name. Atomic, durable after
    /// [`Disk::sync_directory`].
    ///
    /// # Errors
    /// The error of the operating system.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file's name; open files stay readable.
    ///
    /// # Errors
    /// The error of the operating system.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Whether [`DiskFile::reserve`] really reserves: writing to reserved space needs no more space.
    /// A copy-on-write file system gives no such guarantee.
    fn holds_room(&self) -> bool {
        true
    }

    /// Bytes that are free for this process, as far as the disk says: what may be reserved may be a little less. `None`
    /// if the file system does not report it.
    fn free(&self) -> Option<u64> {
        None
    }

    /// Makes creations, renames and removals durable.
    ///
    /// # Errors
    /// The error of the operating system.
    fn sync_directory(&self) -> io::Result<()>;
}

/// An open file.
#[expect(
    clippy::len_without_is_empty,
    reason = "no code asks a file whether it is empty"
)]
pub trait DiskFile: Clone + fmt::Debug + Send + Sync + 'static {
    /// Reads at an offset; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// The error of the operating system.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `parts` one after the other from `offset` on. After an error any part of it
    /// may have been written.
    ///
    /// # Errors
    /// `StorageFull`, or the error of the operating system.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Has the disk begin with what was written there, so that a [`sync_data`](DiskFile::sync_data) that comes later has
    /// little left. Promises nothing, and may do nothing.
    fn begin_writing(&self, _offset: u64, _len: u64) {}

    /// Makes what was written durable, with as much metadata as reading it back needs
    /// (`fdatasync`). After an error it is unknown which bytes are durable, and another sync proves
    /// nothing.
    ///
    /// # Errors
    /// The error of the operating system.
    fn sync_data(&self) -> io::Result<()>;

    /// Sets the length and reserves the blocks up to it, which read as zeros where nothing was
    /// written (`fallocate`): writes below `len` then need no more room.
    ///
    /// # Errors
    /// `StorageFull`, or the error of the operating system.
    fn reserve(&self, len: u64) -> io::Result<()>;

    /// Cuts the file to `len`.
    ///
    /// # Errors
    /// The error of the operating system.
    fn truncate(&self, len: u64) -> io::Result<()>;

    /// The length in bytes.
    ///
    /// # Errors
    /// The error of the operating system.
    fn len(&self) -> io::Result<u64>;
}

/// How often a call is made again that failed for want of descriptors or memory, and how long to
/// wait before.
const PATIENCE: (u32, Duration) = (20, Duration::from_millis(50));

/// [`patient`] for a call that opens a file: it does not wait for a descriptor. `give` gives one back that was held for this, if any
/// is left.
pub(crate) fn opening<T>(
    mut call: impl FnMut() -> io::Result<T>,
    mut give: impl FnMut() -> bool,
) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if has_no_descriptor(&error) => {
                if !give() {
                    return Err(error);
                }
            }
            result => return result,
        }
    }
}

/// Whether the process, or the system, may not open more files.
pub(crate) fn has_no_descriptor(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE]
        .map(Errno::raw_os_error)
        .contains(&error.raw_os_error().unwrap_or(0))
}

/// Makes a call of the system again that was interrupted, and, for up to a second, one that failed
/// because the process or the system has no descriptor or memory to spare just now: neither says
/// anything about the disk.
pub(crate) fn patient<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut left = PATIENCE.0;
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_scarce(&error) && left > 0 => {
                left -= 1;
                std::thread::sleep(PATIENCE.1);
            }
            result => return result,
        }
    }
}

/// Whether a call failed for want of something that others may give back.
pub(crate) fn is_scarce(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let scarce = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN];
    let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
    scarce.into_iter().any(is)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_with_what_was_held_for_it_and_without_waiting() {
        use rustix::io::Errno;
        let mut held = 3;
        let mut open = |missing: u32| {
            let missing = std::cell::Cell::new(missing);
            let call = || match missing.get() {
                0 => Ok(()),
                _ => Err(io::Error::from(Errno::MFILE)),
            };
            opening(call, || {
                let is_left = held > 0;
                held -= u32::from(is_left);
                missing.set(missing.get().saturating_sub(u32::from(is_left)));
                is_left
            })
        };
        assert!(open(0).is_ok());
        assert!(open(2).is_ok());
        let error = open(2).unwrap_err();
        assert!(has_no_descriptor(&error), "{error}");
    }

    #[test]
    fn interrupted_and_scarce_calls_are_made_again_and_others_are_not() {
        use rustix::io::Errno;
        for (errno, calls) in [
            (Errno::INTR, 3),
            (Errno::MFILE, 3),
            (Errno::IO, 1),
            (Errno::NOSPC, 1),
        ] {
            let mut made = 0;
            let result = patient(|| {
                made += 1;
                if made < 3 {
                    Err(io::Error::from(errno))
                } else {
                    Ok(())
                }
            });
            assert_eq!((made, result.is_ok()), (calls, calls == 3), "{errno}");
        }
    }
}
