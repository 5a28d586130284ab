//! Of what shows all this.

use crate::metric::metrics;

metrics! {
    /// Lines logged.
    LOG_LINES = Counter "tidewire_logging_lines_total" [];
    /// Lines that were not logged because nobody took them fast enough.
    LOG_LINES_DROPPED = Counter "tidewire_logging_dropped_lines_total" [];
    /// Writes of lines that failed.
    LOG_WRITES_FAILED = Counter "tidewire_logging_failed_writes_total" [];
    /// Requests to the admin listener, by the status of the answer.
    REQUESTS = Counter "tidewire_admin_requests_total" ["status"];
    /// Connections to the admin listener that are open.
    CONNECTIONS = Gauge "tidewire_admin_connections_open" [];
}
