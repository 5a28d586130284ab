//! The counters of a classic service.

use crate::counted::counters;

counters! {
    /// Messages received whole.
    messages,
    /// Payload bytes of these messages.
    payload_bytes,
    /// Acknowledgements written.
    acks,
    /// Connections ended because a payload was larger than allowed.
    oversized,
    /// Connections whose client finished sending in the middle of a message.
    truncated,
    /// Times that reading was paused because the log had no room.
    paused_by_log,
    /// Times that reading was paused because too much was not committed yet.
    paused_by_commits,
    /// Connections ended because the log has failed, or does not take their messages.
    refused_by_log,
}
