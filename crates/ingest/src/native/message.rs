//! The messages that other threads and connections send to a connection.

use tidewire_log::{Committed, Range, ReadError};

/// A message to a connection from another thread.
#[derive(Debug)]
pub enum Message {
    #[doc(hidden)]
    /// A newer session of the connection's producer has begun.
    Fenced,
    #[doc(hidden)]
    /// The partition of the connection's producer is handed over, or belongs to another server.
    Unbound,
    #[doc(hidden)]
    /// The result of a read for the connection.
    Read(Answer),
}

/// The result of a read.
#[derive(Debug)]
pub enum Answer {
    #[doc(hidden)]
    /// The range of kept positions, and the position to begin at.
    Place(Result<(Range, u64), ReadError>),
    #[doc(hidden)]
    /// Records.
    Records(Result<Committed, ReadError>),
}
