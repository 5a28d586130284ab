//! Files that may become other files.

use std::time::Duration;

/// A named file that may be a copy which is being made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) len: u64,
    pub(crate) modified: i128,
    /// Since when it has not changed.
    pub(crate) since: Duration,
}
