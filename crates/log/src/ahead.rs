//! One of the mistakes that tests must find, compiled only with the feature `mistakes`: producers'
//! marks are kept in a file beside the log, are durable before the log is, and are believed where
//! they are ahead of it.

use std::io::{self, IoSlice};

use crate::disk::{Disk, DiskFile, contents};
use crate::format::{Form, u32_at, u64_at};
use crate::state::State;

const NAME: &str = "marks";

/// Saves the marks that are known before `next_batch`.
pub(crate) fn save<D: Disk>(disk: &D, state: &State, next_batch: u64) -> io::Result<()> {
    let mut bytes = vec![0; 12];
    state.encode(&mut bytes);
    let crc = crc32c::crc32c(&bytes[12..]);
    bytes[..8].copy_from_slice(&next_batch.to_le_bytes());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    let file = match disk.open(NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let file = disk.create(NAME)?;
            disk.sync_directory()?;
            file
        }
        file => file?,
    };
    file.truncate(bytes.len() as u64)?;
    file.write_at(&[IoSlice::new(&bytes)], 0)?;
    file.sync_data()
}

/// The saved marks, if they are ahead of `next_batch`.
pub(crate) fn load<D: Disk>(disk: &D, next_batch: u64) -> Option<State> {
    let mut bytes = Vec::new();
    contents(disk, NAME, &mut bytes).ok()?;
    if bytes.len() < 12 || crc32c::crc32c(&bytes[12..]) != u32_at(&bytes, 8) {
        return None;
    }
    (u64_at(&bytes, 0) > next_batch)
        .then(|| {
            let forms = [Form::Administered, Form::Plain];
            forms
                .into_iter()
                .find_map(|form| State::decode(&bytes[12..], form))
        })
        .flatten()
}
