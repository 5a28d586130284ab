//! Metrics of a key-value store that has a home.

use crate::metric::metrics;

metrics! {
    /// 1 for this server's role for the store: `owner`, `follower`, `takes-over` (a follower that becomes the owner), `unproven` (an owner at level replicated whose lease has run out) or `former` (a former owner, whose store another server has taken over).
    ROLE = Gauge "tidewire_kv_home_role" ["role"];
    /// 1 while the home is reachable: on a follower, the brokers have answered within the last 5 s; on an owner, replication runs without a failure.
    LINKED = Gauge "tidewire_kv_home_linked" [];
    /// On an owner, the first position of the store's log that is not in the home; on a follower, the first position that was not applied.
    POSITION = Gauge "tidewire_kv_home_position" [];
    /// On an owner, records that are not in the home; on a follower, offsets of the home that were not read.
    LAG = Gauge "tidewire_kv_home_lag_records" [];
    /// On an owner, the age of the oldest change that is not in the home; on a follower, how old its data may be, even while the brokers are unreachable. Below two seconds the value is 0.
    BEHIND = Gauge "tidewire_kv_home_lag_seconds" [];
    /// Remaining time of the owner's lease; at 0 the owner serves no keys at level replicated. On a follower the value is 0.
    LEASE = Gauge "tidewire_kv_home_lease_seconds" [];
    /// Bytes of the store's log that are not in the home; at --backlog-bytes changes are refused.
    BACKLOG = Gauge "tidewire_kv_home_backlog_bytes" [];
    /// Transactions committed in the home.
    TRANSACTIONS = Counter "tidewire_kv_home_transactions_total" [];
    /// Bytes of records committed in the home.
    BYTES = Counter "tidewire_kv_home_bytes_total" [];
    /// Requests to the home that failed, or were not answered in time.
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
