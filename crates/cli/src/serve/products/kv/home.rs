//! A key-value store with a home: its settings, and the replicator of its log.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire_admin::Snapshot;
use tidewire_admin::catalogue::kv_home as metrics;
use tidewire_kafka::{Settings as Home, Target};
use tidewire_kv::durable::{KvLog, STREAM};
use tidewire_kv::service::{LeaseShown, Replicated, Replication, Role};
use tidewire_log::{Credit, EmbeddedLog, Log, Policy as Commits};
use tidewire_replicate::{
    ADDRESS, Bell, Lease, Phase, Replicator, Running, Settings as Carrying, Shown, Status, Witness,
};

use super::archive::{Archive, Needs};
use super::durability::Durability;
use super::failover::{Anew, Why};
use super::member::Post;
use super::settings::KvOptions;
use crate::exit::Failure;
use crate::serve::logs::open::OpenLog;
use crate::serve::logs::options::LogOptions;
use crate::serve::logs::replica::client_settings;
use crate::serve::running::now::now_ms;

/// No topic has more than 249 characters, and that of the snapshots has ten more.
const TOPIC_MAX: usize = 239;

/// How long a lease may last: it is renewed in time only if a commit at home takes less than its quarter.
const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// The home of a store, and whether it is another server's at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KvHome {
    pub(crate) target: Target,
    pub(crate) follows: bool,
}

impl KvOptions {
    /// The home that is asked for, if any, before anything is opened for it.
    pub(crate) fn home(&self, log: &LogOptions) -> Result<Option<KvHome>, Failure> {
        let durability = self.durability();
        let (flag, home, follows) = match (&self.follow, &self.replicate) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage(
                    "--follow and --kv-replicate: give one of them. A promoted follower \
                     replicates to the home that it has followed",
                ));
            }
            (Some(home), None) => ("--follow", home, true),
            (None, Some(home)) => ("--kv-replicate", home, self.failover),
            (None, None) if durability == Durability::Replicated => {
                return Err(Failure::usage(
                    "--durability replicated needs a home: --kv-replicate kafka://HOST,.../TOPIC",
                ));
            }
            (None, None) => return Ok(None),
        };
        if matches!(durability, Durability::None | Durability::Here(Commits::Os)) {
            return Err(Failure::usage(format!(
                "{flag} needs a log that syncs, because a crash could leave fewer changes on \
                 this server than in the home: add --durability replicated, sync or \
                 interval:TIME"
            )));
        }
        let target: Target = home
            .parse()
            .map_err(|e| Failure::usage(format!("{flag}: {e}")))?;
        if target.topic.len() > TOPIC_MAX {
            return Err(Failure::usage(format!(
                "{flag}: the topic of a store has at most {TOPIC_MAX} characters, because the name of its snapshots' topic is longer"
            )));
        }
        if target.partitions.is_some() {
            return Err(Failure::usage(format!(
                "{flag} {home}: a store has one partition: ?partition=N"
            )));
        }
        if !LEASES.contains(&self.lease()) {
            return Err(Failure::usage("--kv-lease: a lease lasts from 1s to 10m"));
        }
        // Whether there is one at all, and takes its settings.
        tidewire_kafka::home(&target, &client(log)?, Bell::default())
            .map_err(|e| Failure::usage(format!("{flag} {home}: {e}")))?;
        Ok(Some(KvHome { target, follows }))
    }
}

/// Settings of the client of a store's home.
pub(super) fn client(log: &LogOptions) -> Result<Home, Failure> {
    let file = log.replicate_config.as_deref();
    Ok(Home {
        client: file.map_or(Ok(Vec::new()), client_settings)?,
        is_unsafe: log.replicate_unsafe,
        keeps_all: true,
        ..Home::default()
    })
}

/// What an owner carries its store home with.
#[derive(Clone)]
pub(super) struct Terms {
    /// Bytes of changes after which a snapshot is replicated.
    pub(super) growth: u64,
    pub(super) lease: Duration,
    /// The servers of the store, if another one may take it over by itself, and what begins this one anew then.
    pub(super) member: Option<(Arc<Post>, Anew)>,
}

/// Carries the log of a store home, for as long as this is kept.
pub(crate) struct Carrier {
    /// The archive ends before the bell that it rings.
    _archive: Archive,
    running: Running,
    log: Arc<EmbeddedLog>,
    lease: Lease,
}

impl Carrier {
    pub(super) fn start(
        log: &OpenLog,
        kv_log: &Arc<KvLog>,
        target: &Target,
        options: &LogOptions,
        terms: &Terms,
    ) -> Result<Carrier, Failure> {
        let directory = log.directory.clone();
        let log = log.embedded();
        let bell = Bell::default();
        let cannot = |why: String| Failure::failed(format!("{target}: {why}"));
        let home = tidewire_kafka::home(target, &client(options)?, bell.clone());
        let home = home.map_err(|e| cannot(e.to_string()))?;
        let carrying = Carrying {
            needs_all: true,
            lease: terms.lease,
            witness: terms
                .member
                .as_ref()
                .map_or_else(Witness::default, |(post, _)| post.witness().clone()),
            ..Carrying::default()
        };
        let shared: Arc<dyn Log> = log.clone();
        let (theirs, identity) = (kv_log.clone(), log.identity());
        let anew = terms.member.as_ref().map(|(_, anew)| anew.clone());
        let replicator = Replicator::new(shared, log.identity(), fastrand::u64(..), carrying);
        let replicator = replicator.when_lost(move |why| {
            if theirs.lost().is_none() {
                tracing::error!(
                    why = &*why,
                    "another server has taken the key-value store over: this server refuses \
                     changes from now on. Changes that were not in the home stay here: see \
                     tidewire log unreplicated"
                );
            }
            theirs.lose(why);
            if let Some(anew) = &anew {
                anew.ask(Why::Lost(identity));
            }
        });
        let notes = replicator.notes();
        if let Some((post, _)) = &terms.member {
            notes.put(ADDRESS, &post.word(identity));
        }
        let lease = replicator.lease();
        let proof = lease.clone();
        kv_log.prove_by(Box::new(move || proof.is_held_now()));
        let running = Running::start(replicator, home, &*log, bell);
        let running = running.map_err(|e| cannot(format!("no thread can be had: {e}")))?;
        let archive = Archive::start(Needs {
            kv_log: kv_log.clone(),
            identity: log.identity(),
            directory,
            target: target.clone(),
            home: client(options)?,
            notes,
            bell: running.bell(),
            shown: running.shown(),
            growth: terms.growth,
        });
        let archive = archive.map_err(|e| cannot(format!("no thread can be had: {e}")))?;
        tracing::info!(home = %target, "the key-value store is replicated");
        Ok(Carrier {
            _archive: archive,
            running,
            log,
            lease,
        })
    }

    /// The replicator's state, for the metrics.
    pub(super) fn watched(&self) -> Carried {
        Carried {
            shown: self.running.shown(),
            log: self.log.clone(),
            lease: self.lease.clone(),
            oldest: Arc::default(),
        }
    }

    /// Why no record is carried for now, if so.
    pub(super) fn trouble(&self) -> Option<Arc<str>> {
        self.running.shown().status().trouble
    }
}

/// The visible state of a store's replicator.
#[derive(Clone)]
pub(super) struct Carried {
    shown: Shown,
    log: Arc<EmbeddedLog>,
    lease: Lease,
    oldest: Arc<Oldest>,
}

impl Carried {
    fn lag(&self, status: &Status) -> u64 {
        let next = self.log.range(STREAM).map_or(0, |range| range.next);
        next.saturating_sub(home_of(status))
    }

    /// The age of the oldest change that is not at home; milliseconds.
    fn behind_ms(&self, status: &Status) -> u64 {
        match self.lag(status) {
            0 => 0,
            _ => now_ms().saturating_sub(self.oldest.at_ms(&*self.log, home_of(status))),
        }
    }

    /// Fills in the state for INFO and ROLE.
    pub(super) fn tell(&self, to: &mut Replicated) {
        let status = self.shown.status();
        to.role = Role::Owner;
        to.is_linked = status.phase == Phase::Carrying && status.trouble.is_none();
        to.lease = match self.lease.is_held_now() {
            true => LeaseShown::Held,
            false => LeaseShown::Lapsed,
        };
        // The lease proves that the home is reached.
        to.is_linked &= to.lease == LeaseShown::Held;
        to.position = home_of(&status);
        to.lag = self.lag(&status);
        to.behind_ms = self.behind_ms(&status);
        to.trouble = status.trouble;
    }

    pub(super) fn collect(&self, to: &mut Snapshot) {
        let status = self.shown.status();
        to.add(&metrics::LEASE, &[], self.lease.left().as_secs_f64());
        to.add(&metrics::BACKLOG, &[], self.log.backlog_bytes());
        to.add(&metrics::TRANSACTIONS, &[], status.transactions);
        to.add(&metrics::BYTES, &[], status.bytes);
        to.add(&metrics::FAILURES, &[], status.failures);
    }
}

/// When the oldest change was made that is not in the home: as long as it stays the oldest, the log is read
/// once.
#[derive(Default)]
struct Oldest(Mutex<Option<(u64, u64)>>);

impl Oldest {
    /// Milliseconds since 1970, of the record at a position.
    fn at_ms(&self, log: &dyn Log, position: u64) -> u64 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, at_ms)) = known.filter(|(of, _)| *of == position) {
            return at_ms;
        }
        let read = log.read(STREAM, position, Credit(1));
        let run = read.ok().and_then(|read| read.runs.into_iter().next());
        // A record that cannot be read is not older than this.
        let at_ms = run.map_or_else(now_ms, |run| run.timestamp_us / 1000);
        *known = Some((position, at_ms));
        at_ms
    }
}

fn home_of(status: &Status) -> u64 {
    status.home.get(STREAM).copied().unwrap_or(0)
}

/// Adds the metrics of replication between a store and its home.
pub(super) fn collect(replication: &Replication, kv_log: Option<&Arc<KvLog>>, to: &mut Snapshot) {
    let status = replication.status();
    let is_lost = kv_log.is_some_and(|log| log.lost().is_some());
    let roles = [
        ("owner", Role::Owner),
        ("follower", Role::Follower),
        ("takes-over", Role::TakesOver),
    ];
    let is_unproven = !is_lost && kv_log.is_some_and(|log| !log.may_serve());
    for (name, role) in roles {
        let is_role = status.role == role && !is_lost && !is_unproven;
        to.add(&metrics::ROLE, &[name], is_role);
    }
    to.add(&metrics::ROLE, &["unproven"], is_unproven);
    to.add(&metrics::ROLE, &["former"], is_lost);
    to.add(&metrics::LINKED, &[], status.is_linked);
    to.add(&metrics::POSITION, &[], status.position);
    to.add(&metrics::LAG, &[], status.lag);
    to.add(&metrics::BEHIND, &[], status.behind_ms as f64 / 1e3);
}
