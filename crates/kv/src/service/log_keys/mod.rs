//! Keys that are streams of the log of messages: clients of Redis's protocol read what was
//! ingested.
//!
//! The one idea: streams of the log are shown as keys, but nothing of them is in the store. A command that names such a key
//! is recognised before it runs. A command that needs no disk is answered on the loop ([`ask`]). For any other command,
//! threads read the log ([`read`]) while the connection waits ([`follow`]); a connection also waits so for records that are
//! not there yet. Only committed records are ever shown.

mod ask;
mod follow;
mod place;
mod question;
mod read;
mod reading;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidewire::{Alarm, Throttle};
use tidewire_log::{Log, Wake, Watch};
use tidewire_lua::Value;
use tidewire_pool::Pool;

pub use read::WasRead;
pub(crate) use reading::{Followers, Reading};

use super::message::Message;
use super::table::{Entry, What};
use crate::commands::{Keys, find};
use crate::reply::{Proto, Reply};
use crate::store::Store;

/// Between two lines about replies that are too long.
const MINUTE: Duration = Duration::from_secs(60);

/// The error for such keys in a script or a transaction: a read of the log would hold up the locks.
pub(crate) const NOT_HERE: &str =
    "ERR streams of the log cannot be asked for in transactions and scripts";

/// The parts that show the streams of a log as keys.
#[derive(Clone)]
pub struct LogKeys {
    /// The prefix of the log's keys, in every database; the name of the stream follows. At least 1
    /// byte.
    pub prefix: Vec<u8>,
    /// The log.
    pub log: Arc<dyn Log>,
    /// The pool whose threads read the log.
    pub pool: Pool,
    /// Bytes that a reply of entries may have: XREAD gives no more, and what else would be longer is refused. A
    /// single entry may be longer.
    pub reply_max: usize,
}

impl LogKeys {
    /// Default bytes of a reply of entries.
    pub const REPLY_MAX: usize = 16 << 20;
}

impl fmt::Debug for LogKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = String::from_utf8_lossy(&self.prefix);
        write!(f, "LogKeys({prefix:?}, {} bytes)", self.reply_max)
    }
}

/// Counters of reads from a log for clients of the Redis protocol, over all loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Commands for which the log was read.
    pub reads: u64,
    /// Entries that were shown.
    pub entries: u64,
    /// Payload of entries of the log that commands have shown; bytes.
    pub bytes: u64,
    /// Commands refused because their reply would have been too long.
    pub refused: u64,
}

/// A log that is shown.
pub(crate) struct Shown {
    keys: LogKeys,
    log: Arc<dyn Log>,
    /// Set while no client may read the log.
    shut: AtomicBool,
    alarm: Arc<Alarm<Message>>,
    reads: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    /// Throttle of log lines about replies that are too long.
    refusals: Throttle,
    /// Keeps the log ringing the alarm.
    _watch: Watch,
}

impl Shown {
    pub(crate) fn new(keys: LogKeys) -> Shown {
        let alarm = Arc::new(Alarm::default());
        let rung = alarm.clone();
        let wake: Wake = Arc::new(move || rung.ring());
        Shown {
            _watch: keys.log.watch(wake),
            log: keys.log.clone(),
            keys,
            shut: AtomicBool::new(false),
            alarm,
            reads: AtomicU64::default(),
            entries: AtomicU64::default(),
            bytes: AtomicU64::default(),
            refused: AtomicU64::default(),
            refusals: Throttle::new(MINUTE),
        }
    }

    fn prefix(&self) -> &[u8] {
        &self.keys.prefix
    }

    /// Whether a key is not the store's.
    #[inline]
    fn is_ours(&self, key: &[u8]) -> bool {
        // Most differ in the first byte, which costs no call.
        key.first() == self.prefix().first() && key.starts_with(self.prefix())
    }

    /// Whether a call names keys of the log. Arguments of scripts are only words; the check is made when the
    /// script uses them.
    #[inline]
    pub(crate) fn concerns(&self, entry: &Entry, args: &[&[u8]]) -> bool {
        match entry.what {
            What::Data(spec) if spec.keys == Keys::ONE => {
                args.get(1).is_some_and(|key| self.is_ours(key))
            }
            What::Data(spec) => {
                let mut found = false;
                spec.keys.each(args, |key| found |= self.is_ours(key));
                found
            }
            What::Session(spec) if spec.name == "watch" => {
                args[1..].iter().any(|key| self.is_ours(key))
            }
            What::Session(_) => false,
        }
    }

    /// The name of the stream that a key means; `None` if none can be called that.
    fn stream<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        let name = key.strip_prefix(self.prefix())?;
        std::str::from_utf8(name).ok()
    }

    fn is_shut(&self) -> bool {
        self.shut.load(Relaxed)
    }

    /// From now on no client may read the log, or all again.
    pub(crate) fn set_shut(&self, shut: bool) {
        self.shut.store(shut, Relaxed);
        // Waiting clients are told at once.
        self.alarm.ring();
    }

    pub(crate) fn counters(&self) -> LogCounters {
        LogCounters {
            reads: self.reads.load(Relaxed),
            entries: self.entries.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }

    /// A key of the store that no client can use any more, and its database.
    pub(crate) fn hidden(&self, store: &Store, now_ms: u64) -> Option<(u16, Vec<u8>)> {
        let databases = 0..store.databases();
        databases
            .filter_map(|db| Some((db, hidden(store, db, self.prefix(), now_ms)?)))
            .next()
    }
}

/// A key of a database that begins so.
fn hidden(store: &Store, db: u16, prefix: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    // Escaped, every byte means itself.
    let pattern: Vec<u8> = prefix.iter().flat_map(|&byte| [b'\\', byte]).collect();
    let pattern = [&pattern[..], b"*"].concat();
    let scan = find(b"scan")?;
    let mut runner = store.runner(now_ms, 0);
    let mut reply = Reply::new(Proto::Resp2);
    let mut cursor = b"0".to_vec();
    loop {
        reply.clear();
        let args: [&[u8]; 6] = [b"scan", &cursor, b"match", &pattern, b"count", b"1000"];
        runner.run(scan, db, &args, &mut reply);
        let (Value::Array(parts), _) = Value::parse(reply.bytes())? else {
            return None;
        };
        let [Value::Bulk(next), Value::Array(keys)] = &parts[..] else {
            return None;
        };
        if let Some(Value::Bulk(key)) = keys.first() {
            return Some(key.to_vec());
        }
        if *next == b"0" {
            return None;
        }
        cursor = next.to_vec();
    }
}
