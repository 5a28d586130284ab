//! Reading a stream of a view, run by run.

use tidewire_log::{Credit, Frames, ReadError, View};

use super::Ended;
use crate::exit::Failure;

/// Bytes read at a time.
const AT_ONCE: Credit = Credit(1 << 20);

/// Reads a stream to its end, run by run.
pub(super) fn read(
    view: &View,
    stream: &str,
    from: u64,
    mut each: impl FnMut(&Frames) -> Result<(), Ended>,
) -> Result<(), Ended> {
    let Some(range) = view.range(stream) else {
        return Ok(());
    };
    let mut at = from.max(range.first);
    while at < range.next {
        let read = match view.read(stream, at, AT_ONCE) {
            Ok(read) if read.runs.is_empty() => return Ok(()),
            Ok(read) => read,
            Err(ReadError::Missing { next, .. }) => {
                at = next;
                continue;
            }
            Err(e) => return Err(Failure::wrong(e.to_string()).into()),
        };
        read.runs.iter().try_for_each(&mut each)?;
        at = read.next;
    }
    Ok(())
}
