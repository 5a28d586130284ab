//! The state that all connections of a server share.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use tidewire::{Alarm, Throttle};
use tidewire_log::{Log, Watch};

use super::counters::Tally;
use super::memory::Memory;
use super::message::Message;
use super::pool::Pool;
use super::reading::Readers;
use super::refused::Lines;
use super::session::Sessions;
use super::settings::Settings;
use super::tokens::Tokens;

pub(super) struct Shared {
    pub(super) log: Arc<dyn Log>,
    pub(super) settings: Settings,
    /// The lower of the settings' limit and the log's.
    pub(super) payload_max: u32,
    pub(super) sessions: Sessions,
    pub(super) pool: Pool,
    pub(super) readers: AtomicUsize,
    pub(super) reading: Readers,
    pub(super) tokens: Tokens,
    /// The lock is held while an administrator changes a stream's settings.
    pub(super) administering: Mutex<()>,
    pub(super) memory: Memory,
    /// Throttle of log lines about clients of other hosts that are not let in.
    pub(super) denials: Throttle,
    /// Throttle of log lines about other clients that are refused.
    pub(super) refusals: Arc<Lines>,
    pub(super) alarm: Arc<Alarm<Message>>,
    pub(super) tally: Tally,
    /// Keeps the log ringing the alarm.
    pub(super) _watch: Watch,
}
