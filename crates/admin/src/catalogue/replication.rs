//! Metrics of the replicator of the log of messages, where the log has a home.

use crate::metric::metrics;

metrics! {
    /// 1 for what the replicator is doing: `away` (it waits before it tries again), `looking`, `opening` (the home), `carrying`, `over` (another process has opened the home since). For a member of a fleet, the state of the replicator of anonymous messages.
    STATE = Gauge "tidewire_replication_state" ["state"];
    /// Messages in the log that are not in the home, as far as is known.
    LAG = Gauge "tidewire_replication_lag_records" [];
    /// Stored bytes of records that are not in the home; the value may be up to 64 KiB a stream too high.
    BACKLOG = Gauge "tidewire_replication_backlog_bytes" [];
    /// 1 while level `replicated` is granted.
    PROMISES = Gauge "tidewire_replication_granted" [];
    /// Transactions committed in the home.
    TRANSACTIONS = Counter "tidewire_replication_transactions_total" [];
    /// Messages replicated to the home.
    MESSAGES = Counter "tidewire_replication_messages_total" [];
    /// Bytes of messages that were replicated to the home, with their headers of 12 bytes each.
    BYTES = Counter "tidewire_replication_bytes_total" [];
    /// Requests to the home that failed, or were not answered in time.
    FAILURES = Counter "tidewire_replication_failures_total" [];
    /// Messages that could not be replicated, because they were lost in damage or removed before.
    LOST = Counter "tidewire_replication_lost_total" [];
    /// Bytes of messages in memory, in transactions that are filled or committed now.
    HELD = Gauge "tidewire_replication_held_bytes" [];
    /// Partitions that this server has, by the state of their replicator: as above, or `leaving` (being handed over).
    PARTITIONS = Gauge "tidewire_fleet_partitions" ["state"];
    /// Number of the last assignment of partitions that the fleet's group has made to this server.
    GENERATION = Gauge "tidewire_fleet_generation" [];
    /// 1 while the fleet's group is unreachable; the server keeps its partitions meanwhile.
    GROUP_LOST = Gauge "tidewire_fleet_lost" [];
    /// Partitions that this server had and has no longer.
    ENDED = Counter "tidewire_fleet_ended_total" [];
    /// Partitions that were handed over before all durable messages were in the home, because that took longer than --fleet-hand-over.
    CUT_SHORT = Counter "tidewire_fleet_cut_short_total" [];
    /// Tenures of partitions on this server that have left messages behind which are not in the home: see `tidewire log unreplicated`.
    LEFT_TENURES = Gauge "tidewire_fleet_left_tenures" [];
    /// Records of these tenures, from the first to the last record of each tenure, with records of other tenures between them.
    LEFT_RECORDS = Gauge "tidewire_fleet_left_records" [];
}
