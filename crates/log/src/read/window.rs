//! A piece of a segment in memory, through which a reader looks at the file.

use std::io;
use std::sync::{Arc, PoisonError};

use super::readers::{BUFFERS_MAX, FILES_MAX};
use crate::disk::{Disk, DiskFile};
use crate::format::{Fault, segment_name};
use crate::shared::Shared;

/// How much is read at once, at least and at most, unless a single run is longer.
pub(super) const WINDOW: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;

/// A piece of a segment in memory.
pub(super) struct Window<'a, D: Disk> {
    pub(super) shared: &'a Shared<D>,
    pub(super) segment: u64,
    file: D::File,
    /// Where the committed part of the file ends.
    pub(super) end: u64,
    base: u64,
    /// The bytes that were read, in the first `filled` bytes; the others are of earlier readers.
    bytes: Vec<u8>,
    filled: usize,
    pub(super) size: usize,
}

/// Why a window cannot be had.
pub(super) enum Trouble {
    Gone,
    Damaged(Arc<str>),
    /// The system has not read it: that says nothing about what is there.
    Failed(Arc<str>),
}

impl<'a, D: Disk> Window<'a, D> {
    pub(super) fn open(
        shared: &'a Shared<D>,
        segment: u64,
        size: usize,
    ) -> Result<Window<'a, D>, Trouble> {
        let end = match shared.catalog().segments.get(&segment) {
            Some(segment) => segment.used,
            None => return Err(Trouble::Gone),
        };
        let mut files = shared
            .readers
            .files
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let file = match files.iter().position(|(number, _)| *number == segment) {
            Some(index) => files[index].1.clone(),
            None => {
                let name = segment_name(segment);
                let file = shared
                    .disk
                    .open(&name)
                    .map_err(|error| match error.kind() {
                        io::ErrorKind::NotFound => Trouble::Gone,
                        _ => Trouble::Failed(format!("{name}: cannot be opened: {error}").into()),
                    })?;
                if files.len() == FILES_MAX {
                    files.pop_front();
                }
                files.push_back((segment, file.clone()));
                file
            }
        };
        drop(files);
        let mut buffers = shared
            .readers
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let bytes = buffers.pop().unwrap_or_default();
        Ok(Window {
            shared,
            segment,
            file,
            end,
            base: 0,
            bytes,
            filled: 0,
            size,
        })
    }

    /// `length` bytes at `offset`.
    pub(super) fn at(&mut self, offset: u64, length: usize) -> Result<&[u8], Trouble> {
        let have = self.base + self.filled as u64;
        if offset < self.base || offset + length as u64 > have {
            let left = self.end.saturating_sub(offset);
            let want = length
                .max(self.size)
                .min(usize::try_from(left).unwrap_or(usize::MAX));
            if want < length {
                let found = format!("the end of what was written, at {}", self.end);
                return Err(self.damaged(Fault::new(offset, format!("{length} bytes"), found)));
            }
            if self.bytes.len() < want {
                self.bytes.resize(want, 0);
            }
            (self.base, self.filled) = (offset, 0);
            let read = self.file.read_at(&mut self.bytes[..want], offset);
            let count = read.map_err(|error| {
                let name = segment_name(self.segment);
                Trouble::Failed(format!("{name}: reading at byte {offset}: {error}").into())
            })?;
            self.filled = count;
            if count < length {
                let found = format!("the end of the file after {count}");
                return Err(self.damaged(Fault::new(offset, format!("{length} bytes"), found)));
            }
        }
        let from = (offset - self.base) as usize;
        Ok(&self.bytes[from..from + length])
    }

    pub(super) fn damaged(&self, fault: Fault) -> Trouble {
        let name = segment_name(self.segment);
        let Fault {
            offset,
            expected,
            found,
        } = fault;
        let text = format!("{name}: at byte {offset}: expected {expected}, found {found}");
        Trouble::Damaged(text.into())
    }
}

impl<D: Disk> Drop for Window<'_, D> {
    fn drop(&mut self) {
        let readers = &self.shared.readers;
        let mut buffers = readers
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < BUFFERS_MAX && self.bytes.len() <= 2 * WINDOW.end() {
            buffers.push(std::mem::take(&mut self.bytes));
        }
    }
}
