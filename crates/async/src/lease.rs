//! How long a dialled connection lives.

use std::io;

use crate::shared::{Ending, Shared};

/// Ends a dialled connection when its last stream is dropped.
pub(crate) struct Lease {
    of: Shared,
    by: Shared,
}

impl Lease {
    /// Ties this connection to the one that has dialled it.
    pub(crate) fn new(of: Shared, by: Shared) -> Lease {
        Lease { of, by }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Who had dialled and was cut passes that on.
        let by = self.by.lock();
        let is_cut = by
            .broken
            .is_some_and(|kind| kind != io::ErrorKind::BrokenPipe);
        drop(by);
        let how = if is_cut {
            Ending::Abort
        } else {
            Ending::Finish
        };
        self.of.change(|state| state.end(how));
    }
}
