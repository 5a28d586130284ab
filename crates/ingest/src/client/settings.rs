//! Settings of a producer.

use std::time::Duration;

use super::outbox::Amount;
use crate::native::codec::Level;

/// A producer's identity, its requests to the server, and its limits in this process.
///
/// ```
/// use tidewire_ingest::client::Producing;
/// use tidewire_ingest::native::codec::Level;
///
/// let producing = Producing {
///     stream: "access-log".into(),
///     producer: "web-7".into(),
///     ..Producing::default()
/// };
/// assert_eq!(producing.level, Level::Durable);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Producing {
    /// The stream; empty for `default`. At most 255 bytes, as all names.
    pub stream: String,
    /// The producer's name. Default empty: without a name the server keeps no mark, so messages that
    /// were sent and not acknowledged when a connection broke are sent again and may be stored twice.
    pub producer: String,
    /// A secret, where the server asks for one.
    pub token: String,
    /// The level of acknowledgements that the producer asks for; default durable.
    pub level: Level,
    /// Goes on when the server grants less than `level`. Default: no, that is an error.
    pub accept_lower: bool,
    /// Ids rise with gaps, chosen by the caller.
    pub sparse: bool,
    /// Goes on when the server has forgotten this producer, which was away for too long: what is sent
    /// again then may be stored again. Default: no, that is an error.
    pub accept_duplicates: bool,
    /// The id of the first message, if the server knows nothing of this producer; default 1. If the
    /// server knows the producer, ids go on after the producer's mark.
    pub first_id: u64,
    /// Messages with their headers that may wait for their acknowledgement in this process; default
    /// one million messages of 32 MiB together. The buffer may always hold one message, whatever
    /// its size.
    pub buffer: Amount,
    /// Messages that may be on their way at once, headers included; 0 (the default) is as the server
    /// likes. The server may grant less.
    pub window: Amount,
    /// How long the server may say nothing at all while something is unacknowledged (it repeats
    /// itself much more often) or while it owes its welcome. Default 30 s; the connection counts as
    /// lost then.
    pub silence: Duration,
}

impl Default for Producing {
    fn default() -> Producing {
        Producing {
            stream: String::new(),
            producer: String::new(),
            token: String::new(),
            level: Level::Durable,
            accept_lower: false,
            sparse: false,
            accept_duplicates: false,
            first_id: 1,
            buffer: Amount {
                messages: 1_000_000,
                bytes: 32 << 20,
            },
            window: Amount::default(),
            silence: Duration::from_secs(30),
        }
    }
}
