//! Metrics of the classic services, `ack`.

use crate::metric::metrics;

metrics! {
    /// Messages received whole.
    MESSAGES = Counter "tidewire_ack_messages_total" ["mode"];
    /// Payload of messages received whole; bytes.
    PAYLOAD_BYTES = Counter "tidewire_ack_payload_bytes_total" ["mode"];
    /// Acknowledgements written.
    ACKS = Counter "tidewire_ack_acks_total" ["mode"];
    /// Connections ended because a payload was larger than allowed.
    OVERSIZED = Counter "tidewire_ack_oversized_total" ["mode"];
    /// Connections whose client finished sending in the middle of a message.
    TRUNCATED = Counter "tidewire_ack_truncated_total" ["mode"];
    /// Times that the server stopped reading from a client, by the reason: `log` (the log had no room), `commits` (too many messages waited for a commit).
    PAUSES = Counter "tidewire_ack_pauses_total" ["mode", "limit"] of "paused_by_*";
    /// Connections ended because the log has failed, or does not take their messages.
    REFUSED_BY_LOG = Counter "tidewire_ack_refused_by_log_total" ["mode"];
}
