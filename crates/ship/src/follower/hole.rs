//! Holes: what a file is said to have, and nothing was written to.
//!
//! A writer that does not append goes on where it was after its file was truncated, and leaves a hole before that. The file system tells holes
//! and zeros that were written apart, but only in whole blocks: the zeros right before a hole belong to it.

use std::io;

use super::reading::read;
use crate::file_system::FileSystem;

/// Largest block of a file system.
const BLOCK: u64 = 64 << 10;

/// How a file begins, in at most so many bytes; without the zeros of a hole at its end, to which something may be written.
pub(super) fn beginning<S: FileSystem>(
    files: &S,
    file: &S::File,
    most: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = read(files, file, 0, most)?;
    without_hole_at_end(files, file, 0, &mut bytes)?;
    Ok(bytes)
}

/// Takes the zeros of a hole at the end of the file, to which something may be written, off bytes that were read at `at`.
pub(super) fn without_hole_at_end<S: FileSystem>(
    files: &S,
    file: &S::File,
    at: u64,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    if bytes.last() != Some(&0) {
        return Ok(());
    }
    let last = bytes.iter().rposition(|byte| *byte != 0);
    let len = last.map_or(0, |last| last + 1);
    let written = at + len as u64;
    let hole = files.hole_from(file, written);
    // Between what was written and the hole are the zeros of its block.
    let data = files.data_from(file, hole);
    let is_at_end = data > hole && data >= files.stat(file)?.len;
    let between = (hole - written).min(BLOCK) as usize;
    if is_at_end && are_zeros(&read(files, file, written, between)?) {
        bytes.truncate(len);
    }
    Ok(())
}

pub(super) fn are_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A hole behind what was read of a file, up to which the buffer has everything.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    /// Where its zeros begin.
    pub(super) from: u64,
    /// The first block of it.
    pub(super) block: u64,
    /// The next byte that is no hole; the length of the file where there is none.
    pub(super) to: u64,
}

/// The holes that a follower knows.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Zeros that are being passed over: where they begin, and how many.
    pub(super) passed: Option<(u64, u64)>,
    pub(super) ahead: Option<Hole>,
    /// The offset of a hole at the end of the file that was told.
    pub(super) told: Option<u64>,
}

impl Holes {
    /// The buffer is to be placed anew.
    pub(super) fn displaced(&mut self) {
        *self = Holes {
            told: self.told,
            ..Holes::default()
        };
    }
}
