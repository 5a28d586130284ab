//! Metrics of `tidewire ship`, where it has `--status`.

use crate::metric::metrics;

metrics! {
    /// Messages acknowledged.
    MESSAGES = Counter "tidewire_ship_messages_total" [];
    /// Bytes of files acknowledged or skipped.
    BYTES = Counter "tidewire_ship_bytes_total" [];
    /// Files followed.
    FILES = Gauge "tidewire_ship_files" [];
    /// Bytes of all files that no server is known to have. The value grows while servers are unreachable, or while files grow faster than they are stored.
    BEHIND = Gauge "tidewire_ship_behind_bytes" [];
    /// Age of the oldest byte that is not stored yet, over all files.
    LAG = Gauge "tidewire_ship_lag_seconds" [];
    /// Bytes of a file that no server is known to have; for the files that have waited longest, 100 at most.
    FILE_BEHIND = Gauge "tidewire_ship_file_behind_bytes" ["file"];
    /// Age of the oldest byte of a file that is not stored yet.
    FILE_LAG = Gauge "tidewire_ship_file_lag_seconds" ["file"];
    /// Times that data was lost before it could be read; each is logged.
    LOSSES = Counter "tidewire_ship_losses_total" [];
    /// Files that cannot be shipped any further, or cannot be read at present.
    FAILED = Gauge "tidewire_ship_failed_files" [];
    /// Files and directories named on the command line that are not followed: beyond `--files`, or because they cannot be opened.
    LEFT_OUT = Gauge "tidewire_ship_left_out_files" [];
    /// Files named on the command line that are not followed because of `--ignore-older`.
    IGNORED = Gauge "tidewire_ship_ignored_files" [];
    /// Lines left out because they were too long.
    SKIPPED = Counter "tidewire_ship_skipped_lines_total" [];
    /// Bytes of zeros in holes of files, which were skipped.
    HOLES = Counter "tidewire_ship_hole_bytes_total" [];
    /// Times that a server had less of a file than it had acknowledged, and was sent the rest again.
    SET_BACK = Counter "tidewire_ship_set_back_total" [];
    /// Bytes of removed files that are held open; bounded by `--held`.
    HELD = Gauge "tidewire_ship_held_bytes" [];
    /// 1 while nothing is shipped: no server is reachable, or the present one takes nothing.
    WAITING = Gauge "tidewire_ship_waiting" [];
}
