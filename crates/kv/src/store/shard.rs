//! A shard: some of the keys of all databases, behind one lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::dirty::Dirty;
use super::epoch::{Epochs, Progress};
use super::grave::{Dead, Graveyard};
use super::memory::Entry;
use super::place::Place;
use super::table::Table;
use super::tracking::Trackers;
use super::value::Value;
use super::waiter::{Queue, Waiter};
use super::watch::Watch;
use crate::hash::HashKey;

/// The data that one lock protects.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) tables: Box<[Table]>,
    /// How many keys of each database expire.
    pub(crate) expiring: Box<[usize]>,
    /// Waiters by key.
    pub(crate) waiters: HashMap<Place, Queue>,
    /// Keys that a client watches.
    pub(crate) watched: HashMap<Place, Watched>,
    /// Keys that a tracking client has read, which is told of the next change.
    pub(crate) tracked: HashMap<Place, Trackers, HashKey>,
    /// A client is told of all keys with its prefixes.
    pub(crate) broadcasts: bool,
    /// A client may want to know of a change: it waits, watches, or is told.
    pub(crate) observed: bool,
    /// Keys whose last change has not settled.
    pub(crate) dirty: Dirty,
    pub(crate) counts: Counts,
    /// Bytes of memory of the entries of each database.
    pub(crate) weights: Box<[i64]>,
    /// Bytes of memory of all entries and tables, and how many of them the store has been told of.
    pub(crate) used: i64,
    pub(crate) used_told: i64,
    /// Bytes that were ever buried: the price of what takes their place.
    pub(crate) buried: i64,
    pub(crate) graveyard: Arc<Graveyard>,
    /// Where active expiry goes on: the database, and the bucket of its table.
    pub(crate) expiry_at: (u16, usize),
    /// The epoch of entries that are made now.
    pub(crate) epoch: bool,
    /// Where each table stands, as long as there are entries of the epoch before.
    pub(crate) walk: Option<Box<[Progress]>>,
    pub(crate) epochs: Arc<Epochs>,
    /// A script that takes long has let go of the lock and will take it back: no other client may
    /// read or change keys.
    pub(crate) is_kept: bool,
}

/// A watched key: how often it was changed since the first began to watch, and how many watch.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) version: u64,
    pub(crate) watchers: usize,
}

/// The counters of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

impl Shard {
    pub(crate) fn new(
        databases: u16,
        hasher: HashKey,
        graveyard: Arc<Graveyard>,
        epochs: Arc<Epochs>,
    ) -> Shard {
        Shard {
            tables: (0..databases).map(|_| Table::new(hasher)).collect(),
            expiring: (0..databases).map(|_| 0).collect(),
            waiters: HashMap::new(),
            watched: HashMap::new(),
            tracked: HashMap::with_hasher(hasher),
            broadcasts: false,
            observed: false,
            dirty: Dirty::default(),
            counts: Counts::default(),
            weights: (0..databases).map(|_| 0).collect(),
            used: 0,
            used_told: 0,
            buried: 0,
            graveyard,
            expiry_at: (0, 0),
            epoch: false,
            walk: None,
            epochs,
            is_kept: false,
        }
    }

    #[inline]
    pub(crate) fn table(&self, db: u16) -> &Table {
        &self.tables[usize::from(db)]
    }

    #[inline]
    pub(crate) fn table_mut(&mut self, db: u16) -> &mut Table {
        &mut self.tables[usize::from(db)]
    }

    /// Adds an entry whose key is not there.
    pub(crate) fn insert(&mut self, db: u16, hash: u64, mut entry: Entry) {
        entry.set_epoch(self.epoch);
        self.weigh(db, weight(&entry));
        self.expiring[usize::from(db)] += usize::from(entry.deadline_ms().is_some());
        let table = &mut self.tables[usize::from(db)];
        let before = table.bytes();
        table.insert(hash, entry);
        self.used += table.bytes() as i64 - before as i64;
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, db: u16, hash: u64, key: &[u8]) -> Option<Entry> {
        let table = &mut self.tables[usize::from(db)];
        let before = table.bytes();
        let mut entry = table.remove(hash, key)?;
        self.used += table.bytes() as i64 - before as i64;
        if self.is_owed(&entry) {
            self.hand_out(&mut entry, db);
        }
        self.weigh(db, -weight(&entry));
        self.expiring[usize::from(db)] -= usize::from(entry.deadline_ms().is_some());
        Some(entry)
    }

    /// Removes a key and frees it, later if it is large; returns whether the key existed.
    pub(crate) fn discard(&mut self, db: u16, hash: u64, key: &[u8]) -> bool {
        let Some(mut entry) = self.remove(db, hash, key) else {
            return false;
        };
        self.bury(entry.take_large());
        true
    }

    /// Has a large value freed later, when it is not needed any more. The bytes of the value are
    /// not this shard's any more.
    pub(crate) fn bury(&mut self, value: Option<Value>) {
        let Some(value) = value else {
            return;
        };
        let bytes = value.bytes() as i64;
        self.buried += bytes;
        let value = match value.frozen_id() {
            None => Some(value),
            Some(id) => {
                self.graveyard.hold(bytes);
                let back = self.epochs.adopt(id, value, bytes);
                if back.is_some() {
                    self.graveyard.release(bytes);
                }
                back
            }
        };
        if let Some(value) = value {
            self.graveyard.bury(Dead::Value(value));
        }
    }

    #[inline]
    fn weigh(&mut self, db: u16, bytes: i64) {
        self.weights[usize::from(db)] += bytes;
        self.used += bytes;
    }

    /// Removes all keys of a database; they are freed later.
    pub(crate) fn clear(&mut self, db: u16) {
        self.give_frozen_away(db);
        let table = self.table_mut(db).take();
        let weight = std::mem::take(&mut self.weights[usize::from(db)]);
        self.used -= weight + table.bytes() as i64;
        self.buried += weight + table.bytes() as i64;
        self.expiring[usize::from(db)] = 0;
        if table.len() > 0
            && let Some((table, weight)) = self.detach(db, table, weight)
        {
            self.graveyard.bury(Dead::Table(table, weight));
        }
    }

    /// Changes an entry, and keeps count of memory and of what expires.
    #[inline]
    pub(crate) fn alter<R>(
        &mut self,
        db: u16,
        hash: u64,
        key: &[u8],
        change: impl FnOnce(&mut Entry) -> R,
    ) -> Option<R> {
        let entry = self.tables[usize::from(db)].find_mut(hash, key)?;
        if entry.epoch() != self.epoch {
            Shard::hand_out_of(entry, db, self.epoch, self.walk.as_deref(), &self.epochs);
        }
        let (weight_before, expired_before) = (weight(entry), entry.deadline_ms().is_some());
        let result = change(entry);
        let heavier = weight(entry) - weight_before;
        self.weights[usize::from(db)] += heavier;
        self.used += heavier;
        let expiring = &mut self.expiring[usize::from(db)];
        *expiring += usize::from(entry.deadline_ms().is_some());
        *expiring -= usize::from(expired_before);
        Some(result)
    }
}

/// Bytes of memory of an entry with its value.
#[inline]
fn weight(entry: &Entry) -> i64 {
    (entry.bytes() + entry.owned_bytes()) as i64
}

impl Shard {
    /// Tells the watchers of a key.
    pub(crate) fn note_change(&mut self, place: &Place) {
        if let Some(watched) = self.watched.get_mut(place) {
            watched.version += 1;
        }
    }
}

impl Shard {
    pub(crate) fn watch(&mut self, db: u16, key: &[u8]) -> Watch {
        let place = (db, Box::from(key));
        self.observed = true;
        let watched = self.watched.entry(place.clone()).or_default();
        watched.watchers += 1;
        Watch {
            version: watched.version,
            place,
        }
    }

    pub(crate) fn unwatch(&mut self, watch: &Watch) {
        if let Some(watched) = self.watched.get_mut(&watch.place) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                self.watched.remove(&watch.place);
                self.note_observers();
            }
        }
    }

    /// Whether a watched key has not changed, and its time has not come.
    pub(crate) fn is_as_watched(&self, watch: &Watch, hash: u64, now_ms: u64) -> bool {
        let (db, key) = (watch.place.0, &watch.place.1);
        let version = self.watched.get(&watch.place).map(|w| w.version);
        version == Some(watch.version) && !self.is_due(db, key, hash, now_ms)
    }

    pub(crate) fn is_due(&self, db: u16, key: &[u8], hash: u64, now_ms: u64) -> bool {
        let entry = self.table(db).find(hash, key);
        entry.is_some_and(|entry| entry.deadline_ms().is_some_and(|at| at <= now_ms))
    }

    pub(crate) fn forget_waiter(&mut self, waiter: &Waiter, key: &[u8]) {
        let place = (waiter.db, Box::from(key));
        if let Some(queue) = self.waiters.get_mut(&place) {
            queue.remove(waiter);
            if queue.is_empty() {
                self.waiters.remove(&place);
                self.note_observers();
            }
        }
    }

    /// To be called when a client has gone that wanted to know of changes.
    pub(crate) fn note_observers(&mut self) {
        self.observed = self.broadcasts
            || !self.watched.is_empty()
            || !self.waiters.is_empty()
            || !self.tracked.is_empty();
    }
}
