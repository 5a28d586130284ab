//! How far a stop has come.

use crate::vocabulary::time::Instant;

/// How far a stop has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Running,
    /// Everything goes on, but no handshake begins any more. Handshakes under way come to their
    /// end, until then.
    LastCall {
        until: Instant,
    },
    /// Accepted connections are still being reported, but not for longer than this.
    Closing {
        until: Instant,
    },
    /// No client comes in any more; present connections are told, and finish.
    Draining,
}
