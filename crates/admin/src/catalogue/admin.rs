//! Metrics of the admin listener and of logging.

use crate::metric::metrics;

metrics! {
    /// Lines logged.
    LOG_LINES = Counter "tidewire_logging_lines_total" [];
    /// Lines that were not logged because stderr did not take them fast enough.
    LOG_LINES_DROPPED = Counter "tidewire_logging_dropped_lines_total" [];
    /// Writes of lines that failed.
    LOG_WRITES_FAILED = Counter "tidewire_logging_failed_writes_total" [];
    /// Requests to the admin listener, by the status of the answer.
    REQUESTS = Counter "tidewire_admin_requests_total" ["status"];
    /// Connections to the admin listener that are open.
    CONNECTIONS = Gauge "tidewire_admin_connections_open" [];
    /// Connections to the admin listener that were let in.
    CONNECTIONS_ACCEPTED = Counter "tidewire_admin_connections_accepted_total" [];
    /// Connections to the admin listener that were turned away, by the reason.
    CONNECTIONS_REFUSED = Counter "tidewire_admin_connections_refused_total" ["reason"];
    /// Connections to the admin listener that were closed, by the reason.
    CONNECTIONS_CLOSED = Counter "tidewire_admin_connections_closed_total" ["reason"];
    /// Connections closed for a reason of their protocol (`by_protocol` above), by that reason; `others needed the place` is a quiet connection that was closed for a new one, because all places were taken.
    CONNECTIONS_CLOSED_BY_PROTOCOL = Counter "tidewire_admin_connections_closed_by_protocol_total" ["reason"];
}
