//! The settings of the key-value store.

use std::path::PathBuf;
use std::time::Duration;

use tidewire_kv::service::{self, LogKeys};
use tidewire_kv::store;

use super::durability::Durability;
use crate::exit::Failure;
use crate::secret::Secret;
use crate::serve::settings::defaults::secs;
use crate::size::Size;
use crate::span::Span;

/// How many bytes of changes are replicated before the next snapshot is.
const HOME_GROWTH: Size = Size(1 << 30);
/// How long an owner's proof holds: three attempts to renew it may fail.
const LEASE: Duration = Duration::from_secs(10);
/// How long it holds where another server takes over by itself: writes are to be possible again within 10 s.
const LEASE_OF_FAILOVER: Duration = Duration::from_secs(5);
/// How long the group of a store's servers may miss one.
const SESSION: Span = Span(Duration::from_secs(6));

fn store() -> store::Settings {
    store::Settings::default()
}

fn service() -> service::Settings {
    service::Settings::default()
}

/// Settings of the key-value store.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KvOptions {
    /// Memory for keys and values; at the limit the policy decides. 0 is no limit
    #[arg(id = "kv-maxmemory", long = "kv-maxmemory", value_name = "SIZE", default_value_t = Size(store().maxmemory))]
    pub(super) maxmemory: Size,

    /// What goes when memory is short: noeviction, allkeys-lru, volatile-lru, volatile-ttl,
    /// allkeys-random, volatile-random, allkeys-lfu, volatile-lfu
    #[arg(id = "kv-policy", long = "kv-policy", value_name = "POLICY", default_value = store().policy.name())]
    pub(super) policy: String,

    /// Numbered databases
    #[arg(id = "kv-databases", long = "kv-databases", value_name = "N", default_value_t = store().databases)]
    pub(super) databases: u16,

    /// When a change of a key is durable: sync (no reply leaves before its change is on the disk, and no client reads what is not),
    /// replicated (as sync, and the change is also at the home of --kv-replicate: a failover
    /// loses nothing), interval:1s (synced at least this often; so much may be lost), os
    /// (when the operating system likes), or none (a restart forgets everything). The log is in the
    /// directory kv of --data [default: none; with --follow or --kv-failover replicated]
    #[arg(id = "kv-durability", long = "durability", value_name = "LEVEL")]
    pub(super) durability: Option<Durability>,

    /// Carries the log of --durability on to a home of many machines, from where others follow the store and take it over:
    /// kafka://HOST[:PORT],.../TOPIC, with ?partition=N for another one than 0; a partition is one store's. See
    /// --replicate-config, --replicate-unsafe and --backlog-bytes, too [default: none]
    #[arg(id = "kv-replicate", long = "kv-replicate", value_name = "HOME")]
    pub(super) replicate: Option<String>,

    /// Follows the store of another server by its home, as that server names it with --kv-replicate: keys are read here, and
    /// changes refused with READONLY, until `tidewire kv promote` or REPLICAOF NO ONE has this server take the store
    /// over. Until then there is no log in --data [default: none]
    #[arg(id = "kv-follow", long = "follow", value_name = "HOME")]
    pub(super) follow: Option<String>,

    /// Replicate a new snapshot to the home after this many bytes of changes. A server that follows the store later begins
    /// with the newest snapshot; changes before the previous snapshot are deleted at the home. 0 is never
    #[arg(id = "kv-home-growth", long = "kv-home-growth", value_name = "SIZE", default_value_t = HOME_GROWTH)]
    pub(super) home_growth: Size,

    /// How long an owner may serve keys at level replicated after it last proved at the home that no other server owns
    /// the store; it does so whenever a quarter of this is over. A server that takes the store over from an owner that
    /// was not stopped in order waits so long: 1s to 10m [default: 10s; with --kv-failover 5s]
    #[arg(id = "kv-lease", long = "kv-lease", value_name = "TIME")]
    pub(super) lease: Option<Span>,

    /// Makes this server one of several of the store of --kv-replicate, all started with the same flags: one owns the store, the others
    /// follow it, and if the owner is gone one of them takes it over by itself. Clients find the owner by SENTINEL, on the port of
    /// the store. Level replicated, unless --durability says otherwise
    #[arg(id = "kv-failover", long = "kv-failover")]
    pub(super) failover: bool,

    /// Where clients and the other servers of --kv-failover find this one: HOST:PORT [default: where kv/resp listens, if that is
    /// one address]
    #[arg(id = "kv-address", long = "kv-address", value_name = "HOST:PORT")]
    pub(super) address: Option<String>,

    /// The name by which clients ask for the owner with SENTINEL
    #[arg(
        id = "kv-master-name",
        long = "kv-master-name",
        value_name = "NAME",
        default_value = "mymaster"
    )]
    pub(super) master_name: String,

    /// How long a server of --kv-failover may be silent before Kafka's group of these servers goes on without it: 6s to 5m, as far as
    /// the brokers allow
    #[arg(id = "kv-session", long = "kv-session", value_name = "TIME", default_value_t = SESSION)]
    pub(super) session: Span,

    /// How much the log of --durability may grow before a snapshot is made and the log is cut behind it;
    /// never less than the last snapshot is long. Where the disk is nearly full one is made sooner. 0 is never: SAVE and BGSAVE make
    /// one, and a full disk refuses changes [default: an eighth of the disk, at most 256MiB]
    #[arg(
        id = "kv-snapshot-growth",
        long = "kv-snapshot-growth",
        value_name = "SIZE"
    )]
    pub(super) snapshot_growth: Option<Size>,

    /// Starts although damage took records of the log of --durability, which `tidewire log repair` has marked: what
    /// they changed stays lost, and the log says how many they were. Refused otherwise
    #[arg(id = "kv-accept-loss", long = "kv-accept-loss")]
    pub(super) accept_loss: bool,

    /// A file whose one line clients must say with AUTH or HELLO first; the environment's
    /// TIDEWIRE_KV_PASSWORD does too [default: none, and only this host is served]
    #[arg(
        id = "kv-password-file",
        long = "kv-password-file",
        value_name = "FILE"
    )]
    pub(super) password_file: Option<PathBuf>,

    /// The password in the configuration file or the environment; not a flag, which other users could see.
    #[arg(skip)]
    pub(super) password: Option<Secret>,

    /// A file of users, a line for each as ACL LIST shows it; ACL SAVE writes it [default: none, the one user
    /// there is may do everything]
    #[arg(
        id = "kv-acl-file",
        long = "kv-acl-file",
        alias = "acl-file",
        value_name = "FILE"
    )]
    pub(super) acl_file: Option<PathBuf>,

    /// Parts of the store with a lock each, 1 to 4096, rounded up to a power of two. More are waited for less, and
    /// make scripts dearer, which take all of them [default: 1 if a single loop has it to itself, else 4 for each
    /// loop, but at least 64 and at most 1024]
    #[arg(id = "kv-shards", long = "kv-shards", value_name = "N")]
    pub(super) shards: Option<usize>,

    /// Queued output beyond which a client is cut; replies are paced, so only a single larger one
    /// gets there. 16 KiB at least; 0, and what is more, is 4 GiB, beyond which no client may have output queued
    #[arg(
        id = "kv-client-output",
        long = "kv-client-output",
        value_name = "SIZE", default_value_t = Size(service().client_output as u64))]
    pub(super) client_output: Size,

    /// Queued output beyond which a subscriber is cut that does not take its messages. 16 KiB at least; 0 is none but
    /// --kv-client-output
    #[arg(
        id = "kv-subscriber-output",
        long = "kv-subscriber-output",
        value_name = "SIZE", default_value_t = Size(service().subscriber_output as u64))]
    pub(super) subscriber_output: Size,

    /// What all clients may make the server hold together: input, output, names, subscriptions, transactions, waits, tracking.
    /// Beyond it the largest client is evicted. 0 is no limit; CONFIG SET maxmemory-clients takes a percentage of maxmemory too
    /// [default: half of the machine's memory]
    #[arg(
        id = "kv-maxmemory-clients",
        long = "kv-maxmemory-clients",
        value_name = "SIZE"
    )]
    pub(super) maxmemory_clients: Option<Size>,

    /// Largest command of a client, 1 MiB to less than 4 GiB
    #[arg(id = "kv-query-buffer", long = "kv-query-buffer", value_name = "SIZE", default_value_t = Size(service().query_buffer as u64))]
    pub(super) query_buffer: Size,

    /// Shows each stream of the log of ingest, or of ack, as a key that begins so, for any client of Redis to read:
    /// with `log:` XREAD, XRANGE, XLEN and XINFO of `log:NAME` read the stream NAME. Keys of the store cannot begin so
    /// [default: nothing is shown]
    #[arg(id = "kv-log-keys", long = "kv-log-keys", value_name = "PREFIX")]
    pub(super) log_keys: Option<String>,

    /// Entries that a client reads of the log at once: XREAD gives no more, XRANGE of more is refused; a single entry may be longer.
    /// At least 1
    #[arg(id = "kv-log-reply", long = "kv-log-reply", value_name = "SIZE", default_value_t = Size(LogKeys::REPLY_MAX as u64))]
    pub(super) log_reply: Size,

    /// Shows the log with --kv-log-keys though ingest asks for tokens or certificates:
    /// a client that may read keys reads all streams, unless ACL says otherwise
    #[arg(id = "kv-log-past-tokens", long = "kv-log-past-tokens")]
    pub(super) log_past_tokens: bool,

    /// Closes clients of the Redis protocol that have to log in, with AUTH or HELLO, and have not done so after this long; 0
    /// is never
    #[arg(id = "kv-login", long = "kv-login", value_name = "SECS", default_value = secs(service().login_within.unwrap_or_default()))]
    pub(super) login: Span,

    /// Closes clients of the Redis protocol that are silent between commands for this long; 0 is
    /// never. Silence within a command is --idle
    #[arg(
        id = "kv-timeout",
        long = "kv-timeout",
        value_name = "SECS",
        default_value = "0"
    )]
    pub(super) timeout: Span,
}

impl KvOptions {
    /// Why a flag would have no effect where the store is served, or whether it has a log there, if it needs one.
    pub(super) fn unused(&self, flag: &str, has_log: bool) -> Option<&'static str> {
        let (acts, why) = match flag {
            "kv-snapshot-growth" | "kv-accept-loss" => {
                (has_log, "this server has no log of keys: see --durability")
            }
            "kv-home-growth" | "kv-lease" => (
                self.replicate.is_some() || self.follow.is_some(),
                "the store has no home: see --kv-replicate and --follow",
            ),
            "kv-address" | "kv-master-name" | "kv-session" => (
                self.failover,
                "no other server takes the store over by itself: see --kv-failover",
            ),
            "kv-log-reply" | "kv-log-past-tokens" => (
                self.log_keys.is_some(),
                "the log is not shown as keys: see --kv-log-keys",
            ),
            _ => return None,
        };
        (!acts).then_some(why)
    }

    /// How long an owner's proof holds.
    pub(super) fn lease(&self) -> Duration {
        match self.lease {
            Some(Span(lease)) => lease,
            None if self.failover => LEASE_OF_FAILOVER,
            None => LEASE,
        }
    }

    /// When changes are durable.
    pub(super) fn durability(&self) -> Durability {
        match self.durability {
            Some(durability) => durability,
            // The home is there already.
            None if self.follow.is_some() || self.failover => Durability::Replicated,
            None => Durability::None,
        }
    }

    /// Takes the password that the environment holds, if nothing else has said one.
    pub(super) fn take_password(&mut self) -> Result<(), Failure> {
        if self.password_file.is_none() && self.password.is_none() {
            self.password = Secret::from_environment("TIDEWIRE_KV_PASSWORD")?;
        }
        Ok(())
    }

    pub(super) fn has_password(&self) -> bool {
        self.password_file.is_some() || self.password.is_some()
    }

    pub(super) fn password(&self) -> Result<Option<String>, Failure> {
        let secret = match (&self.password_file, &self.password) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage(
                    "kv: password and password-file are two secrets: name one of them",
                ));
            }
            (Some(path), None) => Some(Secret::from_file(path)?),
            (None, password) => password.clone(),
        };
        match secret.map(Secret::into_text) {
            Some(text) if text.is_empty() => Err(Failure::usage("kv: the password is empty")),
            text => Ok(text),
        }
    }
}
