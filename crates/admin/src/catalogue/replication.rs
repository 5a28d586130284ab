//! Of the replicator of the log of messages, where it has a home.

use crate::metric::metrics;

metrics! {
    /// 1 for what the replicator is about: `away` (it waits before it tries again), `looking`, `opening` (the home), `carrying`, `over` (another process has opened the home since).
    STATE = Gauge "tidewire_replication_state" ["state"];
    /// Messages in the log that are not at home, by what is known.
    LAG = Gauge "tidewire_replication_lag_records" [];
    /// Bytes of those, as they are stored; by up to 64 KiB a stream more.
    BACKLOG = Gauge "tidewire_replication_backlog_bytes" [];
    /// 1 while level `replicated` is granted.
    PROMISES = Gauge "tidewire_replication_granted" [];
    /// Transactions committed at home.
    TRANSACTIONS = Counter "tidewire_replication_transactions_total" [];
    /// Messages in them.
    MESSAGES = Counter "tidewire_replication_messages_total" [];
    /// Bytes of those, with their headers of 12.
    BYTES = Counter "tidewire_replication_bytes_total" [];
    /// What was asked of the home and failed, or was not answered in time.
    FAILURES = Counter "tidewire_replication_failures_total" [];
    /// Messages that could not be carried, because they were lost in damage or removed before.
    LOST = Counter "tidewire_replication_lost_total" [];
}
