//! The store as it was at an instant, written down while it goes on changing.
//!
//! The one idea: there are two kinds of epochs, and every entry has the bit of the one in which it
//! was last written down or changed. A new epoch begins under all locks, so all entries are of the
//! one before. The walk writes down entries of the old epoch; a command that changes one for the
//! first time hands it to the walk before. New entries have the bit of the new epoch and do not
//! concern the walk. When the walk is over all entries are of one epoch again.
//!
//! What is large is handed over without a copy: long strings are shared, the elements of collections
//! are put aside by groups ([`frozen`](crate::types)), and what is removed is given away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use super::effect::Mistakes;
use super::guards::Guards;
use super::image::{Head, put_value};
use super::memory::Entry;
use super::shard::Shard;
use super::table::Table;
use super::value::{Kind, Value, ValueRef};
use crate::types::Spread;

/// Bytes of a string above which it is shared and not copied.
const LONG: usize = 256 << 10;
/// Elements and bytes of a collection above which it is handed out in groups.
const MANY: usize = 256;
const BULKY: usize = 64 << 10;
/// Blocks of a list above which it is.
const BLOCKS: usize = 16;

/// Bytes that may have been handed out and not written down before changes are held up. Default.
pub(super) const QUEUED_MAX: usize = 64 << 20;

/// Where a table of a shard stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// The number that the database had when the epoch began.
    pub(super) origin: u16,
    pub(super) cursor: u64,
    pub(super) done: bool,
}

/// A key with what was known of it when the epoch began.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    db: u16,
    deadline_ms: Option<u64>,
    key: Box<[u8]>,
}

impl Owned {
    fn of(entry: &Entry, origin: u16) -> Owned {
        Owned {
            db: origin,
            deadline_ms: entry.deadline_ms(),
            key: entry.key().into(),
        }
    }

    pub(super) fn head(&self) -> Head<'_> {
        Head {
            db: self.db,
            deadline_ms: self.deadline_ms,
            key: &self.key,
        }
    }
}

/// A collection that is handed out in groups.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) owned: Owned,
    /// Where it is now.
    pub(super) place: (u16, Box<[u8]>),
    pub(super) kind: Kind,
    /// Blocks of a list.
    pub(super) blocks: usize,
}

/// A value that is in no table any more, or shared.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) owned: Owned,
    pub(super) value: Value,
    /// Kind and number of blocks of a collection.
    pub(super) frozen: Option<(Kind, usize)>,
    /// Bytes of a string that were written down.
    pub(super) offset: usize,
    /// Whether its bytes count among the queued ones; bytes of other orphans were counted before.
    pub(super) is_queued: bool,
    /// Bytes that the graveyard counts until it has it.
    pub(super) held: i64,
}

/// A table that was emptied at once.
#[derive(Debug)]
pub(super) struct Detached {
    pub(super) origin: u16,
    pub(super) epoch: bool,
    pub(super) table: Table,
    /// Bytes that the graveyard counts until all of it is freed.
    pub(super) held: i64,
}

/// What was handed to the walk.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Items of small values.
    pub(super) items: Vec<u8>,
    /// Keys there were.
    pub(super) keys: u64,
    pub(super) orphans: Vec<Orphan>,
    pub(super) frozen: BTreeMap<u64, Frozen>,
    pub(super) detached: Vec<Detached>,
    last_id: u64,
}

/// What all shards share about it.
#[derive(Debug)]
pub(crate) struct Epochs {
    handed: Mutex<Handed>,
    /// Bytes in it.
    pub(super) queued: Arc<AtomicUsize>,
    queued_max: AtomicUsize,
    /// A walk is under way.
    pub(super) active: AtomicBool,
    pub(super) mistakes: Mistakes,
}

impl Epochs {
    pub(super) fn new(mistakes: Mistakes) -> Epochs {
        Epochs {
            handed: Mutex::default(),
            queued: Arc::default(),
            queued_max: AtomicUsize::new(QUEUED_MAX),
            active: AtomicBool::new(false),
            mistakes,
        }
    }

    /// This lock is taken last: its holder takes no other lock.
    pub(super) fn handed(&self) -> MutexGuard<'_, Handed> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands out an entry as it is. Its bit is set by the caller. `changes`: it is about to, so a long string
    /// is in memory twice from now on, or would be gone.
    pub(super) fn hand_out(&self, entry: &mut Entry, origin: u16, db: u16, changes: bool) {
        let mut handed = self.handed();
        let handed = &mut *handed;
        handed.keys += 1;
        if !is_large(entry) {
            let head = Head {
                db: origin,
                deadline_ms: entry.deadline_ms(),
                key: entry.key(),
            };
            let before = handed.items.len();
            put_value(head, entry.value(), &mut handed.items);
            let more = handed.items.len() - before;
            self.queued.fetch_add(more, Relaxed);
            return;
        }
        let owned = Owned::of(entry, origin);
        let place = (db, owned.key.clone());
        let Some(value) = entry.value_mut() else {
            return;
        };
        if let Some(shared) = value.share() {
            if changes && let ValueRef::Str(s) = shared.as_ref() {
                self.queued.fetch_add(s.len(), Relaxed);
            }
            handed.orphans.push(Orphan {
                owned,
                value: shared,
                frozen: None,
                offset: 0,
                is_queued: changes,
                held: 0,
            });
            return;
        }
        handed.last_id += 1;
        let id = handed.last_id;
        let (kind, blocks) = value.freeze(id, &self.queued);
        let frozen = Frozen {
            owned,
            place,
            kind,
            blocks,
        };
        handed.frozen.insert(id, frozen);
    }

    /// A value that is still being handed out is under another key now.
    pub(super) fn moved(&self, id: u64, place: (u16, Box<[u8]>)) {
        if let Some(frozen) = self.handed().frozen.get_mut(&id) {
            frozen.place = place;
        }
    }

    /// A value that is still being handed out is in no table any more. Gives it back if no walk
    /// waits for it.
    pub(super) fn adopt(&self, id: u64, value: Value, held: i64) -> Option<Value> {
        let mut handed = self.handed();
        let Some(frozen) = handed.frozen.remove(&id) else {
            return Some(value);
        };
        handed.orphans.push(Orphan {
            owned: frozen.owned,
            value,
            frozen: Some((frozen.kind, frozen.blocks)),
            offset: 0,
            is_queued: false,
            held,
        });
        None
    }

    /// Whether changes have to wait until more is written down.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.queued.load(Relaxed) > self.queued_max.load(Relaxed)
    }
}

/// Whether a value is too large to be copied under a lock.
pub(super) fn is_large(entry: &Entry) -> bool {
    match entry.value() {
        ValueRef::Str(s) => s.len() > LONG,
        ValueRef::List(x) => x.block_count() > BLOCKS || x.bytes() > BULKY,
        ValueRef::Hash(x) => x.is_spread() && (x.len() > MANY || x.bytes() > BULKY),
        ValueRef::Set(x) => x.is_spread() && (x.len() > MANY || x.bytes() > BULKY),
        ValueRef::ZSet(x) => x.is_spread() && (x.len() > MANY || x.bytes() > BULKY),
        ValueRef::Stream(x) => x.entries.blocks() > BLOCKS || x.bytes() > BULKY,
    }
}

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

    /// Gives a table that was emptied to the walk, if that needs it; else gives it back. What of it is
    /// being handed out was taken out before.
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
            // Half of what a script does would be in it.
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

    /// Whether that is half of what may be.
    #[must_use]
    pub fn is_half_handed_out(&self) -> bool {
        self.handed_out() > self.epochs.queued_max.load(Relaxed) / 2
    }

    /// Changes how many bytes may be [handed out](Store::handed_out) before commands that change
    /// something wait. What one command changes may be more.
    pub fn set_handed_out_max(&self, bytes: usize) {
        self.epochs.queued_max.store(bytes, Relaxed);
    }
}
