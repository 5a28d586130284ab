//! Metrics of `tidewire ship`, where it has `--status`.

use crate::metric::metrics;

metrics! {
    /// Messages acknowledged.
    MESSAGES = Counter "tidewire_ship_messages_total" [];
    /// Bytes of files acknowledged or passed over.
    BYTES = Counter "tidewire_ship_bytes_total" [];
    /// Files followed.
    FILES = Gauge "tidewire_ship_files" [];
    /// Bytes of all files that no server is known to have. Grows while servers are away, or files grow faster than they are stored.
    BEHIND = Gauge "tidewire_ship_behind_bytes" [];
    /// For how long the first such byte has been there, of the file that waits longest.
    LAG = Gauge "tidewire_ship_lag_seconds" [];
    /// Bytes of a file that no server is known to have; of the files that wait longest, 100 at most.
    FILE_BEHIND = Gauge "tidewire_ship_file_behind_bytes" ["file"];
    /// For how long the first such byte of a file has been there.
    FILE_LAG = Gauge "tidewire_ship_file_lag_seconds" ["file"];
    /// Times that something was lost before it could be read; each stands in the log.
    LOSSES = Counter "tidewire_ship_losses_total" [];
    /// Files that cannot be shipped any further, or cannot be read at present.
    FAILED = Gauge "tidewire_ship_failed_files" [];
    /// Named files and directories that are not followed: beyond `--files`, or because they cannot be.
    LEFT_OUT = Gauge "tidewire_ship_left_out_files" [];
    /// Named files that are not followed because of `--ignore-older`.
    IGNORED = Gauge "tidewire_ship_ignored_files" [];
    /// Lines left out because they were too long.
    SKIPPED = Counter "tidewire_ship_skipped_lines_total" [];
    /// Bytes of zeros in holes, which were passed over.
    HOLES = Counter "tidewire_ship_hole_bytes_total" [];
    /// Times that a server had less of a file than it had acknowledged, and was sent it again.
    SET_BACK = Counter "tidewire_ship_set_back_total" [];
    /// Bytes of removed files that are held open; bounded by `--held`.
    HELD = Gauge "tidewire_ship_held_bytes" [];
    /// 1 while nothing moves: no server is reached, or the one in use takes nothing.
    WAITING = Gauge "tidewire_ship_waiting" [];
}
