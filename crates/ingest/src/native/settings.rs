//! Limits of a native service.

use std::time::Duration;

use tidewire::Limits;
use tidewire_log::GROUP_MAX;

use super::codec::Level;
use super::fleet::Fleet;
use super::quota::Quota;
use super::tokens::Token;
use crate::classic::{HEADER, PAYLOAD_MAX};
use crate::mistakes::Mistakes;

/// Limits of a native service. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The level for producers that name no level. Default durable.
    pub level: Level,
    /// Largest payload; that of the log if it is lower. A larger one is refused and ends the
    /// connection. Default 16 MiB.
    pub payload_max: u32,
    /// Most messages that a producer may have unacknowledged. Default 1,048,576; at least 1.
    pub window_messages: u32,
    /// Most bytes of messages with their headers that a producer may have in flight. Default 16
    /// MiB.
    pub window_bytes: u64,
    /// How long a producer waits in silence before an acknowledgement is repeated. Default 1 s; at
    /// least 1 ms.
    pub keepalive: Duration,
    /// How long a client may take to send its hello. Default 5 s.
    pub hello_within: Duration,
    /// How much a producer's connection may send. Default: no limit.
    pub quota: Quota,
    /// Producers and readers find only streams that were created: a producer that names another one is
    /// refused. Default false: a producer's first message creates its stream.
    pub declared: bool,
    /// The servers that share producers out among them: a producer of another one is refused as moved. Default none:
    /// all are taken.
    pub fleet: Option<Fleet>,
    /// Cursors whose names begin with `@` are in use: a replicator remembers by them how far it is,
    /// and no client may delete them. Default false: an administrator may, as where nothing is
    /// replicated any more.
    pub replicated: bool,
    /// Tokens, one of which every client must show. Default none: all clients are let in.
    pub tokens: Vec<Token>,
    /// Without tokens, clients of other hosts are refused as unauthorised. Default true.
    pub protected: bool,
    /// Readers at once; one more is refused. Default 1,024.
    pub readers: usize,
    /// Bytes of records that the server may hold for all readers together, read and not yet taken.
    /// At this limit readers wait, and a reader that has taken nothing for 10 s is refused with
    /// `gone`. One more record for each reader may be held. Default 64 MiB, at least 4 KiB.
    pub reader_memory: usize,
    /// Most bytes of one read, fewer where the readers' memory is short. Default 256 KiB.
    pub read_max: usize,
    /// Threads that read the log; 0 has the loops read, which blocks them: for simulations.
    /// Default 2.
    pub read_threads: usize,
    /// Mistakes to make on purpose.
    #[doc(hidden)]
    pub mistakes: Mistakes,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            level: Level::Durable,
            payload_max: PAYLOAD_MAX,
            window_messages: 1 << 20,
            window_bytes: 16 << 20,
            keepalive: Duration::from_secs(1),
            hello_within: Duration::from_secs(5),
            quota: Quota::default(),
            declared: false,
            fleet: None,
            replicated: false,
            tokens: Vec::new(),
            protected: true,
            readers: 1024,
            reader_memory: 64 << 20,
            read_max: 256 << 10,
            read_threads: 2,
            mistakes: Mistakes::default(),
        }
    }
}

/// Largest chunk that a builder allows, and so the most bytes that may follow a message that is
/// just complete.
const CHUNK_MAX: usize = 1 << 20;

/// Bytes of frames that may wait to be sent to a producer, about one Ethernet segment:
/// acknowledgements are cumulative, so one that does not fit is covered by the next.
const QUEUED_MAX: usize = 1200;

impl Settings {
    /// The connection limits for these settings. A connection may be silent for ever, and a client
    /// that does not take its replies may come back: the memory of such a connection is bounded.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            carried: HEADER + self.payload_max as usize + CHUNK_MAX,
            output_low: 0,
            output_high: QUEUED_MAX,
            // A batch of one record is not paced, and may be as large as any log allows.
            output_hard: GROUP_MAX + (1 << 20) + 2 * self.payload_max as usize,
            idle: None,
            write: None,
            ..Limits::default()
        }
    }
}
