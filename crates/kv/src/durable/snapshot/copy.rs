//! Copying the newest snapshot, for a backup.

use std::io::{self, IoSlice};

use tidewire_log::disk::{Disk, DiskFile};

use super::format::{BLOCK_HEAD, BlockHead, HEADER, Header, name};
use super::load::positions;

/// Copied at once.
const PIECE: usize = 1 << 20;

/// Copies the newest snapshot, if there is one, checks every block of the copy, and makes it durable, but
/// not its name. Returns the snapshot's position, and its bytes. Files without a snapshot are left alone.
///
/// # Errors
/// The system's error; `InvalidData` for a snapshot that is not whole; `NotFound` if the snapshot was
/// removed meanwhile, because there is a newer one.
pub fn copy<S: Disk, T: Disk>(source: &S, into: &T) -> io::Result<Option<(u64, u64)>> {
    let Some(&newest) = positions(source)?.first() else {
        return Ok(None);
    };
    let name = name(newest);
    let from = source.open(&name)?;
    let to = into.create(&name)?;
    let size = from.len()?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < size {
        let read = from.read_at(&mut piece, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_at(&[IoSlice::new(&piece[..read])], at)?;
        at += read as u64;
    }
    check(&to, size).map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
    to.sync_data()?;
    Ok(Some((newest, size)))
}

/// Whether the blocks of a file are whole and all there.
fn check<F: DiskFile>(file: &F, size: u64) -> io::Result<()> {
    let wrong = |wrong: super::Wrong| io::Error::new(io::ErrorKind::InvalidData, wrong.to_string());
    let exactly = |into: &mut [u8], at: u64| {
        if file.read_at(into, at)? < into.len() {
            let text = format!("at byte {at}: the file ends too early");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    };
    let mut header = [0; HEADER];
    exactly(&mut header, 0)?;
    Header::decode(&header).map_err(wrong)?;
    let (mut at, mut ended) = (HEADER as u64, false);
    let mut payload = Vec::new();
    while at < size && !ended {
        let mut head = [0; BLOCK_HEAD];
        exactly(&mut head, at)?;
        let head = BlockHead::decode(&head, at).map_err(wrong)?;
        payload.resize(head.size.min(size as usize), 0);
        exactly(&mut payload, at + BLOCK_HEAD as u64)?;
        head.check(&payload, at).map_err(wrong)?;
        at += (BLOCK_HEAD + payload.len()) as u64;
        ended = head.is_end;
    }
    if ended && at == size {
        return Ok(());
    }
    let text = format!("at byte {at}: the snapshot has no end, or bytes behind its end");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}
