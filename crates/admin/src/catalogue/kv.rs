//! Metrics of the key-value store and its services.

use crate::metric::metrics;

metrics! {
    /// Commands run, by the protocol; the binary protocol has reads and writes.
    COMMANDS = Counter "tidewire_kv_commands_total" ["mode"];
    /// Calls of a command over the Redis protocol; for commands that were called.
    COMMAND_CALLS = Counter "tidewire_kv_command_calls_total" ["command"];
    /// Calls of a command that were answered with an error.
    COMMAND_ERRORS = Counter "tidewire_kv_command_errors_total" ["command"];
    /// Error replies.
    ERRORS = Counter "tidewire_kv_error_replies_total" [];
    /// Reads of keys that existed.
    HITS = Counter "tidewire_kv_hits_total" [];
    /// Reads of keys that did not exist.
    MISSES = Counter "tidewire_kv_misses_total" [];
    /// Keys removed because their time had come.
    EXPIRED = Counter "tidewire_kv_expired_keys_total" [];
    /// Keys removed because memory was short.
    EVICTED = Counter "tidewire_kv_evicted_keys_total" [];
    /// Keys of a database; for databases that have keys.
    KEYS = Gauge "tidewire_kv_keys" ["db"];
    /// Keys of a database that expire.
    KEYS_EXPIRING = Gauge "tidewire_kv_keys_expiring" ["db"];
    /// Memory that keys and values take.
    USED_BYTES = Gauge "tidewire_kv_used_memory_bytes" [];
    /// Memory that keys and values may take; 0 is no limit.
    MAX_BYTES = Gauge "tidewire_kv_max_memory_bytes" [];
    /// Clients of the Redis protocol.
    CLIENTS = Gauge "tidewire_kv_clients" [];
    /// Clients cut, by the reason: `slow_subscriber` (the client did not take its messages), `large_reply` (a reply above the limit of output), `timed_out`, `not_logged_in` (the client had to authenticate, and did not in time), `protocol_error`, `denied` (a client of another host, without a password), `evicted` (all clients together held more than `--kv-maxmemory-clients`, and this client most).
    CUT = Counter "tidewire_kv_clients_cut_total" ["reason"];
    /// Calls of PSUBSCRIBE refused because the patterns of one client would have taken too much memory (`pubsub-patterns-limit`).
    PATTERNS_REFUSED = Counter "tidewire_kv_patterns_refused_total" [];
    /// Commands refused because one client would have made the server hold too much lasting memory (`--kv-query-buffer`), or all users together (`acl-users-memory-limit`).
    HOLDINGS_REFUSED = Counter "tidewire_kv_holdings_refused_total" [];
    /// Memory that the server holds because of clients of the Redis protocol; bytes: input, output, names, subscriptions, transactions, waits, tracking.
    CLIENTS_BYTES = Gauge "tidewire_kv_clients_memory_bytes" [];
    /// Commands for which the log of messages was read (`--kv-log-keys`).
    LOG_READS = Counter "tidewire_kv_log_reads_total" [];
    /// Entries of the log that commands have shown.
    LOG_ENTRIES = Counter "tidewire_kv_log_entries_total" [];
    /// Payload of entries of the log that commands have shown; bytes.
    LOG_BYTES = Counter "tidewire_kv_log_payload_bytes_total" [];
    /// Commands on streams of the log that were refused because the reply would have been too long (`--kv-log-reply`).
    LOG_REFUSED = Counter "tidewire_kv_log_refused_total" [];
    /// Connections of the binary protocol that were closed, by the reason: a malformed request, or a WRITE that could not be stored (`refused`).
    BINARY_CLOSED = Counter "tidewire_kv_binary_closed_total" ["reason"];
    /// Always 1; the label says when changes are durable (`--durability`), `none` for never.
    DURABILITY = Gauge "tidewire_kv_durability_info" ["level"];
    /// Changes of a durable store that its log has not committed yet; with `sync`, replies wait until they are committed.
    PENDING = Gauge "tidewire_kv_uncommitted_changes" [];
    /// Changes refused because the disk of the log was full.
    REFUSED_FULL = Counter "tidewire_kv_changes_refused_total" [];
}
