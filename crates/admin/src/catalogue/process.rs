//! Metrics of the process, under the names that all Prometheus clients use.

use crate::metric::metrics;

metrics! {
    /// User and system time of the process.
    CPU_SECONDS = Counter "process_cpu_seconds_total" [];
    /// Resident memory of the process.
    RESIDENT_BYTES = Gauge "process_resident_memory_bytes" [];
    /// Virtual memory of the process.
    VIRTUAL_BYTES = Gauge "process_virtual_memory_bytes" [];
    /// Descriptors that are open.
    OPEN_FDS = Gauge "process_open_fds" [];
    /// Descriptors that may be open.
    MAX_FDS = Gauge "process_max_fds" [];
    /// When the process started: seconds since 1970.
    START_TIME = Gauge "process_start_time_seconds" [];
    /// Threads of the process.
    THREADS = Gauge "tidewire_process_threads" [];
}
