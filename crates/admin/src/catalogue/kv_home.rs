//! Metrics of a key-value store that has a home.

use crate::metric::metrics;

metrics! {
    /// 1 for what this server is to the store: `owner`, `follower`, `takes-over` (a follower that becomes the owner), `unproven` (an owner at level replicated whose lease has run out) or `former` (an owner whose store another server has by now).
    ROLE = Gauge "tidewire_kv_home_role" ["role"];
    /// 1 while the home is reached: a follower has been told within 5 s where it ends, an owner carries and has met with no failure.
    LINKED = Gauge "tidewire_kv_home_linked" [];
    /// On an owner, the first position of the store's log that is not at home; on a follower, the first that was not applied.
    POSITION = Gauge "tidewire_kv_home_position" [];
    /// On an owner, records that are not at home; on a follower, offsets of the home that were not read.
    LAG = Gauge "tidewire_kv_home_lag_records" [];
    /// On an owner, the age of the oldest change that is not at home; on a follower, how old its data may be, also when it is cut off from the brokers; less than two seconds are 0.
    BEHIND = Gauge "tidewire_kv_home_lag_seconds" [];
    /// How much longer the lease of the owner lasts; at 0 it serves no keys at level replicated. Also 0 of a follower.
    LEASE = Gauge "tidewire_kv_home_lease_seconds" [];
    /// Bytes of the store's log that are not at home; changes are refused at --backlog-bytes.
    BACKLOG = Gauge "tidewire_kv_home_backlog_bytes" [];
    /// Transactions committed at home.
    TRANSACTIONS = Counter "tidewire_kv_home_transactions_total" [];
    /// Bytes of records committed at home.
    BYTES = Counter "tidewire_kv_home_bytes_total" [];
    /// What was asked of the home and failed, or was not answered in time.
    FAILURES = Counter "tidewire_kv_home_failures_total" [];
    /// With --kv-failover, members of the group of the store's servers; 0 while the group is not reached, or does not know this server.
    MEMBERS = Gauge "tidewire_kv_group_members" [];
    /// 1 while no owner of the store has proved itself at home for its lease, by what this server has read there: expected for seconds.
    OWNER_DOWN = Gauge "tidewire_kv_owner_down" [];
    /// How often this server was to take the store over by itself.
    CLAIMS = Counter "tidewire_kv_failovers_begun_total" [];
    /// How often that was refused, by the home, by its disk, or because another server was first.
    CLAIMS_REFUSED = Counter "tidewire_kv_failovers_refused_total" [];
}
