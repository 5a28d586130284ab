//! Metrics of the service `http`.

use crate::metric::metrics;

metrics! {
    /// Requests whose heads were complete and valid.
    REQUESTS = Counter "tidewire_http_requests_total" [];
    /// Replies, by the class of their status.
    REPLIES = Counter "tidewire_http_replies_total" ["status"];
    /// Requests refused, by the reason: `malformed`, `too_large`, `too_slow`, `overloaded`.
    REFUSED = Counter "tidewire_http_refused_total" ["reason"];
    /// Bytes of request bodies that are being gathered, on all loops.
    GATHERING_BYTES = Gauge "tidewire_http_gathering_bytes" [];
}
