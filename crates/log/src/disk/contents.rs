//! A file as a whole.

use std::io;

use super::interface::{Disk, DiskFile};

/// Reads a whole file.
pub(crate) fn contents<D: Disk>(disk: &D, name: &str, into: &mut Vec<u8>) -> io::Result<()> {
    let file = disk.open(name)?;
    let length = usize::try_from(file.len()?).map_err(io::Error::other)?;
    into.clear();
    into.resize(length, 0);
    let count = file.read_at(into, 0)?;
    into.truncate(count);
    Ok(())
}
