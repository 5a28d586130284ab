//! What a classic service has counted.

use crate::counted::counters;

counters! {
    /// Messages received whole.
    messages,
    /// Their payload bytes.
    payload_bytes,
    /// Acknowledgements written.
    acks,
    /// Connections ended because a payload was larger than allowed.
    oversized,
    /// Connections whose client finished sending in the middle of a message.
    truncated,
}
