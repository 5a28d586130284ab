//! Metrics of the replicator of the log of messages, where the log has a home.

use crate::metric::metrics;

metrics! {
    /// 1 for what the replicator is about: `away` (it waits before it tries again), `looking`, `opening` (the home), `carrying`, `over` (another process has opened the home since). Of a member of a fleet, that of anonymous messages.
    STATE = Gauge "tidewire_replication_state" ["state"];
    /// Messages in the log that are not at home, by what is known.
    LAG = Gauge "tidewire_replication_lag_records" [];
    /// Bytes of records that are not at home, as they are stored; up to 64 KiB a stream more.
    BACKLOG = Gauge "tidewire_replication_backlog_bytes" [];
    /// 1 while level `replicated` is granted.
    PROMISES = Gauge "tidewire_replication_granted" [];
    /// Transactions committed at home.
    TRANSACTIONS = Counter "tidewire_replication_transactions_total" [];
    /// Messages brought home.
    MESSAGES = Counter "tidewire_replication_messages_total" [];
    /// Bytes of messages that were brought home, with their headers of 12.
    BYTES = Counter "tidewire_replication_bytes_total" [];
    /// What was asked of the home and failed, or was not answered in time.
    FAILURES = Counter "tidewire_replication_failures_total" [];
    /// Messages that could not be carried, because they were lost in damage or removed before.
    LOST = Counter "tidewire_replication_lost_total" [];
    /// Bytes of messages in memory, in transactions that are filled or committed now.
    HELD = Gauge "tidewire_replication_held_bytes" [];
    /// Partitions of the fleet that are here, by what is done about them: as above, or `leaving` (handed over).
    PARTITIONS = Gauge "tidewire_fleet_partitions" ["state"];
    /// Counts what the group of the fleet has given to this server.
    GENERATION = Gauge "tidewire_fleet_generation" [];
    /// 1 while the group of the fleet is not reached: what is here goes on.
    GROUP_LOST = Gauge "tidewire_fleet_lost" [];
    /// Partitions that were here and are not any more.
    ENDED = Counter "tidewire_fleet_ended_total" [];
    /// Partitions that had to go before all that was durable was at home, because it took longer than --fleet-hand-over.
    CUT_SHORT = Counter "tidewire_fleet_cut_short_total" [];
    /// Times a partition was here and left messages that are not at home: see `tidewire log unreplicated`.
    LEFT_TENURES = Gauge "tidewire_fleet_left_tenures" [];
    /// Records of these tenures, from the first to the last of each, others between them included.
    LEFT_RECORDS = Gauge "tidewire_fleet_left_records" [];
}
