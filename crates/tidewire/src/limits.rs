//! What one connection, and one loop, may use. Every limit has a default and a behaviour.

use std::time::Duration;

/// Limits of a service's connections. Sizes are bytes.
///
/// ```
/// use std::time::Duration;
/// let limits = tidewire::Limits { idle: Some(Duration::from_secs(5)), ..Default::default() };
/// assert_eq!(limits.connections, 1_000_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once for one service, over all loops. One more is accepted and at once
    /// reset (counted as refused). Default 1,000,000: descriptors run out first, and then
    /// accepting pauses instead.
    pub connections: usize,
    /// Outgoing connections of one service on their way at once, on one loop: being connected, or
    /// waiting for their next attempt. One more fails at once, counted as `dials_refused`. Default
    /// 65,536.
    pub dials: usize,
    /// Unconsumed input a connection may carry from one call of `received` to the next, and the
    /// most that [`Next::AtLeast`](crate::Next::AtLeast) may ask for. Beyond it the connection is
    /// closed with [`Closed::CarriedLimit`](crate::Closed::CarriedLimit). Default 17 MiB.
    pub carried: usize,
    /// Queued output at or below which `writable` is called after it had been full. Default 64 KiB.
    ///
    /// This and the next two count the memory that the queue ties up: bytes, and with them a whole
    /// receive buffer for a chunk that shares it, the places of the queue, the marks of
    /// [held](crate::Link::hold_until) output. Up to two blocks (64 KiB each) may come on top: what
    /// is sent of the first, and what is free in the last. What shared bytes keep alive besides
    /// themselves is their owner's.
    pub output_low: usize,
    /// Queued output at or above which [`Link::full`](crate::Link::full) is true. Default 256 KiB.
    pub output_high: usize,
    /// Queued output beyond which the connection is aborted with
    /// [`Closed::OutputLimit`](crate::Closed::OutputLimit). Chunks that the protocol holds count.
    /// Default 64 MiB.
    pub output_hard: usize,
    /// Input taken from one connection in one turn of its loop before others get theirs.
    /// Default 256 KiB; at least one chunk is always taken.
    pub turn_bytes: usize,
    /// Time without a byte received or sent after which [`Protocol::idle`](crate::Protocol::idle)
    /// is called (default: finish), or, with output waiting, the connection is aborted as stalled.
    /// `None` waits for ever. Default 60 s.
    pub idle: Option<Duration>,
    /// Time that a finished connection may take to flush, and then again to see the peer close.
    /// Default 5 s.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1_000_000,
            dials: 65_536,
            carried: 17 << 20,
            output_low: 64 << 10,
            output_high: 256 << 10,
            output_hard: 64 << 20,
            turn_bytes: 256 << 10,
            idle: Some(Duration::from_secs(60)),
            linger: Duration::from_secs(5),
        }
    }
}

/// Largest number of new bytes in one call of `received`, the same on every engine unless set
/// otherwise with [`Builder::chunk`](crate::Builder::chunk).
pub const CHUNK: usize = 64 << 10;
