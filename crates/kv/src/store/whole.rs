//! Commands on whole databases. Commands that change all keys hold the locks of all shards; other
//! commands go from shard to shard with one lock at a time, unless they run in a transaction.

use super::effect::Gone;
use super::place::Place;
use super::shard::Shard;
use super::tracking::Untold;
use super::value::ValueRef;
use super::view::View;

impl View<'_, '_> {
    fn shards(&self) -> usize {
        self.guards.store().shards.len()
    }

    /// Locks a shard, after the release of other shards unless several are held already.
    fn enter(&mut self, at: usize) -> &Shard {
        self.guards.hold_one(at);
        self.guards.peek(at)
    }

    /// Lets others have the lock of a walk for a moment; locks of a transaction are kept.
    pub fn leave(&mut self) {
        if !self.in_transaction {
            self.guards.release();
        }
    }

    /// The number of keys, including expired keys that are not removed yet.
    #[must_use]
    pub fn len(&mut self) -> usize {
        let db = self.db;
        (0..self.shards())
            .map(|at| self.enter(at).table(db).len())
            .sum()
    }

    /// Whether there are no keys.
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// Shows the keys of some buckets from `cursor` on, about `count` of them and at most ten times
    /// as many buckets; returns where to go on, 0 at the end. From 0 to 0, every key that is there
    /// all the time is shown at least once, whatever happens in between. Keys whose deadline has
    /// passed are not shown, but remembered for [`drop_expired`](View::drop_expired).
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(&[u8], ValueRef<'_>),
    ) -> u64 {
        let shards = self.shards() as u64;
        let mut at = (cursor % shards) as usize;
        let mut within = cursor / shards;
        let mut shown = 0;
        let mut buckets_left = count.saturating_mul(10);
        let (db, now_ms) = (self.db, self.now_ms);
        let mut expired = std::mem::take(&mut self.guards.met_expired);
        expired.clear();
        while buckets_left > 0 {
            let table = self.enter(at).table(db);
            buckets_left -= usize::from(table.len() > 0);
            within = table.scan(within, &mut |entry| {
                if entry.deadline_ms().is_none_or(|at| at > now_ms) {
                    shown += 1;
                    visit(entry.key(), entry.value());
                } else {
                    expired.push(entry.key().to_vec());
                }
            });
            if within == 0 {
                at += 1;
                if at as u64 == shards {
                    self.guards.met_expired = expired;
                    return 0;
                }
            }
            if shown >= count {
                break;
            }
        }
        self.guards.met_expired = expired;
        within * shards + at as u64
    }

    /// Removes the expired keys that the last scan has met.
    pub fn drop_expired(&mut self) {
        let store = self.guards.store();
        let (db, now_ms) = (self.db, self.now_ms);
        let met = std::mem::take(&mut self.guards.met_expired);
        if store.effects().is_some() {
            // Reads change nothing then.
            return;
        }
        for key in met {
            let hash = store.hash(&key);
            let at = store.shard_of(hash);
            self.guards.hold_one(at);
            if self.guards.is_kept() {
                continue;
            }
            let shard = self.guards.shard(at);
            // The key may have been set anew in between.
            if shard.is_due(db, &key, hash, now_ms) {
                store.drop_at_once(shard, db, hash, &key, Gone::Expired);
            }
        }
    }

    /// A key, by chance; `None` if there are none.
    pub fn random_key(&mut self, rng: &mut fastrand::Rng) -> Option<Vec<u8>> {
        /// Expired keys that are skipped before any key is taken.
        const TRIES: usize = 100;
        let (db, now_ms) = (self.db, self.now_ms);
        let lens: Vec<usize> = (0..self.shards())
            .map(|at| self.enter(at).table(db).len())
            .collect();
        let len: usize = lens.iter().sum();
        for _ in 0..if len == 0 { 0 } else { TRIES } {
            // A shard by the number of its keys, so that every key has the same chance.
            let mut nth = rng.usize(..len);
            let chosen = lens.iter().position(|len| {
                let is_here = nth < *len;
                nth = nth.saturating_sub(*len);
                is_here
            });
            // The shard may have been emptied in between.
            let entry = self.enter(chosen?).table(db).random(rng);
            if let Some(entry) = entry
                && entry.deadline_ms().is_none_or(|at| at > now_ms)
            {
                return Some(entry.key().to_vec());
            }
        }
        None
    }

    /// Removes all keys of this database. The memory of the keys is freed later, in steps.
    pub fn flush(&mut self) {
        let db = self.db;
        let store = self.guards.store();
        for at in 0..self.shards() {
            let shard = self.guards.shard(at);
            shard.note_change_of_db(db, true, |key| store.hash(key));
            shard.clear(db);
            shard.forget_tracked(store.tracking());
            // Readers for a group are told.
            let waited = shard.waited_for(|of| of == db);
            waited.into_iter().for_each(|place| self.ready.add(place));
        }
        self.tell_all_trackers();
        self.guards.touch_all();
        self.changes += 1;
    }

    /// Tells all clients that have read something that everything may have changed.
    fn tell_all_trackers(&mut self) {
        let mut untold = Untold::default();
        untold.add_all();
        self.guards.tell_or_keep(untold);
    }

    /// Exchanges two databases; clients that wait for a key may be served.
    pub fn swap_databases(&mut self, a: u16, b: u16) {
        let store = self.guards.store();
        for at in 0..self.shards() {
            let shard = self.guards.shard(at);
            for db in [a, b] {
                shard.note_change_of_db(db, false, |key| store.hash(key));
            }
            shard.tables.swap(a.into(), b.into());
            shard.swap_progress(a, b);
            shard.weights.swap(a.into(), b.into());
            shard.expiring.swap(a.into(), b.into());
            shard.forget_tracked(store.tracking());
            let waited = shard.waited_for(|of| of == a || of == b);
            waited.into_iter().for_each(|place| self.ready.add(place));
        }
        store.swap_frozen(a, b);
        self.tell_all_trackers();
        self.guards.touch_all();
        self.changes += 1;
    }
}

impl Shard {
    /// The keys of databases that commands wait for, in order: clients see which of them is served first.
    fn waited_for(&self, is_of: impl Fn(u16) -> bool) -> Vec<Place> {
        #[expect(clippy::disallowed_methods, reason = "they are sorted")]
        let waited = self.waiters.keys().filter(|(db, _)| is_of(*db));
        let mut waited: Vec<Place> = waited.cloned().collect();
        waited.sort_unstable();
        waited
    }

    /// Tells the watchers of all keys of a database, or of the existing ones.
    fn note_change_of_db(&mut self, db: u16, existing_only: bool, hash: impl Fn(&[u8]) -> u64) {
        let table = &self.tables[usize::from(db)];
        #[expect(clippy::iter_over_hash_type, reason = "each is changed for itself")]
        for ((of, key), watched) in &mut self.watched {
            if *of == db && (!existing_only || table.find(hash(key), key).is_some()) {
                watched.version += 1;
            }
        }
    }
}
