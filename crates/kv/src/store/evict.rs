//! Removal of keys because memory is short: the best of a sample goes, until there is room.

use super::Store;
use super::effect::Gone;
use super::memory::Entry;
use super::policy::Policy;
use super::shard::Shard;

/// Keys that may go for one command, at most.
const KEYS: usize = 1024;
/// Keys removed at once where no command waits for it.
const KEYS_A_TICK: usize = 32;
/// Bytes that a key takes, at least.
const LEAST: u64 = 32;
/// Steps of freeing that one command takes for room, at most.
const STEPS: usize = 16;
/// Samples without any key that may go, after which there is none.
const MISSES: usize = 64;
/// Places of the table from which a sample is taken. With one place alone, an empty part of the
/// table would stay empty and grow: a sample that begins in it sees only keys that were added
/// there.
const PLACES: usize = 4;
/// Buckets that are looked at from each, and more only if there is none.
const BUCKETS: usize = 16;

impl Store {
    /// Makes room for `more` bytes below the limit of memory: frees what is buried, and removes keys
    /// if the policy allows it. False if that cannot be. No locks may be held.
    pub(crate) fn make_room(&self, more: u64, clock: u32, rng: &mut fastrand::Rng) -> bool {
        // Removed values are freed before more keys are removed.
        let mut steps = STEPS;
        while self.excess(more, true) > 0 && steps > 0 && self.free_some() {
            steps -= 1;
        }
        if self.excess(more, false) == 0 {
            // The store has room, or room is being freed.
            return true;
        }
        let policy = self.policy();
        if policy == Policy::NoEviction || more > self.maxmemory() {
            return false;
        }
        // Where much is wanted at once, as many as that takes.
        let keys = KEYS.max((more / LEAST) as usize);
        self.evict_for(more, keys, policy, clock, rng)
    }

    /// Removes some keys if memory is above its limit and no command asks for memory: where the
    /// limit has been lowered, or a transaction has gone beyond it. Whether there is more to do
    /// soon. No locks may be held; `seed` is chance.
    pub(crate) fn evict_some(&self, now_ms: u64, seed: u64) -> bool {
        let policy = self.policy();
        if self.maxmemory() == 0 || policy == Policy::NoEviction || self.excess(0, false) == 0 {
            return false;
        }
        let mut rng = fastrand::Rng::with_seed(seed);
        self.evict_for(0, KEYS_A_TICK, policy, self.clock_at(now_ms), &mut rng)
            && self.excess(0, false) > 0
    }

    /// Removes so many keys at most until there is room for `more` bytes; false if there is none, and none may go.
    fn evict_for(
        &self,
        more: u64,
        keys: usize,
        policy: Policy,
        clock: u32,
        rng: &mut fastrand::Rng,
    ) -> bool {
        let (mut misses, mut at) = (0, rng.usize(..self.shards.len()));
        let misses_max = MISSES.max(self.shards.len());
        for _ in 0..keys + misses_max {
            let mut shard = self.lock(at);
            // Keys that a script holds are not evicted.
            if !shard.is_kept && self.evict_one(&mut shard, policy, clock, rng) {
                misses = 0;
            } else {
                misses += 1;
            }
            // Tells clients at once, whatever the slack.
            self.tell_now(&mut shard);
            drop(shard);
            if self.excess(more, false) == 0 {
                self.free_some();
                return true;
            }
            if misses == misses_max {
                return false;
            }
            at = (at + 1) % self.shards.len();
        }
        // A command waits for no more evictions than these.
        true
    }

    /// Removes the best candidate of a sample of a shard's keys; false if none may go.
    fn evict_one(
        &self,
        shard: &mut Shard,
        policy: Policy,
        clock: u32,
        rng: &mut fastrand::Rng,
    ) -> bool {
        let databases = shard.tables.len();
        let first = rng.usize(..databases);
        for db in (0..databases).map(|i| ((first + i) % databases) as u16) {
            let expiring = shard.expiring[usize::from(db)];
            if shard.table(db).len() == 0 || policy.is_volatile() && expiring == 0 {
                continue;
            }
            if let Some(key) = self.candidate(shard, db, policy, clock, rng) {
                return self
                    .drop_keys(shard, &[(db, key)], Gone::Evicted, 0)
                    .is_ok();
            }
        }
        false
    }

    /// The key that goes first, of a sample.
    fn candidate(
        &self,
        shard: &Shard,
        db: u16,
        policy: Policy,
        clock: u32,
        rng: &mut fastrand::Rng,
    ) -> Option<Vec<u8>> {
        let (table, samples) = (shard.table(db), self.eviction_samples());
        let mut best: Option<(u64, &Entry)> = None;
        let (mut seen, mut alike) = (0, 0);
        for place in 1..=PLACES {
            let start = rng.usize(..table.buckets());
            let enough = seen + samples.div_ceil(PLACES);
            // Keys that may go can be few among many: then the last walk goes on to the first. All
            // walks that it takes to evict them all cost about as much as one through the whole
            // table for each doubling of their number.
            for i in 0..table.buckets() {
                table.visit((start + i) % table.buckets(), &mut |entry| {
                    if policy.is_volatile() && !entry.expires() {
                        return;
                    }
                    seen += 1;
                    let worth = match policy {
                        Policy::AllKeysLru
                        | Policy::VolatileLru
                        | Policy::AllKeysLfu
                        | Policy::VolatileLfu => self.worth(entry, clock),
                        Policy::VolatileTtl => entry.deadline_ms().unwrap_or(u64::MAX),
                        Policy::AllKeysRandom | Policy::VolatileRandom => rng.u64(..),
                        Policy::NoEviction => return,
                    };
                    // Any of equally good candidates may be evicted. If it were always the first,
                    // an empty part of the table would grow, and a sample behind it would be one
                    // key.
                    match best {
                        Some((least, _)) if worth > least => {}
                        Some((least, _)) if worth == least => {
                            alike += 1;
                            if rng.u32(..alike) == 0 {
                                best = Some((worth, entry));
                            }
                        }
                        _ => (best, alike) = (Some((worth, entry)), 1),
                    }
                });
                if seen >= enough || i + 1 >= BUCKETS && (seen > 0 || place < PLACES) {
                    break;
                }
            }
        }
        best.map(|(_, entry)| entry.key().to_vec())
    }
}
