//! Metrics of the durable logs: the log of messages, and the log of a durable key-value store.

use crate::metric::metrics;

/// Upper bounds for how long a commit takes; seconds.
pub const COMMIT_BOUNDS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0,
];

metrics! {
    /// Batches appended since the log was opened, committed or not.
    APPENDED_BATCHES = Counter "tidewire_log_appended_batches_total" ["log"];
    /// Batches handed to the operating system.
    WRITTEN_BATCHES = Counter "tidewire_log_written_batches_total" ["log"];
    /// Batches committed in the sense of the log's policy.
    COMMITTED_BATCHES = Counter "tidewire_log_committed_batches_total" ["log"];
    /// Groups of batches that were written: each is one write, and with the policy sync one sync.
    WRITTEN_GROUPS = Counter "tidewire_log_written_groups_total" ["log"];
    /// How long commits took: from when the writer took the oldest batch of a group until the whole group was committed, in the sense of the log's policy. A batch that comes while another group is written waits for that group too.
    COMMIT_SECONDS = Histogram(&COMMIT_BOUNDS) "tidewire_log_commit_seconds" ["log"];
    /// Bytes gathered for the next group.
    QUEUED_BYTES = Gauge "tidewire_log_queued_bytes" ["log"];
    /// Segments on the disk.
    SEGMENTS = Gauge "tidewire_log_segments" ["log"];
    /// Bytes of committed batches in the segments.
    USED_BYTES = Gauge "tidewire_log_used_bytes" ["log"];
    /// Bytes of the file system that the log is on.
    DISK_SIZE = Gauge "tidewire_log_disk_size_bytes" ["log"];
    /// Bytes of the log's disk that the process may still use.
    DISK_FREE = Gauge "tidewire_log_disk_free_bytes" ["log"];
    /// Streams of the log.
    STREAMS = Gauge "tidewire_log_streams" ["log"];
    /// Producers that the log remembers.
    PRODUCERS = Gauge "tidewire_log_producers" ["log"];
    /// The position that the next record of a stream will have; for the first 100 streams.
    STREAM_NEXT = Gauge "tidewire_log_stream_next_position" ["log", "stream"];
    /// The oldest kept position of a stream; for the first 100 streams.
    STREAM_FIRST = Gauge "tidewire_log_stream_first_position" ["log", "stream"];
    /// Stored bytes of the kept records of a stream; for the first 100 streams.
    STREAM_BYTES = Gauge "tidewire_log_stream_bytes" ["log", "stream"];
    /// Records behind the slowest named cursor of a stream; for the first 100 streams.
    STREAM_LAG = Gauge "tidewire_log_stream_cursor_lag" ["log", "stream"];
    /// 1 while the log takes no messages, because its disk is full (`disk_full`) or no disk space can be reserved for another reason (`no_room`).
    BLOCKED = Gauge "tidewire_log_blocked" ["log", "because"];
    /// 1 if the log has stopped for good.
    FAILED = Gauge "tidewire_log_failed" ["log"];
}
