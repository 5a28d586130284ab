//! The state that all loops of the key-value service share.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tidewire::Throttle;
use tidewire::{Endpoint, Peer};
use tidewire_log::Policy;

use super::acl::Acl;
use super::attention::Attention;
use super::clients::Clients;
use super::durable::Durable;
use super::holdings::ClientsLimit;
use super::loading::Loaded;
use super::log_keys::Shown;
use super::message::Message;
use super::monitors::Monitors;
use super::pubsub::Hub;
use super::replication::Replication;
use super::script::Scripts;
use super::sentinel::Sentinel;
use super::settings::{Config, Settings};
use super::slowlog::SlowLog;
use super::spikes::Spikes;
use super::stats::{Rate, Stats};
use crate::apart::Apart;
use crate::store::Store;

/// The shared state as one loop holds it: to hold it once more touches no memory of other loops.
pub(crate) type Here = Rc<Arc<Shared>>;

/// Between two lines about the same kind of unwelcome client.
pub(super) const MINUTE: Duration = Duration::from_secs(60);

/// The service's shared state. Fields that every command reads are seldom written; fields that are
/// often written stand on other cache lines.
pub(crate) struct Shared {
    pub(crate) store: Arc<Store>,
    /// The part that makes changes durable, for a durable store; empty until the store is open.
    pub(crate) durable: OnceLock<Durable<Message>>,
    /// When a log line last said that connections have not logged in in time; milliseconds, 0 for
    /// never.
    told_not_logged_in_ms: AtomicU64,
    /// When the promised log commits.
    pub(crate) promised: Option<Policy>,
    /// The home of the store, if it has one.
    pub(crate) replication: OnceLock<Replication>,
    /// The other servers of the store, if the server is told of them.
    pub(crate) sentinel: OnceLock<Sentinel>,
    /// Whether the server [had lost](super::ownership::is_former_owner) the store when that was looked at last.
    pub(crate) was_former_owner: AtomicBool,
    /// How far the store is that is being recovered.
    pub(crate) loaded: Loaded,
    pub(crate) config: Config,
    pub(crate) acl: Acl,
    pub(crate) attention: Attention,
    pub(crate) monitors: Apart<Monitors>,
    pub(crate) clients: Apart<Clients>,
    pub(crate) hub: Arc<Hub<Message>>,
    pub(crate) stats: Apart<Stats>,
    pub(crate) slowlog: Apart<SlowLog>,
    pub(crate) spikes: Apart<Spikes>,
    pub(crate) scripts: Apart<Scripts>,
    /// The log of messages, if it is shown as keys.
    pub(crate) log_keys: OnceLock<Shown>,
    /// Throttle of log lines about clients that are not let in, and about browsers.
    pub(crate) denials: Apart<Throttle>,
    pub(crate) intrusions: Apart<Throttle>,
    /// The address to which clients connect, if it was set.
    local: Mutex<Option<Endpoint>>,
    /// Until when CLIENT PAUSE holds commands back; milliseconds of the loops' clock, 0 for not.
    paused_until_ms: AtomicU64,
    pause_writes_only: AtomicBool,
    /// When the server started, by the loops' clock and by the wall clock; set by the first loop.
    pub(crate) started_ms: AtomicU64,
    pub(crate) started_wall_ms: AtomicU64,
    pub(crate) rate: Apart<Rate>,
    /// Forty random hexadecimal digits that name this run.
    pub(crate) run_id: OnceLock<String>,
    /// Ends the server, if clients may do that.
    pub(crate) stop: OnceLock<Stop>,
}

/// A function that ends the server.
pub(crate) type Stop = Arc<dyn Fn() + Send + Sync>;

impl Shared {
    /// With a log that commits when `promised` says, if any will be there.
    pub(crate) fn new(store: Arc<Store>, settings: Settings, promised: Option<Policy>) -> Shared {
        let hub = Arc::new(Hub::default());
        store.announce_to(hub.clone());
        let clients = Clients::default();
        clients
            .total
            .set_limit(ClientsLimit::Bytes(settings.clients_memory));
        Shared {
            store,
            acl: Acl::new(settings.password.as_deref()),
            attention: Attention::default(),
            monitors: Apart::default(),
            durable: OnceLock::new(),
            told_not_logged_in_ms: AtomicU64::new(0),
            promised,
            replication: OnceLock::new(),
            sentinel: OnceLock::new(),
            loaded: Loaded::default(),
            config: Config::new(settings),
            clients: Apart(clients),
            hub,
            stats: Apart::default(),
            slowlog: Apart::default(),
            spikes: Apart::default(),
            scripts: Apart::default(),
            log_keys: OnceLock::new(),
            denials: Apart(Throttle::new(MINUTE)),
            intrusions: Apart(Throttle::new(MINUTE)),
            local: Mutex::default(),
            paused_until_ms: AtomicU64::new(0),
            pause_writes_only: AtomicBool::new(false),
            was_former_owner: AtomicBool::new(false),
            started_ms: AtomicU64::new(0),
            started_wall_ms: AtomicU64::new(0),
            rate: Apart::default(),
            run_id: OnceLock::new(),
            stop: OnceLock::new(),
        }
    }

    /// Remembers when the first loop began, by its clock and by the wall.
    pub(crate) fn note_start(&self, now_ms: u64, wall_ms: u64) {
        let first = self
            .started_ms
            .compare_exchange(0, now_ms.max(1), Relaxed, Relaxed);
        if first.is_ok() {
            self.started_wall_ms.store(wall_ms, Relaxed);
        }
    }

    /// Names the run, if it has no name yet.
    pub(crate) fn name_run(&self, random: impl FnOnce() -> [u64; 3]) {
        self.run_id.get_or_init(|| {
            let [a, b, c] = random();
            format!("{a:016x}{b:016x}{:08x}", c as u32)
        });
    }

    /// The last unit whose effects a client can have seen, if replies wait for such; else 0.
    pub(crate) fn last_ticket(&self) -> u64 {
        match self.durable.get() {
            Some(durable) if durable.log.holds_replies() => self.store.last_ticket(),
            _ => 0,
        }
    }

    /// The last such unit for replies about the server rather than about keys: these have to be
    /// heard while the home is away, or gone.
    pub(crate) fn told_ticket(&self) -> u64 {
        match self.durable.get() {
            Some(durable) if durable.log.awaits_home() || durable.log.lost().is_some() => 0,
            _ => self.last_ticket(),
        }
    }

    /// The ticket that must settle before a client is answered that has looked at libraries of
    /// functions; 0 if replies do not wait.
    pub(crate) fn library_ticket(&self) -> u64 {
        match self.durable.get() {
            Some(durable) if durable.log.holds_replies() => self.store.library_ticket(),
            _ => 0,
        }
    }

    /// Says that connections are closed that have not logged in: the first at once, then once a minute.
    pub(crate) fn tell_not_logged_in(&self, now_ms: u64) {
        let last_ms = self.told_not_logged_in_ms.load(Relaxed);
        if last_ms > 0 && now_ms < last_ms + 60_000 {
            return;
        }
        self.told_not_logged_in_ms.store(now_ms.max(1), Relaxed);
        let closed = self.stats.read(|now, _| now.not_logged_in.value());
        tracing::info!(
            closed,
            within = ?self.config.login_within,
            "closing connections that have not logged in in time"
        );
    }

    /// Whether the log goes on behind the snapshot that is being made: a command that waits for the
    /// log waits for that.
    pub(crate) fn awaits_snapshot(&self) -> bool {
        let durable = self.durable.get();
        durable.is_some_and(|durable| durable.log.snapshots().is_relieving())
    }

    pub(crate) fn databases(&self) -> u16 {
        self.store.databases()
    }

    pub(crate) fn set_local_addr(&self, addr: Endpoint) {
        *self.local.lock().unwrap_or_else(PoisonError::into_inner) = Some(addr);
    }

    /// The address to which clients connect, as text.
    pub(crate) fn local_addr(&self) -> String {
        let addr = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        let addr = addr.as_ref();
        addr.map_or_else(|| "0.0.0.0:0".to_string(), Endpoint::to_string)
    }

    pub(crate) fn port(&self) -> u16 {
        let addr = self.local.lock().unwrap_or_else(PoisonError::into_inner);
        addr.as_ref().and_then(Endpoint::port).unwrap_or(0)
    }

    /// Holds commands back, for at least as long as an earlier pause would.
    pub(crate) fn pause(&self, now_ms: u64, for_ms: u64, writes_only: bool) {
        let was_all = self.is_paused(now_ms) && !self.pause_writes_only.load(Relaxed);
        self.pause_writes_only
            .store(writes_only && !was_all, Relaxed);
        let until = now_ms.saturating_add(for_ms).max(1);
        self.paused_until_ms.fetch_max(until, Relaxed);
        self.attention.set_paused(true);
    }

    pub(crate) fn unpause(&self) {
        self.paused_until_ms.store(0, Relaxed);
        self.attention.set_paused(false);
    }

    fn is_paused(&self, now_ms: u64) -> bool {
        self.paused_until_ms.load(Relaxed) > now_ms
    }

    /// Whether this peer is refused: it is on another host, and no password is asked for.
    pub(crate) fn denies(&self, peer: &Peer) -> bool {
        self.config.protected.load(Relaxed) && self.acl.has_no_password() && !peer.is_trusted()
    }

    /// Whether this peer need not say a password: there is none, and no client is refused for that.
    pub(crate) fn trusts(&self, peer: &Peer) -> bool {
        !self.acl.needs_password() && !self.denies(peer)
    }

    /// Changes the password of the user `default`.
    pub(crate) fn set_password(&self, password: Option<String>) {
        self.acl
            .set_default_password(password.as_deref(), &self.attention);
        self.config.set_password(password);
    }

    /// Whether a script takes long.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.attention.is_busy()
    }

    /// A script takes long from now on, or does no more: clients that wait for its keys hear of it.
    pub(crate) fn set_busy(&self, busy: bool) {
        self.store.set_tells_busy(busy);
        self.attention.set_busy(busy);
        self.scripts.wake_parked();
    }

    /// Whether a command has to wait.
    #[cold]
    pub(crate) fn holds_back(&self, now_ms: u64, writes: bool) -> bool {
        if !self.is_paused(now_ms) {
            return false;
        }
        writes || !self.pause_writes_only.load(Relaxed)
    }
}
