//! The service that speaks Redis's protocol.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::{Conns, Endpoint, LoopHandle, Peer, Refusal, Service};
use tidewire_log::Policy;

use super::acl::AclFileError;
use super::conn::RespConn;
use super::durable::Durable;
use super::local::RespLocal;
use super::log_keys::{Followers, LogCounters, LogKeys, Shown};
use super::message::Message;
use super::ownership;
use super::registry;
use super::replication::Replication;
use super::sentinel::{Sentinel, Servers};
use super::settings::Settings;
use super::shared::Shared;
use super::table::table;
use crate::durable::KvLog;
use crate::store::Store;

/// The loop that does the periodic work: the one that lives as long as the server.
const TICKS: u32 = 0;
/// Steps of freeing in one turn of that loop, a fraction of a millisecond; and the pause between turns
/// as long as there is more.
const FREEING: usize = 2;
const FREEING_PAUSE: Duration = Duration::from_millis(1);
/// How soon connections with much input or output under way are looked at again.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How soon the service checks again whether the store is there: until then no loop may remove keys.
const LOADING_PAUSE: Duration = Duration::from_millis(100);

/// The counters of a [`RespService`], on all loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespCounters {
    /// Commands run.
    pub commands: u64,
    /// Error replies.
    pub errors: u64,
    /// Clients cut because their bytes broke the protocol.
    pub protocol_errors: u64,
    /// Clients of other hosts turned away for want of a password.
    pub denied: u64,
    /// Subscribers cut because they did not take their messages.
    pub slow_subscribers: u64,
    /// Clients cut because a reply was larger than the limit of their output.
    pub large_replies: u64,
    /// Calls of PSUBSCRIBE refused because the patterns of one client would have taken too much memory.
    pub refused_patterns: u64,
    /// Commands refused because more would have stayed than one client may make the server hold.
    pub refused_holding: u64,
    /// Clients cut because all clients together held more than they may.
    pub evicted_clients: u64,
    /// Connections closed because half a command was all that came, or nothing at all.
    pub timed_out: u64,
    /// Connections closed because they had to log in and did not do so in time.
    pub not_logged_in: u64,
}

/// Serves a [`Store`] to clients of Redis.
///
/// Serve it with the limits of [`Settings::limits`]. A clone is another handle on the same service.
#[derive(Clone)]
pub struct RespService {
    shared: Arc<Shared>,
    _last: Arc<LastHandle>,
}

/// Dropped with the last handle on a service. No client can receive a script's reply any more, and
/// an endless script that has written would keep its thread and the store for as long as the
/// process runs.
struct LastHandle(Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.scripts.end_slow();
    }
}

impl RespService {
    /// Serves `store`.
    #[must_use]
    pub fn new(store: Arc<Store>, settings: Settings) -> RespService {
        RespService::of(store, settings, None)
    }

    /// Serves the store of `log`, and answers as that promises.
    #[must_use]
    pub fn durable(store: Arc<Store>, settings: Settings, log: Arc<KvLog>) -> RespService {
        let service = RespService::recovering(store, settings, log.policy());
        service.recovered(log);
        service
    }

    /// Serves a store that is being rebuilt from a log with this commit policy. While the store
    /// [loads](Store::begin_loading), commands that need the keys are answered with `-LOADING`. Call
    /// [`recovered`](RespService::recovered) before the store [has loaded](Store::end_loading).
    #[must_use]
    pub fn recovering(store: Arc<Store>, settings: Settings, policy: Policy) -> RespService {
        RespService::of(store, settings, Some(policy))
    }

    /// A reply has waited so long for the log.
    fn note_commit(&self, waited: Duration, wall: Duration) {
        let (most_ms, ms) = (
            self.shared.config.spikes_ms.load(Relaxed),
            waited.as_millis() as u64,
        );
        if most_ms > 0 && ms >= most_ms {
            self.shared.spikes.add("commit", wall.as_secs(), ms);
        }
    }

    /// Has INFO tell how much of what is to be read is in the store, in whatever unit.
    pub fn has_loaded(&self, done: u64, of: u64) {
        self.shared.loaded.set(done, of);
    }

    /// The store is what `log` says, and commits to it. The first call counts.
    pub fn recovered(&self, log: Arc<KvLog>) {
        self.shared.durable.get_or_init(|| Durable::new(log));
    }

    /// Has INFO, ROLE and REPLICAOF tell of the home of the store. To be called before the server starts; the first call
    /// counts.
    pub fn replicated(&self, replication: Replication) {
        self.shared.replication.get_or_init(|| replication);
    }

    /// Has SENTINEL, ROLE and INFO tell of the servers of the store. The first call counts.
    pub fn tells_of(&self, sentinel: Sentinel) {
        self.shared.sentinel.get_or_init(|| sentinel);
    }

    /// This is known of the servers of the store now. Subscribers are told what has changed, on the channels of a Sentinel; one
    /// that takes no messages for too long is cut.
    pub fn servers(&self, servers: Servers) {
        let Some(sentinel) = self.shared.sentinel.get() else {
            return;
        };
        for (channel, text) in sentinel.change(servers) {
            // Where an inbox is full it is filled beyond: there are few of these.
            let hub = &self.shared.hub;
            let _ = hub.publish(false, channel.as_bytes(), text.as_bytes(), true, 0);
        }
    }

    fn of(store: Arc<Store>, settings: Settings, promised: Option<Policy>) -> RespService {
        registry::install();
        let shared = Arc::new(Shared::new(store, settings, promised));
        let _last = Arc::new(LastHandle(shared.clone()));
        RespService { shared, _last }
    }

    /// Tells the service where clients connect to, for CLIENT LIST and INFO to show.
    pub fn listens_at(&self, at: impl Into<Endpoint>) {
        self.shared.set_local_addr(at.into());
    }

    /// Loads the users from this file, a line for each as ACL LIST shows it; ACL LOAD reads the file
    /// again, and ACL SAVE writes it. If the file has no line for the user `default`, this user may
    /// do everything, with the password of the settings if there is one. Call this once, before the
    /// server starts.
    ///
    /// # Errors
    /// The file cannot be read, or a line is wrong; or the settings have a password with which the
    /// file does not let `default` in. No client is to be served then.
    pub fn use_acl_file(&self, path: impl Into<PathBuf>) -> Result<(), AclFileError> {
        let path = self.shared.acl.file.get_or_init(|| path.into());
        let password = self.shared.config.password();
        self.shared
            .acl
            .load(password.as_deref(), &self.shared.attention)?;
        match password {
            Some(password) if !self.shared.acl.default_has(&password) => {
                Err(AclFileError::TwoPasswords(path.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Has SHUTDOWN call `stop`, which is to end the server in order and must not block. Without such a
    /// function clients cannot end the server. The first call counts.
    pub fn on_shutdown(&self, stop: impl Fn() + Send + Sync + 'static) {
        let _ = self.shared.stop.set(Arc::new(stop));
    }

    /// Has scripts and functions that may take long run on a thread beside the loops, so that other clients are
    /// answered BUSY and can end them, whatever the number of loops. Without this, scripts run on the loop of their
    /// connection, and a script that takes longer than `busy-reply-threshold` and has written nothing is ended. The
    /// thread starts with the first such script. The simulated network cannot use this.
    pub fn run_scripts_apart(&self) {
        self.shared.scripts.use_thread();
    }

    /// Shows the streams of a log as keys, to be read by any client: see [`LogKeys`]. To be called before the server
    /// starts; the first call counts. From then on every command is checked for such keys.
    pub fn show_log(&self, keys: LogKeys) {
        self.shared.log_keys.get_or_init(|| Shown::new(keys));
        self.shared.attention.set_log_keys();
    }

    /// Switches off the reading of the log that is [shown](RespService::show_log) for all clients,
    /// or on again for the clients that may read its keys.
    pub fn shut_log(&self, shut: bool) {
        if let Some(shown) = self.shared.log_keys.get() {
            shown.set_shut(shut);
        }
    }

    /// A key of the store, and its database, that no client can use because such keys
    /// [show](RespService::show_log) the log. `now_ms` is milliseconds since 1970. Goes through all
    /// keys.
    #[must_use]
    pub fn hidden_by_log(&self, now_ms: u64) -> Option<(u16, Vec<u8>)> {
        let shown = self.shared.log_keys.get()?;
        shown.hidden(&self.shared.store, now_ms)
    }

    /// Counters of reads from the log that is [shown](RespService::show_log).
    #[must_use]
    pub fn log_counters(&self) -> LogCounters {
        let shown = self.shared.log_keys.get();
        shown.map(Shown::counters).unwrap_or_default()
    }

    /// Does the periodic work that no command asks for, at this time since the epoch: removes some
    /// expired keys, and keys beyond a lowered memory limit; frees some large removed values;
    /// measures the rate of commands. Returns the time until the next call, at most 100 ms; the
    /// work of one call is bounded.
    fn tick(&self, wall: Duration) -> Duration {
        let now_ms = wall.as_millis() as u64;
        if self.shared.store.is_loading() {
            return LOADING_PAUSE;
        }
        let swept = self.shared.store.expire(now_ms);
        self.shared.rate.measure(now_ms, || self.commands());
        self.shared.store.sweep_tracking();
        self.tell_readers_of_loss();
        let freeing = (0..FREEING).all(|_| self.shared.store.free_some());
        let seed = wall.as_nanos() as u64;
        let evicting = self.shared.store.evict_some(now_ms, seed);
        if freeing || evicting {
            FREEING_PAUSE
        } else {
            swept.pause
        }
    }

    /// Clients' caches are no longer valid when another server may change the keys: its changes are
    /// not told here.
    fn tell_readers_of_loss(&self) {
        let is_former = ownership::is_former_owner(&self.shared);
        let was_former = self.shared.was_former_owner.swap(is_former, Relaxed);
        // A batch that began in time may have noted what it read since.
        let has_notes = || self.shared.store.tracking().keys() > 0;
        if is_former && (!was_former || has_notes()) {
            self.shared.store.distrust();
        }
    }

    /// The guards of the store, for another service on the same store.
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Connections that are open.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients.len()
    }

    /// Bytes of memory that the server holds because of its clients: see CLIENT LIST. The function goes through
    /// all clients.
    #[must_use]
    pub fn clients_memory(&self) -> u64 {
        self.shared.clients.memory().0
    }

    fn commands(&self) -> u64 {
        self.shared.stats.read(|now, _| now.commands.value())
    }

    /// The store that the service serves.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }

    /// The counters at this moment, including the counts that CONFIG RESETSTAT has forgotten.
    #[must_use]
    pub fn counters(&self) -> RespCounters {
        self.shared.stats.read(|now, _| RespCounters {
            commands: now.commands.value(),
            errors: now.errors.value(),
            protocol_errors: now.protocol_errors.value(),
            denied: now.denied.value(),
            slow_subscribers: now.slow_subscribers.value(),
            large_replies: now.large_replies.value(),
            refused_patterns: now.refused_patterns.value(),
            refused_holding: now.refused_holding.value(),
            evicted_clients: now.evicted_clients.value(),
            timed_out: now.timed_out.value(),
            not_logged_in: now.not_logged_in.value(),
        })
    }

    /// Every command that was called: its name, how often, and how often the answer was an error.
    pub fn each_command(&self, mut f: impl FnMut(&'static str, u64, u64)) {
        self.shared.stats.read(|now, _| {
            for entry in table().all() {
                let counts = now.command(entry.id);
                let (rejected, failed) = (counts.rejected.value(), counts.failed.value());
                let calls = counts.calls.value() + rejected;
                if calls > 0 {
                    f(entry.name, calls, rejected + failed);
                }
            }
        });
    }
}

impl fmt::Debug for RespService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespService").finish_non_exhaustive()
    }
}

impl Service for RespService {
    type Conn = RespConn;

    fn on_loop(&self, at: LoopHandle<Message>) -> RespLocal {
        if at.number() == TICKS {
            at.signal();
        }
        RespLocal::new(self.shared.clone(), at)
    }

    fn loop_ended(&self, mut local: RespLocal) {
        // No client waits for this loop any more.
        while local.leaving.turn(&mut local.subscribers, &self.shared.hub) {}
        self.shared.scripts.remove_loop(local.name);
        self.shared.stats.loop_ended(&local.stats);
    }

    fn accept(&self, from: &Peer, local: &mut RespLocal) -> Result<RespConn, Refusal> {
        let shared = &self.shared;
        if shared.denies(from) {
            return Ok(RespConn::denied(shared));
        }
        let loading = shared.store.is_loading();
        // In this order: where the store is, the log is.
        local.find_log();
        Ok(RespConn::new(shared, !shared.acl.needs_password(), loading))
    }

    /// The first is what clients of Redis know.
    fn refusal_reply(&self, why: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
        let words: &[u8] = match why {
            Refusal::ConnectionLimit | Refusal::AddressLimit | Refusal::PrefixLimit => {
                b"-ERR max number of clients reached\r\n"
            }
            Refusal::AcceptRate | Refusal::AddressRate => {
                b"-ERR too many connections in a short time, try again later\r\n"
            }
            Refusal::MemoryLimit => b"-ERR no memory for more connections, try again later\r\n",
            _ => return None,
        };
        Some(Cow::Borrowed(words))
    }

    fn woken(&self, local: &mut RespLocal, all: &mut Conns<'_, RespConn>) {
        let most = self.shared.config.subscriber_output.load(Relaxed);
        local.find_log();
        if let Some(mut waiting) = local.waiting.take() {
            if local.subscribers.any() {
                // The bell is armed before the check whether the changes in the replies have
                // settled.
                waiting.arm();
            }
            if let Some(waited) = waiting.woken(local, all) {
                self.note_commit(waited, all.wall());
            }
            local.waiting = Some(waiting);
        }
        let subscribers = std::mem::take(&mut local.subscribers);
        subscribers.deliver(|id, frame| {
            all.with(id, local, |conn, cx| conn.deliver(frame, most, cx));
        });
        for id in subscribers.deceived() {
            all.with(id, local, |conn, cx| conn.cut_subscriber(most, cx));
        }
        local.subscribers = subscribers;
        local.end_subscriptions();
        if local.is_busy() && all.timer().is_none() {
            all.set_timer_after(BUSY_PAUSE);
        }
        Followers::woken(&self.shared, local, all);
        if !local.parked.is_empty() && (!self.shared.store.is_kept() || self.shared.is_busy()) {
            for id in std::mem::take(&mut local.parked) {
                all.with(id, local, |conn, cx| conn.unpark(cx));
            }
        }
        if all.number() == TICKS && all.timer().is_none() {
            // A loop is signalled when it begins, before any client connects.
            let now_ms = all.now().as_nanos() / 1_000_000;
            self.shared
                .note_start(now_ms, all.wall().as_millis() as u64);
            self.expired(local, all);
        }
    }

    fn expired(&self, local: &mut RespLocal, all: &mut Conns<'_, RespConn>) {
        // The expiry of keys is committed too.
        local.find_log();
        local.arm();
        let busy = local.look_at_busy(all);
        if all.number() != TICKS {
            if busy {
                all.set_timer_after(BUSY_PAUSE);
            }
            return;
        }
        if self.shared.clients_excess() > 0 {
            local.evict_clients(all.now());
        }
        let pause = self.tick(all.wall());
        all.set_timer_after(pause);
    }
}
