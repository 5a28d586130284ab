//! The sink of a server with a log: messages of clients that have no identity go to one stream.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire_log::{Log, Policy, ProducerId, Refused, Run, StreamId, Ticket};

use crate::classic::{Batch, ByteOrder, HEADER};
use crate::sink::{Accepted, Sink};

/// The level of an acknowledgement on a classic port: what the acknowledged message survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Level {
    /// The server has read the message, and dropped it: nothing is kept.
    #[default]
    None,
    /// The message was handed to the bounded queue of the log, not yet written.
    Received,
    /// The message was committed: synced.
    Durable,
}

impl Level {
    /// All levels, the lowest first.
    pub const ALL: [Level; 3] = [Level::None, Level::Received, Level::Durable];

    /// Name of the level in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Received => "received",
            Level::Durable => "durable",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Not the name of a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no level is called {0:?}: a level is none, received or durable")]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> Result<Level, UnknownLevel> {
        let named = |level: &Level| level.name() == name;
        let level = Level::ALL.into_iter().find(named);
        level.ok_or_else(|| UnknownLevel(name.to_owned()))
    }
}

/// Puts messages into a stream of a log, without a producer. Ids are stored as numbers with the
/// least significant byte first.
///
/// A full disk is waited out as a full queue is: the classic protocol has no words for either, so
/// reading pauses.
#[derive(Clone)]
pub struct LogSink {
    log: Arc<dyn Log>,
    stream: Arc<Stream>,
    durable: bool,
}

/// A stream of the log. If the stream was deleted, it is created again: a server's streams are
/// configured at its start.
#[derive(Debug)]
struct Stream {
    name: String,
    number: AtomicU32,
}

/// Why messages cannot be put into a log as they are meant to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The log does not take the stream.
    #[error("cannot have the stream {stream:?}: {why}")]
    Stream {
        /// Name of the stream.
        stream: String,
        /// The log's reason.
        why: Refused,
    },
    /// Acknowledgements were to mean more than this log can promise.
    #[error(
        "the log does not sync (policy os), so nothing can be acknowledged as durable: choose \
         another policy, or the level received"
    )]
    Promise,
    /// No message is stored at that level.
    #[error("at level none, nothing goes to a log")]
    None,
}

impl LogSink {
    /// Puts messages into `stream` (1 to 255 bytes), to be acknowledged at `level`.
    ///
    /// # Errors
    /// See [`SinkError`].
    pub fn new(log: Arc<dyn Log>, stream: &str, level: Level) -> Result<LogSink, SinkError> {
        let durable = match (level, log.policy()) {
            (Level::None, _) => return Err(SinkError::None),
            (Level::Durable, Policy::Os) => return Err(SinkError::Promise),
            (level, _) => level == Level::Durable,
        };
        let id = log.stream(stream).map_err(|why| SinkError::Stream {
            stream: stream.to_owned(),
            why,
        })?;
        Ok(LogSink {
            log,
            stream: Arc::new(Stream {
                name: stream.to_owned(),
                number: AtomicU32::new(id.0),
            }),
            durable,
        })
    }

    fn put(&self, run: Run<'_>) -> Result<Ticket, Refused> {
        let stream = StreamId(self.stream.number.load(Relaxed));
        let appended = self.log.append(Run { stream, ..run });
        if appended != Err(Refused::NoStream) {
            return appended;
        }
        let stream = self.log.stream(&self.stream.name)?;
        self.stream.number.store(stream.0, Relaxed);
        self.log.append(Run { stream, ..run })
    }
}

impl fmt::Debug for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogSink({:?}, durable: {})", self.stream, self.durable)
    }
}

/// The buffer in which a loop rewrites messages whose sizes are in the other byte order.
#[derive(Debug, Default)]
pub struct LogSinkLocal(Vec<u8>);

impl Sink for LogSink {
    type Local = LogSinkLocal;

    const LATER: bool = true;

    fn on_loop(&self) -> LogSinkLocal {
        LogSinkLocal::default()
    }

    fn append(
        &self,
        batch: &Batch<'_>,
        local: &mut LogSinkLocal,
        wall: impl FnOnce() -> Duration,
    ) -> Accepted {
        let Some(last_id) = batch.last_id() else {
            return Accepted::Now;
        };
        let frames = match batch.order() {
            ByteOrder::Little => batch.bytes(),
            ByteOrder::Big => local.turn(batch),
        };
        let appended = self.put(Run {
            stream: StreamId(0),
            producer: ProducerId::ANONYMOUS,
            frames,
            count: u32::try_from(batch.messages()).unwrap_or(u32::MAX),
            last_id: u64::from_le_bytes(last_id),
            timestamp_us: u64::try_from(wall().as_micros()).unwrap_or(u64::MAX),
        });
        match appended {
            Ok(ticket) if self.durable => Accepted::Later(ticket),
            Ok(_) => Accepted::Now,
            Err(Refused::Busy | Refused::DiskFull { .. } | Refused::StreamFull { .. }) => {
                Accepted::Busy
            }
            Err(Refused::TooLarge) if batch.messages() > 1 => Accepted::Fewer,
            Err(Refused::TooLarge) => Accepted::Refused("too large for the log"),
            Err(Refused::TooMany | Refused::Forgotten | Refused::Beyond) => {
                Accepted::Refused("too many streams")
            }
            Err(Refused::NoStream) => Accepted::Refused("the stream was deleted"),
            Err(Refused::Failed) => Accepted::Refused("the log has failed"),
        }
    }

    fn log(&self) -> Option<&Arc<dyn Log>> {
        Some(&self.log)
    }
}

/// Room for messages that a loop keeps from one batch to the next.
const KEPT: usize = 256 << 10;

impl LogSinkLocal {
    /// The messages, with sizes in little-endian order.
    fn turn(&mut self, batch: &Batch<'_>) -> &[u8] {
        self.0.clear();
        self.0.shrink_to(KEPT);
        self.0.extend_from_slice(batch.bytes());
        let mut rest = &mut self.0[..];
        while let Some((head, behind)) = rest.split_first_chunk_mut::<HEADER>() {
            let size = &mut head[HEADER - 4..];
            size.reverse();
            let len = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
            rest = behind.get_mut(len..).unwrap_or_default();
        }
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SteppedLog;

    #[test]
    fn levels_are_named_both_ways() {
        for level in Level::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!("Durable".parse::<Level>().is_err());
    }

    #[test]
    fn no_promise_without_a_sync() {
        let log = |policy| Arc::new(SteppedLog::new().policy_of(policy));
        let os = LogSink::new(log(Policy::Os), "s", Level::Durable);
        assert_eq!(os.unwrap_err(), SinkError::Promise);
        assert!(LogSink::new(log(Policy::Os), "s", Level::Received).is_ok());
        assert!(LogSink::new(log(Policy::Sync), "s", Level::Durable).is_ok());
        let none = LogSink::new(log(Policy::Sync), "s", Level::None);
        assert_eq!(none.unwrap_err(), SinkError::None);
    }
}
