//! Settings of the service: at the start, and by CONFIG SET at run time.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use tidewire::Limits;

use super::tuning::Kept;
use crate::resp::Bounds;

/// Bytes of replies after which they are handed to the link. One send of this size goes out in one
/// piece.
pub(super) const FLUSH: usize = 48 << 10;

/// Settings of the key-value services, beside the store's. Sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The password that clients must send first, with AUTH or HELLO. Default: none, all clients
    /// may do everything.
    pub password: Option<String>,
    /// Without a password, clients of other hosts are turned away with `-DENIED` (and by the binary
    /// service with a reset). CONFIG SET protected-mode changes the setting. Default true.
    pub protected: bool,
    /// Limit of one connection's unconsumed input, and so of its largest command, bytes; less than 4 GiB, and at least
    /// [`QUERY_BUFFER_MIN`](Settings::QUERY_BUFFER_MIN) on a command line. Other memory that one client makes the server hold
    /// (queued commands and watches of its transaction, subscriptions, waits, tracking) may take as much again; a command that
    /// would exceed it is refused. A larger command is refused as soon as it is announced, with an error, and the connection
    /// closes. Default 1 GiB; memory grows with the received bytes, not with the announced length.
    pub query_buffer: usize,
    /// Largest single argument; a client that sends a larger one is cut. Default 512 MiB.
    pub bulk_max: usize,
    /// Queued output of one connection beyond which it is cut. Replies are paced, so the limit is reached
    /// only by a single reply that is larger; that reply is built up to the limit and no further, counted
    /// and logged. CONFIG SET client-output-buffer-limit can lower the limit. `usize::MAX` is no limit.
    /// Default 1 GiB.
    pub client_output: usize,
    /// Queued output of a subscriber beyond which it is cut and counted: published messages cannot
    /// be paced. `usize::MAX` is no limit. Default 32 MiB.
    pub subscriber_output: usize,
    /// Most bytes that all clients together may make the server hold (input, output, names, subscriptions, transactions,
    /// waits, tracking); beyond this the largest client is evicted, counted and logged. CONFIG SET maxmemory-clients changes
    /// the setting. 0 is no limit. Default: half of the machine's memory, see
    /// [`Builder::memory_default`](tidewire::Builder::memory_default).
    pub clients_memory: u64,
    /// How many clients may be connected, for CONFIG GET maxclients and INFO. The field sets no limit: the
    /// builder's limits do. Default 1,000,000.
    pub clients_max: usize,
    /// Silence after which a connection in the middle of a command is closed, and time for which
    /// a client may leave its replies unread. Default 60 s; `None` waits for ever.
    pub stall: Option<Duration>,
    /// Silence between commands after which a connection is closed, to the resolution of `stall`.
    /// Default `None`: never, as in Redis. Subscribers and blocked clients are spared.
    pub idle: Option<Duration>,
    /// How long a connection that has to log in may take for that. Default 30 s; `None` is for ever.
    pub login_within: Option<Duration>,
    /// Where the data lies, which CONFIG GET dir tells. Default `None`: `/`.
    pub directory: Option<PathBuf>,
    /// The listeners' [`TcpOptions::keepalive`](tidewire::TcpOptions::keepalive), which CONFIG GET tcp-keepalive
    /// shows in whole seconds, `None` as 0. The field sets nothing. Default: that of `TcpOptions`.
    pub keepalive: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            password: None,
            protected: true,
            query_buffer: 1 << 30,
            bulk_max: 512 << 20,
            client_output: 1 << 30,
            subscriber_output: 32 << 20,
            clients_memory: tidewire::Builder::memory_default() as u64,
            clients_max: 1_000_000,
            stall: Some(Duration::from_secs(60)),
            idle: None,
            login_within: Some(Duration::from_secs(30)),
            directory: None,
            keepalive: tidewire::TcpOptions::default().keepalive,
        }
    }
}

impl Settings {
    /// Bytes that people may set as [`query_buffer`](Settings::query_buffer) at least: 1 MiB, as in Redis.
    pub const QUERY_BUFFER_MIN: usize = 1 << 20;
    /// The least of [`client_output`](Settings::client_output) and
    /// [`subscriber_output`](Settings::subscriber_output): 16 KiB, which Redis keeps for each
    /// client beside its limit. With less, no client could hear an answer, and none could set it
    /// right again.
    pub const OUTPUT_MIN: usize = 16 << 10;

    /// The limits to give the builder with [`RespService`](super::RespService).
    #[must_use]
    pub fn limits(&self) -> Limits {
        let idle = [self.stall, self.idle].into_iter().flatten().min();
        let own = Limits::default();
        // Bytes that may be queued when the largest reply comes: as much as pacing lets through,
        // and the replies that are sent with it.
        let paced = own.output_high + 2 * FLUSH;
        Limits {
            // Input behind the largest command may have come with it.
            carried: self.query_buffer.saturating_add(tidewire::CHUNK),
            output_hard: self.client_output.saturating_add(paced),
            idle,
            ..own
        }
    }
}

/// The present values of the settings.
#[derive(Debug)]
pub(crate) struct Config {
    password: RwLock<Option<String>>,
    pub(crate) protected: AtomicBool,
    /// Never more than the limit that connections were made with.
    pub(crate) query_buffer: AtomicUsize,
    pub(crate) query_buffer_max: usize,
    /// Never more than the limit that connections were made with.
    pub(crate) client_output: AtomicUsize,
    pub(crate) client_output_max: usize,
    pub(crate) stall: Option<Duration>,
    pub(crate) login_within: Option<Duration>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) keepalive: Option<Duration>,
    pub(crate) bulk_max: AtomicUsize,
    pub(crate) subscriber_output: AtomicUsize,
    pub(crate) clients_max: usize,
    /// Seconds; 0 is never.
    pub(crate) timeout_s: AtomicU64,
    /// Microseconds from which on a command is kept in the slow log; negative is never.
    pub(crate) slow_us: AtomicI64,
    pub(crate) slow_len: AtomicUsize,
    /// Milliseconds from which on a command is kept as having taken long; 0 is never.
    pub(crate) spikes_ms: AtomicU64,
    /// How long commands take is counted.
    pub(crate) tracks_latency: AtomicBool,
    /// The percentiles of latencies that INFO shows.
    percentiles: RwLock<Vec<f64>>,
    /// Milliseconds from which on a script takes too long; 0 is never.
    pub(crate) script_ms: AtomicU64,
    /// Bytes of memory that the interpreter of one loop may take.
    pub(crate) script_memory: AtomicUsize,
    /// Threads of scripts that were given up and have not come back, at most.
    pub(crate) scripts_stuck: AtomicUsize,
    /// Bytes of memory that the patterns of one client may take.
    pub(crate) patterns: AtomicUsize,
    /// Settings that are stored without an effect.
    pub(crate) tuning: Kept,
}

impl Config {
    pub(crate) fn new(settings: Settings) -> Config {
        Config {
            password: RwLock::new(settings.password),
            protected: AtomicBool::new(settings.protected),
            query_buffer: AtomicUsize::new(settings.query_buffer.min(u32::MAX as usize)),
            query_buffer_max: settings.query_buffer.min(u32::MAX as usize),
            client_output: AtomicUsize::new(settings.client_output),
            client_output_max: settings.client_output,
            stall: settings.stall,
            login_within: settings.login_within,
            directory: settings.directory,
            keepalive: settings.keepalive,
            bulk_max: AtomicUsize::new(settings.bulk_max),
            subscriber_output: AtomicUsize::new(settings.subscriber_output),
            clients_max: settings.clients_max,
            timeout_s: AtomicU64::new(settings.idle.map_or(0, |d| d.as_secs().max(1))),
            slow_us: AtomicI64::new(10_000),
            slow_len: AtomicUsize::new(128),
            spikes_ms: AtomicU64::new(0),
            tracks_latency: AtomicBool::new(true),
            percentiles: RwLock::new(vec![50.0, 99.0, 99.9]),
            script_ms: AtomicU64::new(5_000),
            script_memory: AtomicUsize::new(64 << 20),
            scripts_stuck: AtomicUsize::new(4),
            patterns: AtomicUsize::new(16 << 20),
            tuning: Kept::default(),
        }
    }

    pub(crate) fn percentiles(&self) -> Vec<f64> {
        let all = self.percentiles.read();
        all.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_percentiles(&self, all: Vec<f64>) {
        let held = self.percentiles.write();
        *held.unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Limits for a client that has authenticated.
    #[inline]
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            bulk_max: self.bulk_max.load(Relaxed),
            command_max: self.query_buffer.load(Relaxed),
            ..Bounds::default()
        }
    }

    pub(crate) fn password(&self) -> Option<String> {
        let password = self.password.read();
        password.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers what CONFIG GET tells; admission is decided by [`Acl`](super::acl::Acl).
    pub(crate) fn set_password(&self, password: Option<String>) {
        let mut held = self
            .password
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *held = password;
    }
}
