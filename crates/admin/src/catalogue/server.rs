//! Metrics of the loops and their connections: what the toolkit counts for every service.

use crate::metric::metrics;

/// Upper bounds for how late a loop answers; seconds.
pub const LAG_BOUNDS: [f64; 12] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0,
];

metrics! {
    /// Always 1; the labels are the version and the engine.
    INFO = Gauge "tidewire_build_info" ["version", "engine"];
    /// 1 if the server is ready to serve, 0 while it recovers or drains.
    READY = Gauge "tidewire_ready" [];
    /// Connections accepted, including ones refused later.
    CONNECTIONS_ACCEPTED = Counter "tidewire_connections_accepted_total" ["service", "loop"];
    /// Outgoing connections established.
    CONNECTIONS_DIALLED = Counter "tidewire_connections_dialled_total" ["service", "loop"];
    /// Attempts to connect that failed.
    DIAL_FAILURES = Counter "tidewire_dial_failures_total" ["service", "loop"];
    /// Connections open now.
    CONNECTIONS_OPEN = Gauge "tidewire_connections_open" ["service", "loop"];
    /// Connections turned away, by the reason: `connection_limit` (as many are open as may), `address_limit`, `prefix_limit` (of its address, of its network), `accept_rate`, `address_rate` (too many in a time), `denied` (by --allow and --deny), `memory_limit`, `protected` (other hosts, without a secret), `by_service`, `stopping`, `no_thread`, `no_loop`, `panicked`.
    CONNECTIONS_REFUSED = Counter "tidewire_connections_refused_total" ["service", "reason"];
    /// Connections closed, by the reason.
    CONNECTIONS_CLOSED = Counter "tidewire_connections_closed_total" ["service", "reason"];
    /// Connections closed for a reason of their protocol (`by_protocol` above), by that reason; 64 reasons are told apart for each service.
    CONNECTIONS_CLOSED_BY_PROTOCOL = Counter "tidewire_connections_closed_by_protocol_total" ["service", "reason"];
    /// Bytes received from peers.
    RECEIVED_BYTES = Counter "tidewire_received_bytes_total" ["service", "loop"];
    /// Bytes that the kernel has taken for peers.
    SENT_BYTES = Counter "tidewire_sent_bytes_total" ["service", "loop"];
    /// Connections that were cut at a limit, or at the deadline of a stop, with output queued.
    CUT_UNSENT = Counter "tidewire_connections_cut_unsent_total" ["service"];
    /// Bytes of queued output that were lost when connections were cut.
    CUT_BYTES = Counter "tidewire_cut_bytes_total" ["service"];
    /// Times that a limit took effect: `output` (the loop stopped reading from a connection, because its output was full), `turn` (a connection with large replies waited while other connections had their share of the loop's turns), `send` (a connection with much queued output waited while others sent their share), `receive` (a connection had more input than its part of a turn), `memory` (the loop stopped reading from a connection, because memory was short), `buffers` (no receive buffer was free), `descriptors` (accepting paused), `dials` (an outgoing connection refused), `lookups` (the look-up of a host refused), `posts`, `places` and `tells` (a message to a connection refused because too many waited: posted from elsewhere, a place for such a post, told by another connection of the loop), `channels` (a send between connections waited for room), `completions` (the kernel's queue overflowed).
    LIMIT_REACHED = Counter "tidewire_limit_reached_total" ["loop", "limit"];
    /// Bytes that connections hold in queued output and carried input.
    HELD_BYTES = Gauge "tidewire_held_bytes" ["loop"];
    /// Limit of the bytes that connections of all loops together may hold.
    HELD_BYTES_MAX = Gauge "tidewire_held_max_bytes" [];
    /// Receive calls, or completions of receive operations.
    LOOP_RECEIVES = Counter "tidewire_loop_receives_total" ["loop"];
    /// Send calls, or completions of send operations.
    LOOP_SENDS = Counter "tidewire_loop_sends_total" ["loop"];
    /// Turns of a loop.
    LOOP_TURNS = Counter "tidewire_loop_turns_total" ["loop"];
    /// Times that a loop was woken from outside.
    LOOP_WAKEUPS = Counter "tidewire_loop_wakeups_total" ["loop"];
    /// Waits in the kernel that busy-polling avoided.
    LOOP_BUSY_POLL_HITS = Counter "tidewire_loop_busy_poll_hits_total" ["loop"];
    /// Messages for connections that had closed.
    LOOP_UNDELIVERABLE = Counter "tidewire_loop_undeliverable_total" ["loop"];
    /// Panics of protocols and services that a loop caught; each is logged too.
    LOOP_PANICS = Counter "tidewire_loop_panics_total" ["loop"];
    /// Processor time that a loop has used.
    LOOP_CPU_SECONDS = Counter "tidewire_loop_cpu_seconds_total" ["loop"];
    /// How late a loop answers: the time from a wake-up from outside, tried four times a second, until the loop runs.
    LOOP_LAG = Histogram(&LAG_BOUNDS) "tidewire_loop_lag_seconds" ["loop"];
    /// Times that a loop was stuck in one turn for longer than `--stall-threshold`, by the callback that was called last.
    LOOP_STALLS = Counter "tidewire_loop_stalls_total" ["loop", "service", "callback"];
    /// Time that loops were stuck, by the callback that was called last.
    LOOP_STALLED_SECONDS = Counter "tidewire_loop_stalled_seconds_total" ["loop", "service", "callback"];
}
