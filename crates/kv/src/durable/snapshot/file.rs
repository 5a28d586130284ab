//! Writing the file of a snapshot, under a name that does not count.

use std::io::{self, IoSlice};

use tidewire_log::disk::{Disk, DiskFile};

use super::format::{BLOCK_HEAD, BLOCK_MAX, BlockHead, HEADER, Header, PART, Totals};

/// Bytes of items that are one block, about.
const BLOCK: usize = 256 << 10;
/// Bytes after which the file is synced, so that the last sync has little left, and syncs of the
/// log in between wait for no more than that.
const SYNC: u64 = 8 << 20;
/// Bytes by which the room that is reserved grows when it was too little.
const GROW: u64 = 16 << 20;

/// A snapshot that is being written.
#[derive(Debug)]
pub(super) struct SnapshotFile<F> {
    file: F,
    /// Items that are not written yet.
    pub(super) items: Vec<u8>,
    next: u32,
    offset: u64,
    reserved: u64,
    /// Bytes that stay free for other users of the disk whenever room is taken.
    spare: u64,
    synced: u64,
    bytes: u64,
}

/// Takes room for a file of `len` bytes if `spare` more are free.
fn take(file: &impl DiskFile, len: u64, spare: u64) -> io::Result<()> {
    file.reserve(len.saturating_add(spare))?;
    file.truncate(len)
}

impl<F: DiskFile> SnapshotFile<F> {
    /// Begins a file with room for `expected` bytes. `spare` more bytes have to be free, for other
    /// users of the disk.
    pub(super) fn create<D: Disk<File = F>>(
        disk: &D,
        expected: u64,
        spare: u64,
    ) -> io::Result<SnapshotFile<F>> {
        if disk.list()?.iter().any(|name| name == PART) {
            disk.remove(PART)?;
        }
        let file = disk.create(PART)?;
        if let Err(error) = take(&file, expected, spare) {
            disk.remove(PART)?;
            return Err(error);
        }
        Ok(SnapshotFile {
            file,
            items: Vec::with_capacity(2 * BLOCK),
            next: 0,
            offset: HEADER as u64,
            reserved: expected,
            spare,
            synced: 0,
            bytes: 0,
        })
    }

    /// Writes the header.
    pub(super) fn begin(&mut self, header: &Header) -> io::Result<()> {
        self.room(HEADER as u64)?;
        self.file.write_at(&[IoSlice::new(&header.encode())], 0)
    }

    /// Whether enough items have gathered.
    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= BLOCK
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> u64 {
        self.offset
    }

    /// Reserves space of the file up to an offset.
    fn room(&mut self, end: u64) -> io::Result<()> {
        if end <= self.reserved {
            return Ok(());
        }
        let more = end.saturating_add(GROW);
        self.reserved = match take(&self.file, more, self.spare) {
            Ok(()) => more,
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                take(&self.file, end, self.spare)?;
                end
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Writes the items that have gathered, if they are enough.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.is_full() {
            return Ok(());
        }
        self.write_items()?;
        if self.offset - self.synced >= SYNC {
            self.file.sync_data()?;
            self.synced = self.offset;
        }
        Ok(())
    }

    fn write_items(&mut self) -> io::Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let items = std::mem::take(&mut self.items);
        if items.len() > BLOCK_MAX {
            return Err(io::Error::other("an element of more than 2 GiB"));
        }
        self.bytes += items.len() as u64;
        self.write_block(false, &items)?;
        self.items = items;
        self.items.clear();
        // A buffer that was long is not kept.
        self.items.shrink_to(4 * BLOCK);
        Ok(())
    }

    fn write_block(&mut self, is_end: bool, payload: &[u8]) -> io::Result<()> {
        let head = BlockHead::of(is_end, self.next, payload).encode();
        let end = self.offset + (BLOCK_HEAD + payload.len()) as u64;
        self.room(end)?;
        let parts = [IoSlice::new(&head), IoSlice::new(payload)];
        self.file.write_at(&parts, self.offset)?;
        self.offset = end;
        self.next += 1;
        Ok(())
    }

    /// Writes the end, and makes the whole file durable. The name still does not count.
    pub(super) fn finish(&mut self, keys: u64) -> io::Result<()> {
        self.write_items()?;
        let bytes = self.bytes;
        self.write_block(true, &Totals { keys, bytes }.encode())?;
        self.file.truncate(self.offset)?;
        self.file.sync_data()
    }
}
