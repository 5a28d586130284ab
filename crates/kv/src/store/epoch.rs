//! The store at one instant, written down while commands go on changing it.
//!
//! The one idea: there are two kinds of epochs, and every entry has the bit of the one in which it
//! was last written down or changed. A new epoch begins under all locks, so all entries are of the
//! one before. The walk writes down entries of the old epoch; a command that changes one for the
//! first time hands it to the walk before. New entries have the bit of the new epoch and do not
//! concern the walk. When the walk is over all entries are of one epoch again.
//!
//! Large values are handed over without a copy: long strings are shared, the elements of collections
//! are put aside in groups ([`frozen`](crate::types)), and removed values are given away.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::effect::Mistakes;
use super::image::{Head, put_value};
use super::memory::Entry;
use super::table::Table;
use super::value::{Kind, Value, ValueRef};
use crate::types::Spread;

/// Bytes of a string above which it is shared and not copied.
pub(super) const LONG: usize = 256 << 10;
/// Elements and bytes of a collection above which it is handed out in groups.
pub(super) const MANY: usize = 256;
pub(super) const BULKY: usize = 64 << 10;
/// A list with more blocks than this is large.
pub(super) const BLOCKS: usize = 16;

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

/// A key with its properties at the begin of the epoch.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) db: u16,
    pub(super) deadline_ms: Option<u64>,
    pub(super) key: Box<[u8]>,
}

impl Owned {
    pub(super) fn of(entry: &Entry, origin: u16) -> Owned {
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
    /// The present database and name of the key.
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
    /// Bytes that the graveyard counts until it has the value.
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

/// The values that were handed to the walk.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Items of small values.
    pub(super) items: Vec<u8>,
    /// Keys there were.
    pub(super) keys: u64,
    pub(super) orphans: Vec<Orphan>,
    pub(super) frozen: BTreeMap<u64, Frozen>,
    pub(super) detached: Vec<Detached>,
    pub(super) last_id: u64,
}

/// The part of the epochs that all shards share.
#[derive(Debug)]
pub(crate) struct Epochs {
    pub(super) handed: Mutex<Handed>,
    /// Bytes in the queue.
    pub(super) queued: Arc<AtomicUsize>,
    pub(super) queued_max: AtomicUsize,
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

    /// Hands out an entry as it is. The caller sets the entry's bit. `changes`: it is about to, so a long
    /// string is in memory twice from now on, or would be gone.
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
