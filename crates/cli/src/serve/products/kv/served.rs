//! The store that is served, from its recovery to its end.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidewire_admin::catalogue::kv as metrics;
use tidewire_admin::{Panel, Snapshot};
use tidewire_kv::durable::{self, Accept, KvLog, ReplayError, snapshot};
use tidewire_kv::service::{
    BinaryService, Replication, RespService, Role, Sentinel, Settings as KvSettings,
};
use tidewire_kv::store::Store;
use tidewire_log::{Log, Policy as Commits, ReadError};

use super::begun::refuse_begun;
use super::durability::Durability;
use super::failover::Anew;
use super::follow::{Following, Needs, TakenOver};
use super::home::{self, Carrier, KvHome, Terms};
use super::log::kv_directory;
use super::member::{self, Member};
use super::names::{SERVICE, binary, resp};
use super::settings::KvOptions;
use crate::exit::Failure;
use crate::serve::listeners::kind::Kind;
use crate::serve::logs::open::OpenLog;
use crate::serve::logs::options::LogOptions;
use crate::serve::product::{Frame, Plan, Recovery, Refused, Serving};
use crate::serve::running::now::now_ms;

/// Between two lines about how far the recovery has come.
const PROGRESS: Duration = Duration::from_secs(2);

/// The pause between two checks of an awaited condition.
const AWAITED: Duration = Duration::from_millis(5);

/// Whether another start may succeed: the error is the system's, and not about the stored data.
fn may_pass(error: &ReplayError) -> bool {
    matches!(
        error,
        ReplayError::Stream(_)
            | ReplayError::Read(ReadError::Failed(_))
            | ReplayError::Snapshot(durable::snapshot::SnapshotError::Io { .. })
    )
}

/// Rebuilds the store from its snapshot and log; later changes are committed to this log. `None` if `show`, which is told
/// the progress, asks to stop.
fn recover(
    store: &Store,
    log: &OpenLog,
    accept_loss: bool,
    mut show: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Option<(Arc<KvLog>, durable::Replayed)>, Failure> {
    let now_ms = now_ms();
    let began = Instant::now();
    let mut told = began;
    let progress = |replayed: &durable::Replayed, done: u64, of: u64| {
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let from = if replayed.units == 0 && replayed.snapshot.is_none() {
                "snapshot"
            } else {
                "log"
            };
            tracing::info!(from, done, of, "recovering the key-value store");
        }
        show(done, of)
    };
    let directory = log.directory.display();
    let accept = match accept_loss {
        true => Accept::Gaps,
        false => Accept::Nothing,
    };
    let opened = durable::open(log.embedded(), store, now_ms, accept, progress);
    if let Err(ReplayError::Stopped) = opened {
        return Ok(None);
    }
    let (kv_log, replayed) = opened.map_err(|error| {
        let way_on = match &error {
            ReplayError::Read(ReadError::Missing { .. }) => {
                "; --kv-accept-loss starts without them"
            }
            _ => "",
        };
        let message =
            format!("cannot recover the key-value store from {directory}: {error}{way_on}");
        match may_pass(&error) {
            true => Failure::failed(message),
            false => Failure::wrong(message),
        }
    })?;
    if replayed.lost > 0 {
        tracing::warn!(
            %directory, lost = replayed.lost,
            "records that were lost in damage are skipped: their changes are lost"
        );
    }
    let keys = keys(store);
    tracing::info!(
        %directory,
        keys,
        snapshot_keys = replayed.snapshot.map_or(0, |found| found.keys),
        units = replayed.units,
        bytes = replayed.bytes,
        unclosed = replayed.unclosed,
        seconds = began.elapsed().as_secs_f64(),
        "key-value store recovered"
    );
    Ok(Some((kv_log, replayed)))
}

/// The store and the services on it.
pub(super) struct Kv {
    options: KvOptions,
    durability: Durability,
    /// The home of the store, if it has one.
    home: Option<KvHome>,
    replication: Option<Replication>,
    /// Carries the store's log to its home; taken when the server stops.
    carrier: Mutex<Option<Carrier>>,
    /// Follows the store from its home; taken when the server stops.
    following: Mutex<Option<Following>>,
    /// The other servers of the store, if it fails over by itself; taken when the server stops.
    member: Mutex<Option<Member>>,
    anew: Anew,
    log_options: LogOptions,
    /// Not there before the store has been recovered.
    log: OnceLock<Arc<KvLog>>,
    /// Makes snapshots; taken when the server stops.
    keeper: Mutex<Option<snapshot::Running>>,
    resp: RespService,
    binary: BinaryService,
}

impl Kv {
    /// Adds the services to the loops: that of the Redis protocol in any case, because it has expired keys go. With a log
    /// they serve no keys before the store [is recovered](Serving::recover).
    pub(super) fn add(
        options: &KvOptions,
        is_binary_open: bool,
        frame: &mut Frame<'_>,
    ) -> Result<Kv, Failure> {
        let settings = &frame.plan.settings;
        let log = frame.logs.of(SERVICE.name);
        let store = Arc::new(Store::new(options.store(settings)?));
        let own = KvSettings {
            directory: log.and_then(|log| std::path::absolute(&log.directory).ok()),
            ..options.services(settings)?
        };
        let home = options.home(&settings.durable)?.map(|home| KvHome {
            // An earlier start may have taken the store over.
            follows: home.follows && log.is_none(),
            ..home
        });
        let service = match options.durability().policy() {
            None => RespService::new(store.clone(), own),
            Some(policy) => {
                store.begin_loading();
                RespService::recovering(store.clone(), own, policy)
            }
        };
        let replication = home.as_ref().map(|home| {
            let role = match home.follows {
                true => Role::Follower,
                false => Role::Owner,
            };
            let replication = Replication::new(home.target.to_string(), role);
            service.replicated(replication.clone());
            replication
        });
        options.use_acl_file(&service)?;
        service.run_scripts_apart();
        if let Some(keys) = options.log_keys(frame.logs.messages.as_ref())? {
            tracing::info!(
                prefix = options.log_keys,
                past_tokens = options.log_past_tokens,
                "clients of kv can read the log of messages: its streams are keys with this prefix"
            );
            service.show_log(keys);
        }
        let small = match is_binary_open {
            true => BinaryService::open(store),
            false => BinaryService::guarded(&service),
        };
        let small = match &options.log_keys {
            Some(prefix) => small.reserving(prefix.as_bytes()),
            None => small,
        };
        frame.add(resp(), service.clone());
        if frame.plan.serves_kind(binary()) {
            frame.add(binary(), small.clone());
        }
        Ok(Kv {
            durability: options.durability(),
            options: options.clone(),
            home,
            replication,
            carrier: Mutex::default(),
            following: Mutex::default(),
            member: Mutex::default(),
            anew: Anew::default(),
            log_options: settings.durable.clone(),
            log: OnceLock::new(),
            keeper: Mutex::default(),
            resp: service,
            binary: small,
        })
    }

    /// Builds the store from its log, and begins to serve clients. Whether that was done.
    fn recover_from(&self, log: &OpenLog, recovery: &mut Recovery<'_>) -> Result<bool, Failure> {
        let Recovery {
            plan,
            panel,
            at,
            goes_on,
            ..
        } = recovery;
        let options = &self.options;
        let terms = self.terms(plan, at)?;
        refuse_begun(&log.directory)?;
        let (resp, binary) = (&self.resp, &self.binary);
        let store = resp.store();
        let show = |done, of: u64| {
            resp.has_loaded(done, of);
            let percent = 100.0 * done as f64 / of.max(1) as f64;
            panel.set_doing(format!(
                "recovering the key-value store, {percent:.0} % of this part read"
            ));
            match goes_on() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let Some((kv_log, replayed)) = recover(store, log, options.accept_loss, show)? else {
            return Ok(false);
        };
        if let Some((db, key)) = resp.hidden_by_log(now_ms()) {
            return Err(Failure::usage(format!(
                "--kv-log-keys: the store has keys with this prefix, which no client could use \
                 any more, such as {:?} in database {db}: choose another prefix, or rename these \
                 keys first",
                String::from_utf8_lossy(&key)
            )));
        }
        kv_log
            .snapshots()
            .set_growth(options.growth(&log.directory));
        if self.durability == Durability::Replicated {
            kv_log.await_home();
        }
        let keeper = snapshot::Keeper::new(
            log.embedded(),
            kv_log.clone(),
            store.clone(),
            replayed.snapshot,
        );
        let keeper = snapshot::Running::start(keeper).map_err(|error| {
            Failure::failed(format!("cannot start the thread of snapshots: {error}"))
        })?;
        *kept(&self.keeper) = Some(keeper);
        if let (Some(home), Some(replication)) = (&self.home, &self.replication) {
            let carrier = Carrier::start(log, &kv_log, &home.target, &plan.durable, &terms)?;
            let carried = carrier.watched();
            replication.watch(move |to| carried.tell(to));
            let is_sure = !options.may_follow() && !kv_log.awaits_home();
            if !is_sure {
                let awaited = await_home(log, &kv_log, &carrier, panel, &mut **goes_on);
                match awaited {
                    Ok(true) => {}
                    // The store is followed from the next beginning on.
                    Err(_) if self.anew.why().is_some() => return Ok(false),
                    Ok(false) => return Ok(false),
                    Err(why) => return Err(why),
                }
            }
            *kept(&self.carrier) = Some(carrier);
        }
        resp.recovered(kv_log.clone());
        binary.recovered(kv_log.clone());
        self.log.get_or_init(|| kv_log);
        // This comes last: clients served from now on wait for the log.
        store.end_loading();
        Ok(true)
    }

    /// Begins to follow another server's store, and has clients served when all is read that is there now. Whether that was
    /// done, as for [`recover_from`](Kv::recover_from).
    fn follow(&self, recovery: &mut Recovery<'_>) -> Result<bool, Failure> {
        let Recovery {
            plan,
            panel,
            at,
            goes_on,
            ..
        } = recovery;
        let options = &self.options;
        let log_options = &plan.durable;
        let terms = self.terms(plan, at)?;
        let (Some(home), Some(replication)) = (&self.home, &self.replication) else {
            return Ok(true);
        };
        let (resp, binary) = (&self.resp, &self.binary);
        let policy = self.durability.policy().unwrap_or(Commits::Sync);
        let kv_log = Arc::new(KvLog::following(policy));
        if self.durability == Durability::Replicated {
            kv_log.await_home();
        }
        // From now on nothing goes by itself: what expires there does here when its owner says so.
        resp.store().set_effects(kv_log.clone());
        resp.recovered(kv_log.clone());
        binary.recovered(kv_log.clone());
        self.log.get_or_init(|| kv_log.clone());
        let following = Following::start(Needs {
            store: resp.store().clone(),
            kv_log,
            replication: replication.clone(),
            target: home.target.clone(),
            options: log_options.clone(),
            growth: options.growth(&kv_directory(log_options)),
            terms,
        })?;
        let mut told = Instant::now();
        let is_current = loop {
            match following.failure() {
                Some(_) if self.anew.why().is_some() => break false,
                Some(why) => return Err(Failure::wrong(why)),
                None => {}
            }
            if following.is_current() {
                break true;
            }
            if !goes_on() {
                break false;
            }
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let now = replication.status();
                tracing::info!(
                    position = now.position,
                    lag = now.lag,
                    trouble = now.trouble.as_deref(),
                    "reading the key-value store from its home"
                );
                panel.set_doing(format!(
                    "reading the key-value store from its home, {} records done",
                    now.position
                ));
            }
            std::thread::sleep(AWAITED);
        };
        *kept(&self.following) = Some(following);
        Ok(is_current)
    }

    /// What an owner carries its store home with. A server that fails over by itself joins the other
    /// servers of the store.
    fn terms(&self, plan: &Plan, at: &[(Kind, tidewire::Endpoint)]) -> Result<Terms, Failure> {
        let options = &self.options;
        let mut terms = Terms {
            growth: options.home_growth.0,
            lease: options.lease(),
            member: None,
        };
        let Some(home) = self.home.as_ref().filter(|_| options.failover) else {
            return Ok(terms);
        };
        let at = options.own_address(plan, at)?;
        let sentinel = Sentinel::new(options.master_name.clone(), at.clone());
        self.resp.tells_of(sentinel);
        tracing::info!(
            %at,
            name = options.master_name,
            home = %home.target,
            "this server is one of several of its store, any of which may own it"
        );
        let member = Member::start(member::Needs {
            target: home.target.clone(),
            home: home::client(&plan.durable)?,
            at,
            session: options.session.0,
            service: self.resp.clone(),
        });
        let member = member
            .map_err(|e| Failure::failed(format!("cannot start the threads of failover: {e}")))?;
        terms.member = Some((member.post().clone(), self.anew.clone()));
        *kept(&self.member) = Some(member);
        Ok(terms)
    }

    /// The number of keys in all databases, for a store without a log.
    fn forgotten(&self) -> usize {
        match self.durability {
            Durability::None => keys(self.resp.store()),
            Durability::Here(_) | Durability::Replicated => 0,
        }
    }
}

impl Serving for Kv {
    fn on_shutdown(&self, stop: Arc<dyn Fn() + Send + Sync>) {
        self.anew.stop_by(stop.clone());
        self.resp.on_shutdown(move || stop());
    }

    fn recover(&self, recovery: &mut Recovery<'_>) -> Result<bool, Failure> {
        if self.durability != Durability::None {
            for (_, addr) in recovery
                .at
                .iter()
                .filter(|(kind, _)| *kind.service == SERVICE)
            {
                tracing::info!(
                    %addr,
                    "recovering: until the end of it, commands that need keys are answered with \
                     -LOADING, and commands of the binary protocol wait"
                );
            }
        }
        match recovery.log {
            _ if self.home.as_ref().is_some_and(|home| home.follows) => self.follow(recovery),
            Some(log) => self.recover_from(log, recovery),
            None => Ok(true),
        }
    }

    fn listening(&self, kind: Kind, at: &tidewire::Endpoint) {
        if kind == resp() {
            self.resp.listens_at(at);
        }
    }

    fn is_watched(&self) -> bool {
        self.options.may_follow()
    }

    fn taken_over(&self) -> Option<OpenLog> {
        let mut following = kept(&self.following);
        let TakenOver {
            log,
            keeper,
            carrier,
        } = following.as_ref()?.taken()?;
        *following = None;
        *kept(&self.keeper) = Some(keeper);
        *kept(&self.carrier) = Some(carrier);
        Some(log)
    }

    /// If ingest asks for tokens, clients of this service cannot read its log, unless a setting
    /// allows it.
    fn log_is_guarded(&self, asks: bool) {
        if self.options.log_keys.is_none() || self.options.log_past_tokens {
            return;
        }
        if asks {
            tracing::warn!(
                "ingest requires tokens now, so --kv-log-keys shows nothing any more; \
                 --kv-log-past-tokens allows it"
            );
        }
        self.resp.shut_log(asks);
    }

    fn stop_following(&self) {
        if let Some(following) = &mut *kept(&self.following) {
            following.stop();
        }
    }

    fn let_go_of_logs(&self) {
        drop(kept(&self.keeper).take());
        drop(kept(&self.carrier).take());
        drop(kept(&self.member).take());
    }

    fn begins_anew(&self) -> bool {
        self.anew.why().is_some()
    }

    fn logs_closed(&self) -> Result<(), Failure> {
        match &self.home {
            Some(home) if self.anew.why().is_some() => self.anew.prepare(
                &kv_directory(&self.log_options),
                &home.target,
                &home::client(&self.log_options)?,
            ),
            _ => Ok(()),
        }
    }

    fn forgets(&self) -> Option<String> {
        let keys = self.forgotten();
        (keys > 0).then(|| {
            format!(
                "the key-value store holds {keys} keys in memory only (durability none), which a \
                 successor would not have; with --takeover-forget they are lost"
            )
        })
    }

    fn refused(&self) -> Refused {
        Refused {
            by_disk: self.log.get().map_or(0, |log| log.refused_full()),
            by_streams: 0,
        }
    }

    fn failure(&self) -> Option<&'static str> {
        let following = kept(&self.following);
        let has_ended = following.as_ref().is_some_and(|it| it.failure().is_some());
        let has_failed = has_ended || self.log.get().is_some_and(|log| log.has_failed());
        has_failed.then_some("the key-value store has stopped taking changes")
    }

    fn collect(&self, to: &mut Snapshot) {
        let resp = self.resp.counters();
        to.add(&metrics::COMMANDS, &["resp"], resp.commands);
        to.add(&metrics::ERRORS, &[], resp.errors);
        to.add(&metrics::CLIENTS, &[], self.resp.clients());
        self.resp.each_command(|name, calls, errors| {
            to.add(&metrics::COMMAND_CALLS, &[name], calls);
            to.add(&metrics::COMMAND_ERRORS, &[name], errors);
        });
        for (reason, n) in [
            ("slow_subscriber", resp.slow_subscribers),
            ("large_reply", resp.large_replies),
            ("timed_out", resp.timed_out),
            ("not_logged_in", resp.not_logged_in),
            ("protocol_error", resp.protocol_errors),
            ("denied", resp.denied),
            ("evicted", resp.evicted_clients),
        ] {
            to.add(&metrics::CUT, &[reason], n);
        }
        to.add(&metrics::PATTERNS_REFUSED, &[], resp.refused_patterns);
        to.add(&metrics::HOLDINGS_REFUSED, &[], resp.refused_holding);
        to.add(&metrics::CLIENTS_BYTES, &[], self.resp.clients_memory());
        let log = self.resp.log_counters();
        to.add(&metrics::LOG_READS, &[], log.reads);
        to.add(&metrics::LOG_ENTRIES, &[], log.entries);
        to.add(&metrics::LOG_BYTES, &[], log.bytes);
        to.add(&metrics::LOG_REFUSED, &[], log.refused);
        let binary = self.binary.counters();
        to.add(
            &metrics::COMMANDS,
            &["binary"],
            binary.reads + binary.writes,
        );
        to.add(&metrics::BINARY_CLOSED, &["fault"], binary.faults);
        to.add(&metrics::BINARY_CLOSED, &["refused"], binary.refused);
        let store = self.resp.store();
        to.add(&metrics::DURABILITY, &[&self.durability.to_string()], 1_u64);
        if let Some(replication) = &self.replication {
            home::collect(replication, self.log.get(), to);
        }
        if let Some(carrier) = &*kept(&self.carrier) {
            carrier.watched().collect(to);
        }
        if let Some(member) = &*kept(&self.member) {
            member.post().collect(to);
        }
        if let Some(log) = self.log.get() {
            // In this order, so that what is committed in between is not waited for.
            let last = store.last_ticket();
            to.add(&metrics::PENDING, &[], last.saturating_sub(log.update()));
            to.add(&metrics::REFUSED_FULL, &[], log.refused_full());
        }
        collect_store(store, to);
    }

    fn log(&self) {
        let counters = self.resp.counters();
        if counters.commands > 0 {
            tracing::info!(
                commands = counters.commands,
                slow_subscribers = counters.slow_subscribers,
                large_replies = counters.large_replies,
                "kv/resp"
            );
        }
        let counters = self.binary.counters();
        if counters != Default::default() {
            tracing::info!(%counters, "kv/binary");
        }
    }
}

fn kept<T>(place: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until everything that was found in the log is in the home: so no failover takes back what is served later.
/// Returns whether the server had to wait.
fn await_home(
    log: &OpenLog,
    kv_log: &KvLog,
    carrier: &Carrier,
    panel: &Panel,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<bool, Failure> {
    let log = log.embedded();
    let found = log.progress().committed;
    let mut told = Instant::now();
    loop {
        let progress = log.progress();
        if progress.replicates && progress.replicated >= Some(found) && kv_log.is_proven() {
            return Ok(true);
        }
        if kv_log.lost().is_some() {
            let why = carrier.trouble().unwrap_or_default();
            return Err(Failure::wrong(format!(
                "another server owns the key-value store now: {why}. `tidewire log unreplicated` \
                 lists the changes that only this server has; start with --follow and another \
                 directory"
            )));
        }
        if !goes_on() {
            return Ok(false);
        }
        if told.elapsed() >= PROGRESS {
            told = Instant::now();
            let trouble = carrier.trouble();
            tracing::info!(
                trouble = trouble.as_deref(),
                "the key-value store waits for its home"
            );
            panel.set_doing("waiting for the home of the key-value store".into());
        }
        std::thread::sleep(AWAITED);
    }
}

/// The number of keys in all databases.
fn keys(store: &Store) -> usize {
    store.keyspaces().iter().map(|keys| keys.keys).sum()
}

fn collect_store(store: &Store, to: &mut Snapshot) {
    let stats = store.stats();
    to.add(&metrics::HITS, &[], stats.hits);
    to.add(&metrics::MISSES, &[], stats.misses);
    to.add(&metrics::EXPIRED, &[], stats.expired);
    to.add(&metrics::EVICTED, &[], stats.evicted);
    to.add(&metrics::USED_BYTES, &[], store.used_memory());
    to.add(&metrics::MAX_BYTES, &[], store.maxmemory());
    for (db, keys) in store.keyspaces().iter().enumerate() {
        if keys.keys > 0 || db == 0 {
            let db = db.to_string();
            to.add(&metrics::KEYS, &[&db], keys.keys);
            to.add(&metrics::KEYS_EXPIRING, &[&db], keys.expires);
        }
    }
}
