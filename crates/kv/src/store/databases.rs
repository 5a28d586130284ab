//! All keys of all databases, in shards.

use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::effect::{Effects, Gone, Mistakes};
use super::epoch::Epochs;
use super::events::Events;
use super::grave::Graveyard;
use super::libraries::Libraries;
use super::limits::Limits;
use super::policy::Policy;
use super::ready::Ready;
use super::set::{SHARDS_MAX, ShardSet};
use super::shard::Shard;
use super::tracking::Tracking;
use super::usage::Frequency;
use super::value::ValueRef;
use super::waiter::Waiter;
use super::watch::Watch;
use crate::apart::Apart;
use crate::commands::Signature;
use crate::hash::HashKey;

/// Candidates that are compared for one key to go, at first.
pub(super) const SAMPLE: usize = 16;

/// Settings with which a store is made.
#[derive(Clone)]
pub struct Settings {
    /// Databases, 1 to 256. Default 16.
    pub databases: u16,
    /// Shards, 1 to [`SHARDS_MAX`], rounded up to a power of two. One loop is best served by one shard, several loops
    /// by four or more shards each: with fewer, loops wait for each other; with more, commands that take all locks
    /// cost more, as scripts do. Each shard takes about two kilobytes of memory, and four more for each database that
    /// has keys in it. Default 64.
    pub shards: usize,
    /// Bytes of memory for data; 0 for no limit, the default.
    pub maxmemory: u64,
    /// The eviction policy: how the store acts at that limit.
    pub policy: Policy,
    /// The key of the hash that places keys; clients must not know this key. Default: a key of its
    /// own from the operating system's randomness. The first store's decides for all collections of
    /// the process.
    pub hash_key: HashKey,
    /// Is shown every mutation.
    pub effects: Option<Arc<dyn Effects>>,
    /// Mistakes to make on purpose.
    #[doc(hidden)]
    pub mistakes: Mistakes,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            databases: 16,
            shards: 64,
            maxmemory: 0,
            policy: Policy::NoEviction,
            hash_key: HashKey::random(),
            effects: None,
            mistakes: Mistakes::default(),
        }
    }
}

/// All keys of all databases. Fields that every command reads are seldom written; fields that are
/// often written stand on other cache lines.
pub struct Store {
    pub(super) shards: Box<[Apart<Mutex<Shard>>]>,
    pub(super) databases: u16,
    pub(super) hasher: HashKey,
    pub(super) effects: OnceLock<Arc<dyn Effects>>,
    /// The stored keys are being loaded, and no client may use the store.
    pub(super) loading: AtomicBool,
    pub(super) maxmemory: AtomicU64,
    pub(super) policy: AtomicU8,
    pub(super) limits: Limits,
    pub(super) eviction_samples: AtomicUsize,
    pub(super) active_expire: AtomicBool,
    /// The shard where active expiry goes on.
    pub(super) expiry_next: Apart<AtomicUsize>,
    /// Bytes of memory that the shards have reported, without values that wait to be freed. While there is no limit,
    /// the shards report nothing.
    pub(super) used: Apart<AtomicI64>,
    pub(super) graveyard: Arc<Graveyard>,
    pub(super) epochs: Arc<Epochs>,
    pub(super) libraries: Apart<Libraries>,
    /// Keys with waiters that became ready when a script kept the shards that serving needs.
    pub(super) unserved: Apart<Mutex<Ready>>,
    pub(super) has_unserved: AtomicBool,
    /// A script keeps shards, and whether others are told so rather than wait.
    pub(super) is_kept: AtomicBool,
    pub(super) tells_busy: AtomicBool,
    /// How many have ever waited for a key.
    pub(super) waits: AtomicU64,
    /// Ticket of the last unit that was committed.
    pub(super) last_ticket: Apart<AtomicU64>,
    pub(super) tracking: Apart<Tracking>,
    pub(super) events: Events,
    pub(super) frequency: Frequency,
}

/// Counts since the start or the last [`Store::reset_stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Reads of keys that existed.
    pub hits: u64,
    /// Reads of keys that did not.
    pub misses: u64,
    /// Keys removed because their deadline had passed.
    pub expired: u64,
    /// Keys removed because memory was short.
    pub evicted: u64,
}

/// The keys of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    /// How many there are, some of them perhaps past their time.
    pub keys: usize,
    /// How many of the keys have a deadline.
    pub expires: usize,
    /// Bytes of memory of the tables that they stand in, without them.
    pub tables: u64,
}

impl Keyspace {
    pub(super) fn add(&mut self, shard: &Shard, db: u16) {
        let table = shard.table(db);
        self.keys += table.len();
        self.expires += shard.expiring[usize::from(db)];
        self.tables += table.bytes() as u64;
    }
}

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new(settings: Settings) -> Store {
        let databases = settings.databases.clamp(1, 256);
        let shards = settings.shards.clamp(1, SHARDS_MAX).next_power_of_two();
        let hasher = settings.hash_key;
        crate::hash::decide_once(hasher);
        let graveyard = Arc::new(Graveyard::default());
        let epochs = Arc::new(Epochs::new(settings.mistakes));
        let shard = |_| {
            let (graveyard, epochs) = (graveyard.clone(), epochs.clone());
            Apart(Mutex::new(Shard::new(databases, hasher, graveyard, epochs)))
        };
        Store {
            shards: (0..shards).map(shard).collect(),
            databases,
            hasher,
            effects: settings.effects.map_or_else(OnceLock::new, OnceLock::from),
            loading: AtomicBool::new(false),
            maxmemory: AtomicU64::new(settings.maxmemory),
            policy: AtomicU8::new(settings.policy as u8),
            limits: Limits::default(),
            eviction_samples: AtomicUsize::new(SAMPLE),
            active_expire: AtomicBool::new(true),
            expiry_next: Apart::default(),
            used: Apart::default(),
            graveyard,
            epochs,
            libraries: Apart::default(),
            unserved: Apart::default(),
            has_unserved: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            tells_busy: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            last_ticket: Apart::default(),
            tracking: Apart::default(),
            events: Events::default(),
            frequency: Frequency::default(),
        }
    }

    /// Has every mutation from now on shown to `effects`. The first that are set stay.
    pub fn set_effects(&self, effects: Arc<dyn Effects>) {
        let _ = self.effects.set(effects);
    }

    /// From now until [`end_loading`](Store::end_loading), the store is being filled: services show its keys to no client, and
    /// nothing expires.
    pub fn begin_loading(&self) {
        self.loading.store(true, Release);
    }

    /// All is there, and what makes changes durable is in its place.
    pub fn end_loading(&self) {
        self.loading.store(false, Release);
    }

    /// Whether the store is being loaded.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        self.loading.load(Acquire)
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> u16 {
        self.databases
    }

    /// The sizes up to which collections keep their small forms.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The limit of memory for data in bytes; 0 for none.
    #[must_use]
    pub fn maxmemory(&self) -> u64 {
        self.maxmemory.load(Relaxed)
    }

    /// Changes the limit of memory; 0 for none. Locks each shard in turn: no runner of the caller may hold locks.
    pub fn set_maxmemory(&self, bytes: u64) {
        self.maxmemory.store(bytes, Relaxed);
        // With another limit, or none, they had no need to tell of as much.
        for at in 0..self.shards.len() {
            self.tell_now(&mut self.lock(at));
        }
    }

    /// The eviction policy: how the store acts at the limit of memory.
    #[must_use]
    pub fn policy(&self) -> Policy {
        Policy::ALL[usize::from(self.policy.load(Relaxed))]
    }

    /// Changes what happens at the limit of memory.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u8, Relaxed);
    }

    /// How many keys are compared to find the one that goes, 1 to 64; 16 at first.
    #[must_use]
    pub fn eviction_samples(&self) -> usize {
        self.eviction_samples.load(Relaxed)
    }

    /// Sets how many keys are compared to choose the one that is evicted. More keys give a better
    /// choice.
    pub fn set_eviction_samples(&self, n: usize) {
        self.eviction_samples.store(n.clamp(1, 64), Relaxed);
    }

    /// Whether [`expire`](Store::expire) removes keys.
    pub fn set_active_expire(&self, on: bool) {
        self.active_expire.store(on, Relaxed);
    }

    /// Bytes of memory that the data takes, as the allocator gives it (see
    /// [`allocator`](crate::allocator)): entries, tables, collections, and what was removed but is
    /// still to be freed. Locks each shard in turn.
    #[must_use]
    pub fn used_memory(&self) -> u64 {
        (self.living() + self.graveyard.bytes()).max(0) as u64
    }

    /// Memory without the removed values that are not freed yet.
    pub(crate) fn living_memory(&self) -> u64 {
        self.living().max(0) as u64
    }

    /// [`living_memory`](Store::living_memory), if no shard's lock has to be waited for.
    pub(crate) fn living_memory_at_once(&self) -> Option<u64> {
        let shards = 0..self.shards.len();
        let used = shards.map(|at| self.try_lock(at).map(|shard| shard.used));
        let living: Option<i64> = used.sum();
        living.map(|bytes| bytes.max(0) as u64)
    }

    pub(super) fn living(&self) -> i64 {
        (0..self.shards.len()).map(|at| self.lock(at).used).sum()
    }

    /// The present counts. Locks each shard in turn.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut sum = Stats::default();
        for at in 0..self.shards.len() {
            let counts = self.lock(at).counts;
            sum.hits += counts.hits;
            sum.misses += counts.misses;
            sum.expired += counts.expired;
            sum.evicted += counts.evicted;
        }
        sum
    }

    /// Counts from zero again.
    pub fn reset_stats(&self) {
        for at in 0..self.shards.len() {
            self.lock(at).counts = Default::default();
        }
        self.graveyard.reset_freed();
    }

    /// The keys of a database. Locks each shard in turn.
    #[must_use]
    pub fn keyspace(&self, db: u16) -> Keyspace {
        let mut sum = Keyspace::default();
        for at in 0..self.shards.len() {
            sum.add(&self.lock(at), db);
        }
        sum
    }

    /// The keys of each database. Locks each shard in turn, and each once.
    #[must_use]
    pub fn keyspaces(&self) -> Vec<Keyspace> {
        let mut sums = vec![Keyspace::default(); self.databases.into()];
        for at in 0..self.shards.len() {
            let shard = self.lock(at);
            for (db, sum) in (0..).zip(&mut sums) {
                sum.add(&shard, db);
            }
        }
        sums
    }

    /// The number of keys of all databases. Locks each shard in turn.
    #[must_use]
    pub fn keys(&self) -> u64 {
        let of = |at| {
            let shard = self.lock(at);
            shard
                .tables
                .iter()
                .map(|table| table.len() as u64)
                .sum::<u64>()
        };
        (0..self.shards.len()).map(of).sum()
    }

    /// Shows all keys of a database, each with its expiry time, in milliseconds since 1970, and its
    /// value. Locks each shard in turn, for as long as showing its keys takes: use this on a store
    /// that no other thread uses.
    pub fn each_key(&self, db: u16, mut show: impl FnMut(&[u8], Option<u64>, ValueRef<'_>)) {
        for at in 0..self.shards.len() {
            let shard = self.lock(at);
            let table = shard.table(db);
            for bucket in 0..table.buckets() {
                table.visit(bucket, &mut |entry| {
                    show(entry.key(), entry.deadline_ms(), entry.value());
                });
            }
        }
    }

    /// Sets the answer to clients that want keys which a script holds: [`Error::BUSY`](crate::commands::Error::BUSY),
    /// because the script takes long, or [try again](Ran::Kept).
    pub(crate) fn set_tells_busy(&self, yes: bool) {
        self.tells_busy.store(yes, Relaxed);
    }

    /// Ends what a script has kept whose thread does not come back. The script had changed no key.
    pub(crate) fn open_kept(&self) {
        for at in 0..self.shards.len() {
            self.lock(at).is_kept = false;
        }
        self.is_kept.store(false, Relaxed);
    }

    /// Whether a script that runs beside the loops keeps keys.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Relaxed)
    }

    pub(crate) fn tells_busy(&self) -> bool {
        self.tells_busy.load(Relaxed)
    }

    /// Begins to watch a key. No runner of the caller may hold locks.
    #[must_use]
    pub fn watch(&self, db: u16, key: &[u8], now_ms: u64) -> Watch {
        let hash = self.hash(key);
        let mut shard = self.lock(self.shard_of(hash));
        if !shard.is_kept && shard.is_due(db, key, hash, now_ms) {
            // A later removal of the key would look like a change. If there is no room to say so,
            // it will.
            let _ = self.drop_keys(&mut shard, &[(db, key.to_vec())], Gone::Expired, now_ms);
            self.tell(&mut shard);
        }
        shard.watch(db, key)
    }

    /// Ends a watch. No runner of the caller may hold locks.
    pub fn unwatch(&self, watch: Watch) {
        let hash = self.hash(&watch.place.1);
        self.lock(self.shard_of(hash)).unwatch(&watch);
    }

    /// Keys that commands wait for, and keys among them whose removal ends a wait. The function
    /// locks each shard in turn, and goes through all such keys.
    #[must_use]
    pub fn waited_for(&self) -> (usize, usize) {
        let (mut keys, mut heeded) = (0, 0);
        for at in 0..self.shards.len() {
            let shard = self.lock(at);
            keys += shard.waiters.len();
            #[expect(clippy::disallowed_methods, reason = "they are counted")]
            let queues = shard.waiters.values();
            heeded += queues.filter(|queue| queue.heeds_absence()).count();
        }
        (keys, heeded)
    }

    /// The shards of the keys for which a command waits.
    pub(super) fn shards_of_wait(&self, waiter: &Waiter) -> ShardSet {
        let mut shards = ShardSet::NONE;
        for key in &waiter.blocked.keys {
            shards.insert(self.shard_of_key(key));
        }
        shards
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// The shard of a key by its hash, whatever the database: a key keeps its shard when it moves.
    #[inline]
    pub(super) fn shard_of(&self, hash: u64) -> usize {
        // Buckets are found by the lowest bits, and tags are the bits from the 32nd on.
        (hash >> 52) as usize & (self.shards.len() - 1)
    }

    #[inline]
    pub(super) fn shard_of_key(&self, key: &[u8]) -> usize {
        self.shard_of(self.hash(key))
    }

    /// The shards that a command needs.
    pub(crate) fn shards_for(&self, spec: &Signature, args: &[&[u8]]) -> ShardSet {
        let mut shards = ShardSet::NONE;
        let named = spec
            .keys
            .each(args, |key| shards.insert(self.shard_of_key(key)));
        if !named {
            shards = self.all_shards();
        }
        shards
    }

    pub(crate) fn shard_count(&self) -> usize {
        self.shards.len()
    }

    pub(crate) fn all_shards(&self) -> ShardSet {
        ShardSet::first(self.shards.len())
    }

    /// Under the lock of a shard that a script keeps, so that the script does not end before it is told.
    pub(super) fn unserved(&self) -> MutexGuard<'_, Ready> {
        self.unserved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn effects(&self) -> Option<&dyn Effects> {
        self.effects.get().map(|effects| &**effects)
    }

    /// Takes notice of how much memory a shard uses.
    #[inline]
    pub(super) fn tell(&self, shard: &mut Shard) {
        let ahead = shard.used - shard.used_told;
        if ahead != 0 && ahead.unsigned_abs() >= self.slack() {
            self.tell_now(shard);
        }
    }

    pub(super) fn tell_now(&self, shard: &mut Shard) {
        self.used.fetch_add(shard.used - shard.used_told, Relaxed);
        shard.used_told = shard.used;
    }

    /// Bytes that a shard may be ahead of what all know: all together a thousandth of the limit.
    /// Without a limit no loop asks, so loops that write share nothing for it.
    #[inline]
    pub(super) fn slack(&self) -> u64 {
        /// Where the limit is a large one.
        const MOST: u64 = 64 << 10;
        match self.maxmemory.load(Relaxed) {
            0 => u64::MAX,
            // The number of shards is a power of two.
            limit => (limit >> (10 + self.shards.len().trailing_zeros())).min(MOST),
        }
    }

    /// Bytes above the limit of memory if `more` bytes were added; 0 without a limit. Values that
    /// wait to be freed count if `buried` is set; they do not count where the question is whether
    /// enough has been removed.
    pub(super) fn excess(&self, more: u64, buried: bool) -> u64 {
        let most = self.maxmemory();
        if most == 0 {
            return 0;
        }
        let buried = if buried { self.graveyard.bytes() } else { 0 };
        let used = (self.used.load(Relaxed) + buried).max(0) as u64;
        used.saturating_add(more).saturating_sub(most)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("shards", &self.shards.len())
            .field("databases", &self.databases)
            .finish_non_exhaustive()
    }
}
