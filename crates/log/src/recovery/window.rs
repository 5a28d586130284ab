//! A file seen through a window that moves: reading a segment takes the memory of its largest batch,
//! however long it is.

use std::io;

use crate::disk::{Disk, DiskFile};

/// Written or looked at at once.
pub(super) const PIECE: usize = 1 << 20;
/// Read at once, unless a batch is longer.
const AHEAD: usize = 4 << 20;

/// Bytes of a file, or of what stands for one.
pub(crate) trait Bytes {
    /// `wanted` bytes from `offset` on; fewer only at the end.
    ///
    /// # Errors
    /// The error of the operating system.
    fn get(&mut self, offset: u64, wanted: usize) -> io::Result<&[u8]>;
}

impl Bytes for &[u8] {
    fn get(&mut self, offset: u64, wanted: usize) -> io::Result<&[u8]> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = <[u8]>::get(self, offset..).unwrap_or_default();
        Ok(&rest[..wanted.min(rest.len())])
    }
}

/// The module's comment describes the type.
#[derive(Debug)]
pub(crate) struct Window<F> {
    file: F,
    length: u64,
    /// The offset at which `bytes` begin.
    at: u64,
    bytes: Vec<u8>,
}

impl<F: DiskFile> Window<F> {
    pub(crate) fn open<D: Disk<File = F>>(disk: &D, name: &str) -> io::Result<Window<F>> {
        let file = disk.open(name)?;
        let length = file.len()?;
        Ok(Window {
            file,
            length,
            at: 0,
            bytes: Vec::new(),
        })
    }

    pub(crate) fn file(&self) -> &F {
        &self.file
    }

    /// The length of the file when it was opened.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The offset behind the last non-zero byte from `from` on; `from` if there is none.
    pub(crate) fn significant(&mut self, from: u64) -> io::Result<u64> {
        let mut end = from;
        self.pieces(from, self.length, |at, piece| {
            if let Some(last) = piece.iter().rposition(|&byte| byte != 0) {
                end = at + last as u64 + 1;
            }
            Ok(())
        })?;
        Ok(end)
    }

    /// Whether all from `from` on is zeros.
    pub(crate) fn is_zero(&mut self, from: u64) -> io::Result<bool> {
        let mut at = from;
        loop {
            let piece = self.get(at, PIECE)?;
            if piece.is_empty() {
                return Ok(true);
            }
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at += piece.len() as u64;
        }
    }

    /// Goes over `from..to` in pieces, each with its offset.
    pub(crate) fn pieces(
        &mut self,
        from: u64,
        to: u64,
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = from;
        while at < to {
            let wanted = PIECE.min(usize::try_from(to - at).unwrap_or(PIECE));
            let piece = self.get(at, wanted)?;
            if piece.is_empty() {
                break;
            }
            each(at, piece)?;
            at += piece.len() as u64;
        }
        Ok(())
    }
}

impl<F: DiskFile> Bytes for Window<F> {
    fn get(&mut self, offset: u64, wanted: usize) -> io::Result<&[u8]> {
        let wanted = self.length.saturating_sub(offset).min(wanted as u64);
        let begin = offset.checked_sub(self.at);
        let is_here = begin.is_some_and(|begin| begin + wanted <= self.bytes.len() as u64);
        if !is_here {
            let ahead = self.length.saturating_sub(offset).min(AHEAD as u64);
            let fresh = ahead.max(wanted) as usize;
            // The bytes that are there already stay.
            let here = begin.filter(|begin| *begin < self.bytes.len() as u64);
            let kept = here.map_or(0, |begin| self.bytes.len() - begin as usize);
            let from = self.bytes.len() - kept;
            self.bytes.copy_within(from.., 0);
            self.bytes.resize(fresh.max(kept), 0);
            self.at = offset;
            let into = &mut self.bytes[kept..];
            let count = self.file.read_at(into, offset + kept as u64)?;
            if count < into.len() {
                // The file has become shorter.
                self.bytes.truncate(kept + count);
                self.length = offset + (kept + count) as u64;
            }
        }
        let begin = (offset - self.at) as usize;
        let end = self.bytes.len().min(begin + wanted as usize);
        Ok(&self.bytes[begin..end])
    }
}
