//! The walk through the store as it was when an epoch began, in bounded steps.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::epoch::{Detached, Frozen, Orphan};
use super::grave::Dead;
use super::image::{Head, put_piece, put_string_piece, put_value};
use super::memory::Entry;
use super::value::{Kind, Value};
use crate::types::Piece;

/// Buckets that a step looks at under one lock.
const BUCKETS: usize = 32;
/// Bytes of items after which a step ends, about.
const BYTES: usize = 32 << 10;
/// Bytes of a long string that are one item, which is written without a lock.
const PIECE: usize = 256 << 10;
/// Entries of a table that was emptied, which a step takes out.
const ENTRIES: usize = 256;

/// The position of a walk. Only one walk runs at a time.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Shards before this one are done.
    shard: usize,
    orphan: Option<Orphan>,
    /// Keys that were written down in tables.
    keys: u64,
    pieces: Vec<Piece>,
}

impl Walk {
    /// Keys that there were, as far as it has come.
    pub(crate) fn keys(&self, store: &Store) -> u64 {
        self.keys + store.epochs.handed().keys
    }
}

impl Store {
    /// Writes some items of the store as it was when the epoch began; returns whether there may be more.
    /// Holds one lock at a time, for tens of microseconds. Values that were handed out go first, because
    /// commands may wait for them.
    pub(crate) fn walk(&self, walk: &mut Walk, to: &mut Vec<u8>) -> bool {
        if self.take_items(to) {
            return true;
        }
        if walk.orphan.is_none() {
            walk.orphan = self.epochs.handed().orphans.pop();
        }
        if let Some(orphan) = walk.orphan.take() {
            walk.orphan = self.write_orphan(orphan, &mut walk.pieces, to);
            return true;
        }
        let first = {
            let handed = self.epochs.handed();
            let first = handed.frozen.first_key_value();
            first.map(|(id, frozen)| (*id, frozen.clone()))
        };
        if let Some((id, frozen)) = first {
            self.write_frozen(id, &frozen, &mut walk.pieces, to);
            return true;
        }
        let detached = self.epochs.handed().detached.pop();
        if let Some(detached) = detached {
            self.write_detached(detached, walk, to);
            return true;
        }
        if walk.shard < self.shards.len() {
            if !self.write_table(walk, to) {
                walk.shard += 1;
            }
            return true;
        }
        false
    }

    /// Ends the epoch when the walk is over; how many keys there were.
    pub(crate) fn end_epoch(&self, walk: &Walk) -> u64 {
        for at in 0..self.shards.len() {
            self.lock(at).walk = None;
        }
        let keys = walk.keys(self);
        self.epochs.handed().keys = 0;
        self.epochs.active.store(false, Relaxed);
        keys
    }

    fn take_items(&self, to: &mut Vec<u8>) -> bool {
        let mut handed = self.epochs.handed();
        if handed.items.is_empty() {
            return false;
        }
        let items = std::mem::take(&mut handed.items);
        drop(handed);
        self.epochs.queued.fetch_sub(items.len(), Relaxed);
        to.extend_from_slice(&items);
        true
    }

    /// Writes some of a value that is in no table; returns the rest of the value.
    fn write_orphan(
        &self,
        mut orphan: Orphan,
        pieces: &mut Vec<Piece>,
        to: &mut Vec<u8>,
    ) -> Option<Orphan> {
        let is_all = match (orphan.frozen, &mut orphan.value) {
            (None, Value::Shared(s)) => {
                let end = s.len().min(orphan.offset + PIECE);
                let bytes = &s[orphan.offset..end];
                put_string_piece(orphan.owned.head(), s.len(), orphan.offset, bytes, to);
                if orphan.is_queued {
                    self.epochs.queued.fetch_sub(bytes.len(), Relaxed);
                }
                orphan.offset = end;
                end == s.len()
            }
            (Some((kind, blocks)), value) => {
                let is_all = value.thaw(PIECE, pieces);
                put_pieces(orphan.owned.head(), kind, blocks, pieces, to);
                is_all
            }
            _ => true,
        };
        if !is_all {
            return Some(orphan);
        }
        self.graveyard.release(orphan.held);
        self.graveyard.bury(Dead::Value(orphan.value));
        None
    }

    /// Writes some of a collection that is in a table.
    fn write_frozen(&self, id: u64, known: &Frozen, pieces: &mut Vec<Piece>, to: &mut Vec<u8>) {
        let (db, key) = &known.place;
        let hash = self.hash(key);
        let mut shard = self.lock(self.shard_of(hash));
        let entry = shard.table_mut(*db).find_mut(hash, key);
        let value = entry.and_then(Entry::value_mut);
        // The value may have been moved or removed since; then the next step finds it elsewhere.
        let Some(value) = value.filter(|value| value.frozen_id() == Some(id)) else {
            return;
        };
        let is_all = value.thaw(BYTES, pieces);
        if is_all {
            self.epochs.handed().frozen.remove(&id);
        }
        drop(shard);
        put_pieces(known.owned.head(), known.kind, known.blocks, pieces, to);
    }

    /// Writes some entries of a table that was emptied, and frees them.
    fn write_detached(&self, mut detached: Detached, walk: &mut Walk, to: &mut Vec<u8>) {
        let Detached {
            origin,
            epoch,
            ref mut table,
            held,
        } = detached;
        let taken = table.free_some(ENTRIES, &mut |mut entry| {
            if entry.epoch() != epoch {
                self.write_down(&mut entry, origin, (origin, &mut walk.keys), to);
                if let Some(value) = entry.value_mut()
                    && let Some(id) = value.frozen_id()
                {
                    let value = std::mem::replace(value, Value::Str(Vec::new()));
                    self.epochs.adopt(id, value, 0);
                }
            }
            if let Some(value) = entry.take_large() {
                self.graveyard.bury(Dead::Value(value));
            }
        });
        if taken < ENTRIES {
            self.graveyard.release(held);
        } else {
            self.epochs.handed().detached.push(detached);
        }
    }

    /// Writes some entries of a shard's tables; whether there are more.
    fn write_table(&self, walk: &mut Walk, to: &mut Vec<u8>) -> bool {
        let enough = to.len() + BYTES;
        let mut shard = self.lock(walk.shard);
        let shard = &mut *shard;
        let Some(progress) = &mut shard.walk else {
            return false;
        };
        let Some(db) = progress.iter().position(|progress| !progress.done) else {
            return false;
        };
        let (progress, table) = (&mut progress[db], &mut shard.tables[db]);
        let epoch = shard.epoch;
        for _ in 0..BUCKETS {
            progress.cursor = table.scan_mut(progress.cursor, &mut |entry| {
                if entry.epoch() != epoch {
                    self.write_down(entry, progress.origin, (db as u16, &mut walk.keys), to);
                    entry.set_epoch(epoch);
                }
            });
            progress.done = progress.cursor == 0;
            if progress.done || to.len() >= enough {
                break;
            }
        }
        true
    }

    /// Writes an entry, or has it written when it is large. `at` is the database where it is, and how
    /// many keys were written.
    fn write_down(&self, entry: &mut Entry, origin: u16, at: (u16, &mut u64), to: &mut Vec<u8>) {
        if super::epoch::is_large(entry) {
            self.epochs.hand_out(entry, origin, at.0, false);
            return;
        }
        *at.1 += 1;
        let head = Head {
            db: origin,
            deadline_ms: entry.deadline_ms(),
            key: entry.key(),
        };
        put_value(head, entry.value(), to);
    }
}

fn put_pieces(
    head: Head<'_>,
    kind: Kind,
    blocks: usize,
    pieces: &mut Vec<Piece>,
    to: &mut Vec<u8>,
) {
    for piece in pieces.drain(..) {
        put_piece(head, kind, blocks, &piece, to);
    }
}
