//! What another file is to a follower.

use std::io::{self, ErrorKind};

use crate::file_system::Seen;
use crate::pattern::is_packed;

/// The relation of a file to a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// Another file.
    None,
    /// What a copy of the follower's file is that is being made, or is about to replace it.
    Prefix,
    /// All that is known of the follower's file, which has gone or is read by another handle.
    Same,
    /// The file that the follower is to go on with.
    Rest,
}

/// Whether a file that cannot be opened is certainly no readable copy; otherwise the machine has run out of a resource.
pub(crate) fn is_no_copy(e: &io::Error, seen: &Seen) -> bool {
    matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied)
        || (is_packed(&seen.path) && e.raw_os_error().is_none())
}
