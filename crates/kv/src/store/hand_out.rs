//! Hands a value to a snapshot before the value changes.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::epoch::{Detached, Epochs, Progress};
use super::guards::Guards;
use super::memory::Entry;
use super::shard::Shard;
use super::table::Table;

impl Shard {
    /// To be called before an entry of this shard's tables is changed or removed.
    #[inline]
    pub(super) fn is_owed(&self, entry: &Entry) -> bool {
        entry.epoch() != self.epoch
    }

    /// Hands out an entry that was taken from the table of a database.
    pub(super) fn hand_out(&self, entry: &mut Entry, db: u16) {
        Shard::hand_out_of(entry, db, self.epoch, self.walk.as_deref(), &self.epochs);
    }

    /// Hands out an entry of an earlier epoch.
    #[cold]
    pub(super) fn hand_out_of(
        entry: &mut Entry,
        db: u16,
        epoch: bool,
        walk: Option<&[Progress]>,
        epochs: &Epochs,
    ) {
        let forgets = epochs.mistakes.makes(|mistakes| mistakes.forget_before);
        if let Some(walk) = walk
            && !forgets
        {
            epochs.hand_out(entry, walk[usize::from(db)].origin, db, true);
        }
        entry.set_epoch(epoch);
    }

    /// Gives an emptied table to the snapshot walk, if the walk needs it; otherwise returns it. The
    /// part that is being handed out was taken out before.
    pub(super) fn detach(&mut self, db: u16, table: Table, weight: i64) -> Option<(Table, i64)> {
        let Some(walk) = &mut self.walk else {
            return Some((table, weight));
        };
        let progress = &mut walk[usize::from(db)];
        if std::mem::replace(&mut progress.done, true) {
            return Some((table, weight));
        }
        let held = weight + table.bytes() as i64;
        self.graveyard.hold(held);
        self.epochs.handed().detached.push(Detached {
            origin: progress.origin,
            epoch: self.epoch,
            table,
            held,
        });
        None
    }

    /// Takes entries out of a table that are being handed out, before all of it goes.
    pub(super) fn give_frozen_away(&mut self, db: u16) {
        if self.walk.is_none() {
            return;
        }
        let of_db: Vec<Box<[u8]>> = self
            .epochs
            .handed()
            .frozen
            .values()
            .filter(|frozen| frozen.place.0 == db)
            .map(|frozen| frozen.place.1.clone())
            .collect();
        for key in of_db {
            // Keys of other shards are not there.
            let hash = self.table(db).hash(&key);
            self.discard(db, hash, &key);
        }
    }

    /// Two databases were exchanged.
    pub(super) fn swap_progress(&mut self, a: u16, b: u16) {
        if let Some(walk) = &mut self.walk {
            walk.swap(a.into(), b.into());
        }
    }
}

impl Store {
    /// Begins an epoch: [`walk`](Store::walk) hands out the store as it is now. The locks of all shards
    /// are held for a moment. `at` is called then, with one more than the highest number of a database that
    /// has keys.
    pub(crate) fn begin_epoch<R>(&self, at: impl FnOnce(u16) -> R) -> Option<R> {
        let mut guards = Guards::new(self);
        guards.hold(&self.all_shards());
        if guards.is_kept() {
            // The snapshot would have half of a script's changes.
            return None;
        }
        if self.epochs.active.swap(true, Relaxed) {
            return None;
        }
        let mut used = 0;
        for number in 0..self.shards.len() {
            let shard = guards.shard(number);
            let last = shard.tables.iter().rposition(|table| table.len() > 0);
            used = used.max(last.map_or(0, |last| last as u16 + 1));
            shard.epoch = !shard.epoch;
            let progress = |db: usize| Progress {
                origin: db as u16,
                cursor: 0,
                done: shard.tables[db].len() == 0,
            };
            shard.walk = Some((0..shard.tables.len()).map(progress).collect());
        }
        let mut handed = self.epochs.handed();
        let before = handed.items.len();
        self.libraries.put_items(&mut handed.items);
        let more = handed.items.len() - before;
        self.epochs.queued.fetch_add(more, Relaxed);
        drop(handed);
        Some(at(used))
    }

    /// Two databases were exchanged, and the locks of all shards are held.
    pub(super) fn swap_frozen(&self, a: u16, b: u16) {
        if !self.epochs.active.load(Relaxed) {
            return;
        }
        for frozen in self.epochs.handed().frozen.values_mut() {
            let db = &mut frozen.place.0;
            *db = match *db {
                db if db == a => b,
                db if db == b => a,
                db => db,
            };
        }
    }

    /// Bytes that were handed out because they were about to change, and are not written down yet.
    #[must_use]
    pub fn handed_out(&self) -> usize {
        self.epochs.queued.load(Relaxed)
    }

    /// Whether half of the allowed bytes are handed out.
    #[must_use]
    pub fn is_half_handed_out(&self) -> bool {
        self.handed_out() > self.epochs.queued_max.load(Relaxed) / 2
    }

    /// Changes how many bytes may be [handed out](Store::handed_out) before writing commands wait.
    /// A single command may exceed the limit.
    pub fn set_handed_out_max(&self, bytes: usize) {
        self.epochs.queued_max.store(bytes, Relaxed);
    }
}
