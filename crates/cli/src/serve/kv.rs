//! The settings of the key-value services, and the services.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tidewire::{Builder, EngineChoice, Listen};
use tidewire_admin::catalogue::kv as metrics;
use tidewire_admin::{Panel, Snapshot};
use tidewire_kv::durable::{self, Accept, KvLog, ReplayError, snapshot};
use tidewire_kv::service::{
    BinaryService, LogKeys, Replication, RespService, Role, Settings as KvSettings,
};
use tidewire_kv::store::{self, Policy, SHARDS_MAX, Store};
use tidewire_log::{Log, Policy as Commits, ReadError};
use tidewire_pool::Pool;

use super::begun::refuse_begun;
use super::door::Door;
use super::durability::Durability;
use super::durable::LogOptions;
use super::endpoint::Endpoint;
use super::follow::{Following, Needs, TakenOver};
use super::fronts::Fronts;
use super::kind::{Kind, KvMode};
use super::kv_home::{self, Carrier, KvHome};
use super::kv_options::KvOptions;
use super::log::{Logs, OpenLog, disk_size, kv_directory};
use super::now::now_ms;
use super::settings::Settings;
use crate::exit::Failure;
use crate::size::Size;
use crate::span::Span;

/// Shards for each of several loops: so few wait for one that another has that it is no matter how many loops there are.
const SHARDS_A_LOOP: usize = 4;
/// Shards for any number of loops: what takes all of their locks, as scripts do, is to stay cheap.
const SHARDS_OF_ALL_LOOPS: usize = 1024;

impl KvOptions {
    fn store(&self, settings: &Settings) -> Result<store::Settings, Failure> {
        let mut own = store::Settings::default();
        own.shards = match settings.workers {
            // Taking locks in turn is a good part of what a pipelined command costs.
            1 if settings.engine != EngineChoice::Threads => 1,
            loops => (SHARDS_A_LOOP * loops).clamp(own.shards, SHARDS_OF_ALL_LOOPS),
        };
        let policy = match &self.policy {
            None => own.policy,
            Some(name) => Policy::from_name(name).ok_or_else(|| {
                let all = Policy::ALL.map(Policy::name).join(", ");
                Failure::usage(format!(
                    "--kv-policy {name}: there is no such policy: {all}"
                ))
            })?,
        };
        let databases = self.databases.unwrap_or(own.databases);
        if !(1..=256).contains(&databases) {
            return Err(Failure::usage(format!(
                "--kv-databases {databases}: 1 to 256"
            )));
        }
        let shards = self.shards.unwrap_or(own.shards);
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(Failure::usage(format!(
                "--kv-shards {shards}: 1 to {SHARDS_MAX}"
            )));
        }
        Ok(store::Settings {
            databases,
            shards,
            maxmemory: self.maxmemory.map_or(own.maxmemory, |size| size.0),
            policy,
            ..own
        })
    }

    fn services(&self, settings: &Settings) -> Result<KvSettings, Failure> {
        let bounds = self.bounds(settings);
        // No client could ask for more, and a smaller buffer serves none.
        let query_buffers = KvSettings::QUERY_BUFFER_MIN..=u32::MAX as usize;
        if !query_buffers.contains(&bounds.query_buffer) {
            return Err(Failure::usage(format!(
                "--kv-query-buffer {}: 1 MiB to less than 4 GiB",
                bounds.query_buffer
            )));
        }
        for (flag, bytes) in [
            ("--kv-client-output", bounds.client_output),
            ("--kv-subscriber-output", bounds.subscriber_output),
        ] {
            if bytes < KvSettings::OUTPUT_MIN {
                return Err(Failure::usage(format!(
                    "{flag} {bytes}: 16 KiB at least, or 0 for none of its own"
                )));
            }
        }
        Ok(KvSettings {
            password: self.password()?,
            protected: !settings.is_open(Kind::Kv(KvMode::Resp)),
            clients_max: settings.limits(Kind::Kv(KvMode::Resp)).connections,
            keepalive: settings.tcp.keepalive,
            ..bounds
        })
    }

    /// What a client of the Redis protocol is held to.
    pub(super) fn bounds(&self, settings: &Settings) -> KvSettings {
        let own = KvSettings::default();
        let bytes = |size: Option<Size>, own: usize| size.map_or(own, |size| size.0 as usize);
        let output = |size: Option<Size>, own: usize| match bytes(size, own) {
            0 => usize::MAX,
            bytes => bytes,
        };
        KvSettings {
            query_buffer: bytes(self.query_buffer, own.query_buffer),
            client_output: output(self.client_output, own.client_output),
            subscriber_output: output(self.subscriber_output, own.subscriber_output),
            clients_memory: self
                .maxmemory_clients
                .map_or(own.clients_memory, |size| size.0),
            stall: settings.deadlines.idle(Kind::Kv(KvMode::Resp), own.stall),
            idle: self.timeout.and_then(Span::limit),
            login_within: match self.login {
                Some(within) => within.limit(),
                None => own.login_within,
            },
            ..own
        }
    }

    /// What the log in this directory may grow before a snapshot is made; bytes.
    fn growth(&self, directory: &Path) -> u64 {
        self.snapshot_growth.map_or_else(
            || GROWTH.min(disk_size(directory).unwrap_or(u64::MAX) / GROWTHS_OF_A_DISK),
            |size| size.0,
        )
    }

    /// How the log is shown as keys, if it is.
    fn log_keys(&self, log: Option<&OpenLog>) -> Result<Option<LogKeys>, Failure> {
        if self.log_reply.is_some_and(|size| size.0 == 0) {
            return Err(Failure::usage(
                "--kv-log-reply 0: no client could read anything of the log; at least 1, or leave --kv-log-keys out",
            ));
        }
        let (Some(prefix), Some(log)) = (&self.log_keys, log) else {
            return Ok(None);
        };
        let pool = Pool::new(&tidewire_pool::Settings {
            threads: LOG_READERS,
            places: tidewire::RESERVED_MAX,
            nice: 0,
        });
        let pool = pool.map_err(|error| {
            Failure::failed(format!(
                "cannot start the threads of --kv-log-keys: {error}"
            ))
        })?;
        let bytes = |size: Size| usize::try_from(size.0).unwrap_or(usize::MAX);
        Ok(Some(LogKeys {
            prefix: prefix.clone().into_bytes(),
            log: log.shared(),
            pool,
            reply_max: self.log_reply.map_or(LogKeys::REPLY_MAX, bytes),
        }))
    }

    /// Whether a server could have these: files that they name are read.
    ///
    /// # Errors
    /// What stands in the way.
    pub(super) fn check(&self, settings: &Settings) -> Result<(), Failure> {
        let store = Arc::new(Store::new(self.store(settings)?));
        self.use_acl_file(&RespService::new(store, self.services(settings)?))
    }

    fn use_acl_file(&self, resp: &RespService) -> Result<(), Failure> {
        let Some(file) = &self.acl_file else {
            return Ok(());
        };
        resp.use_acl_file(file)
            .map_err(|error| Failure::usage(error.to_string()))
    }
}

/// Between two lines about how far the recovery has come.
const PROGRESS: Duration = Duration::from_secs(2);

/// Between two looks at what a start waits for.
const AWAITED: Duration = Duration::from_millis(5);

/// Threads that read the log of messages for clients of the store.
const LOG_READERS: usize = 2;

/// What the log may grow before a snapshot is made.
const GROWTH: u64 = 256 << 20;

/// A disk has room for so many of these at least, by default.
const GROWTHS_OF_A_DISK: u64 = 8;

/// Whether another start may find it otherwise: it speaks of the system, and not of what is stored.
fn may_pass(error: &ReplayError) -> bool {
    matches!(
        error,
        ReplayError::Stream(_)
            | ReplayError::Read(ReadError::Failed(_))
            | ReplayError::Snapshot(durable::snapshot::SnapshotError::Io { .. })
    )
}

/// Builds the store again from its snapshot and log, to which it commits from then on; `None` if `show`, which is told how
/// far it is, does not want it to go on.
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
                "; --kv-accept-loss goes on without them"
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
            "records that were lost in damage are passed over: what they changed is not known"
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
pub(crate) struct Kv {
    durability: Durability,
    /// Where the store is at home, if it has one.
    home: Option<KvHome>,
    replication: Option<Replication>,
    /// Carries it there; taken when the server stops.
    carrier: Mutex<Option<Carrier>>,
    /// Follows it from there; taken when the server stops.
    following: Mutex<Option<Following>>,
    /// Not there before the store has been recovered.
    log: OnceLock<Arc<KvLog>>,
    /// Makes snapshots; taken when the server stops.
    keeper: Mutex<Option<snapshot::Running>>,
    resp: (RespService, Door<RespService>),
    /// On the loops only if it is served.
    binary: (BinaryService, Option<Door<BinaryService>>),
}

impl Kv {
    /// Adds the services to the loops: that of the Redis protocol in any case, because it has expired keys go. With a log
    /// they serve no keys before the store [is recovered](Kv::recover).
    pub(crate) fn add(
        builder: &mut Builder,
        settings: &Settings,
        fronts: &Fronts,
        logs: &Logs,
    ) -> Result<Kv, Failure> {
        let log = logs.kv.as_ref();
        let options = &settings.kv;
        let store = Arc::new(Store::new(options.store(settings)?));
        let own = KvSettings {
            directory: log.and_then(|log| std::path::absolute(&log.directory).ok()),
            ..options.services(settings)?
        };
        let home = options.home(&settings.durable)?.map(|home| KvHome {
            // By an earlier start it may have been taken over.
            follows: home.follows && log.is_none(),
            ..home
        });
        let resp = match options.durability().policy() {
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
            resp.replicated(replication.clone());
            replication
        });
        options.use_acl_file(&resp)?;
        resp.run_scripts_apart();
        if let Some(keys) = options.log_keys(logs.messages.as_ref())? {
            tracing::info!(
                prefix = options.log_keys,
                past_tokens = options.log_past_tokens,
                "clients of kv read the log of messages: its streams are keys that begin so"
            );
            resp.show_log(keys);
        }
        let binary = if settings.is_binary_open() {
            BinaryService::open(store)
        } else {
            BinaryService::guarded(&resp)
        };
        let binary = match &options.log_keys {
            Some(prefix) => binary.reserving(prefix.as_bytes()),
            None => binary,
        };
        let resp_door = Door::add(
            builder,
            settings,
            fronts,
            Kind::Kv(KvMode::Resp),
            resp.clone(),
        );
        let kind = Kind::Kv(KvMode::Binary);
        let add = || Door::add(builder, settings, fronts, kind, binary.clone());
        let binary_door = settings.serves(kind).then(add);
        Ok(Kv {
            durability: options.durability(),
            home,
            replication,
            carrier: Mutex::default(),
            following: Mutex::default(),
            log: OnceLock::new(),
            keeper: Mutex::default(),
            resp: (resp, resp_door),
            binary: (binary, binary_door),
        })
    }

    /// Builds the store from its log, and has clients served. Whether that was done: `goes_on` is asked meanwhile whether it
    /// is to be.
    pub(crate) fn recover(
        &self,
        options: &KvOptions,
        log_options: &LogOptions,
        log: &OpenLog,
        panel: &Panel,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Failure> {
        refuse_begun(&log.directory)?;
        let (resp, binary) = (&self.resp.0, &self.binary.0);
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
                "--kv-log-keys: the store has keys that begin so, which no client could use any more, such as {:?} in database \
                 {db}: choose another prefix, or rename them first",
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
            let carrier = Carrier::start(
                log,
                &kv_log,
                &home.target,
                log_options,
                options.home_growth(),
                options.lease(),
            )?;
            let carried = carrier.watched();
            replication.watch(move |to| carried.tell(to));
            let is_sure = options.follow.is_none() && !kv_log.awaits_home();
            if !is_sure && !await_home(log, &kv_log, &carrier, panel, goes_on)? {
                return Ok(false);
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

    /// Whether the store is another server's at first, and has no log here.
    pub(crate) fn follows(&self) -> bool {
        self.home.as_ref().is_some_and(|home| home.follows)
    }

    /// Begins to follow another server's store, and has clients served when all is read that is there now. Whether that was
    /// done, as for [`recover`](Kv::recover).
    pub(crate) fn follow(
        &self,
        options: &KvOptions,
        log_options: &LogOptions,
        panel: &Panel,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, Failure> {
        let (Some(home), Some(replication)) = (&self.home, &self.replication) else {
            return Ok(true);
        };
        let (resp, binary) = (&self.resp.0, &self.binary.0);
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
            home_growth: options.home_growth(),
            lease: options.lease(),
        })?;
        let mut told = Instant::now();
        let is_current = loop {
            if let Some(why) = following.failure() {
                return Err(Failure::wrong(why));
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

    /// The log of a store that was taken over since this was asked last.
    pub(crate) fn taken_over(&self) -> Option<OpenLog> {
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

    pub(crate) fn listen(
        &self,
        builder: &mut Builder,
        fronts: &Fronts,
        endpoint: &Endpoint,
        listen: Listen,
    ) -> Result<(), Failure> {
        match endpoint.kind {
            Kind::Kv(KvMode::Binary) => {
                let door = self.binary.1.as_ref();
                let door = door.expect("it was added, as it is served");
                door.listen(builder, fronts, endpoint, listen)
            }
            _ => self.resp.1.listen(builder, fronts, endpoint, listen),
        }
    }

    pub(crate) fn listening(&self, kind: Kind, at: &tidewire::Endpoint) {
        if kind == Kind::Kv(KvMode::Resp) {
            self.resp.0.listens_at(at);
        }
    }

    /// Notes whether ingest asks for tokens: if it does, no client reads its log here, unless the
    /// settings allow it.
    pub(crate) fn heed_tokens(&self, asks: bool, options: &KvOptions) {
        if options.log_keys.is_none() || options.log_past_tokens {
            return;
        }
        if asks {
            tracing::warn!(
                "ingest asks for tokens now, so --kv-log-keys shows nothing any more; --kv-log-past-tokens says \
                 that it is meant to"
            );
        }
        self.resp.0.shut_log(asks);
    }

    /// Has SHUTDOWN call `stop`.
    pub(crate) fn on_shutdown(&self, stop: impl Fn() + Send + Sync + 'static) {
        self.resp.0.on_shutdown(stop);
    }

    /// Ends the making of snapshots, and what goes to the home or comes from there, before the log is closed.
    pub(crate) fn let_go_of_log(&self) {
        drop(kept(&self.keeper).take());
        drop(kept(&self.carrier).take());
    }

    /// Ends the following of another server's store; what it had become since this was asked last is to be asked for behind
    /// that.
    pub(crate) fn stop_following(&self) {
        if let Some(following) = &mut *kept(&self.following) {
            following.stop();
        }
    }

    /// Keys that no log knows.
    pub(crate) fn forgets(&self) -> usize {
        match self.durability {
            Durability::None => keys(self.resp.0.store()),
            Durability::Here(_) | Durability::Replicated => 0,
        }
    }

    /// Changes refused so far because there was no room on the disk of the log.
    pub(crate) fn refused_by_full_disk(&self) -> u64 {
        self.log.get().map_or(0, |log| log.refused_full())
    }

    /// Whether changes are not taken any more.
    pub(crate) fn has_failed(&self) -> bool {
        let following = kept(&self.following);
        let has_ended = following.as_ref().is_some_and(|it| it.failure().is_some());
        has_ended || self.log.get().is_some_and(|log| log.has_failed())
    }

    /// Adds what was counted, and what the store holds.
    pub(crate) fn collect(&self, to: &mut Snapshot) {
        let resp = self.resp.0.counters();
        to.add(&metrics::COMMANDS, &["resp"], resp.commands);
        to.add(&metrics::ERRORS, &[], resp.errors);
        to.add(&metrics::CLIENTS, &[], self.resp.0.clients());
        self.resp.0.each_command(|name, calls, errors| {
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
        to.add(&metrics::CLIENTS_BYTES, &[], self.resp.0.clients_memory());
        let log = self.resp.0.log_counters();
        to.add(&metrics::LOG_READS, &[], log.reads);
        to.add(&metrics::LOG_ENTRIES, &[], log.entries);
        to.add(&metrics::LOG_BYTES, &[], log.bytes);
        to.add(&metrics::LOG_REFUSED, &[], log.refused);
        let binary = self.binary.0.counters();
        to.add(
            &metrics::COMMANDS,
            &["binary"],
            binary.reads + binary.writes,
        );
        to.add(&metrics::BINARY_CLOSED, &["fault"], binary.faults);
        to.add(&metrics::BINARY_CLOSED, &["refused"], binary.refused);
        let store = self.resp.0.store();
        to.add(&metrics::DURABILITY, &[&self.durability.to_string()], 1_u64);
        if let Some(replication) = &self.replication {
            kv_home::collect(replication, self.log.get(), to);
        }
        if let Some(carrier) = &*kept(&self.carrier) {
            carrier.watched().collect(to);
        }
        if let Some(log) = self.log.get() {
            // In this order, so that what is committed in between is not waited for.
            let last = store.last_ticket();
            to.add(&metrics::PENDING, &[], last.saturating_sub(log.update()));
            to.add(&metrics::REFUSED_FULL, &[], log.refused_full());
        }
        collect_store(store, to);
    }

    /// Logs what was counted, if anything.
    pub(crate) fn log(&self) {
        let counters = self.resp.0.counters();
        if counters.commands > 0 {
            tracing::info!(
                commands = counters.commands,
                slow_subscribers = counters.slow_subscribers,
                large_replies = counters.large_replies,
                "kv/resp"
            );
        }
        let counters = self.binary.0.counters();
        if counters != Default::default() {
            tracing::info!(%counters, "kv/binary");
        }
    }
}

fn kept<T>(place: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    place.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until all that was found here is at home: what is served from then on no failover takes back. Whether it was
/// waited for.
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
                "the key-value store is another server's by now: {why}. See with `tidewire log unreplicated` what is here alone, \
                 and start with --follow and another directory"
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

/// In all databases.
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
