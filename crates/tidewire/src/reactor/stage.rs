//! How far a stop has come.

use crate::vocabulary::time::Instant;

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Running,
    /// Everything goes on, but no handshake begins any more. Those under way come to their end, until
    /// then.
    LastCall {
        until: Instant,
    },
    /// What has been accepted is still being reported, but not for longer than this.
    Closing {
        until: Instant,
    },
    /// Nobody comes in any more; those who are there are told, and finish.
    Draining,
}
