//! Records that are read from a home, on their way into a log.

use std::time::Duration;

use tidewire_log::Refused;

/// Calls `put` until the log has room in its queue.
pub(super) fn patiently<T>(mut put: impl FnMut() -> Result<T, Refused>) -> Result<T, String> {
    loop {
        match put() {
            Err(Refused::Busy) => std::thread::sleep(Duration::from_millis(1)),
            done => return done.map_err(|e| e.to_string()),
        }
    }
}

/// The id of the last message; the frames are whole.
pub(super) fn last_id(mut frames: &[u8]) -> Option<u64> {
    let mut last = None;
    while let Some((header, rest)) = frames.split_first_chunk::<12>() {
        let (id, size) = header.split_first_chunk::<8>()?;
        last = Some(u64::from_le_bytes(*id));
        let size = u32::from_le_bytes(size.try_into().ok()?) as usize;
        frames = rest.get(size..)?;
    }
    last
}
