//! Bytes of a file.

use std::io;

use crate::file_system::FileSystem;
use crate::fingerprint::Fingerprint;

/// Up to `len` bytes.
pub(crate) fn read<S: FileSystem>(
    files: &S,
    file: &S::File,
    at: u64,
    len: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let n = files.read_at(file, at, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

pub(super) fn fits<S: FileSystem>(
    files: &S,
    file: &S::File,
    print: &Fingerprint,
) -> io::Result<bool> {
    if print.len == 0 {
        return Ok(true);
    }
    Ok(print.fits(&read(files, file, print.at, print.len)?))
}
