//! Lazy freeing: what is large is taken out of its table at once and freed later, in bounded steps.
//!
//! Freeing a million members takes a hundred milliseconds, in which no client should wait for the lock of the shard, nor for the
//! loop that ran the command. So a large removed value (by DEL, UNLINK, expiry, eviction, a SET, RENAME or STORE over it,
//! FLUSHALL with a whole table) is put aside here. [`Store::free_some`](super::Store::free_some) frees a step's worth whenever
//! it is called: by the first loop of a server, and by commands that need the memory. Until a value is freed, its memory counts
//! as used.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::Entry;
use super::table::Table;
use super::value::Value;
use crate::types::Spread;

/// Allocations, or elements of a table, above which a value is large.
pub(super) const LARGE: usize = 64;
/// Bytes of a string that count as one allocation, because returning them to the allocator costs
/// about as much.
pub(super) const PIECE: usize = 16 << 10;
/// Elements that one step frees.
pub(super) const STEP: usize = 1024;
/// Bytes that may wait to be freed; above this, commands free more than they add.
pub(super) const WAITING: i64 = 256 << 20;

/// A value that waits to be freed.
#[derive(Debug)]
pub(crate) enum Dead {
    Value(Value),
    /// All keys of a database in a shard, and their bytes.
    Table(Table, i64),
}

/// All values that wait to be freed.
#[derive(Debug, Default)]
pub(crate) struct Graveyard {
    pub(super) dead: Mutex<VecDeque<Dead>>,
    pub(super) bytes: AtomicI64,
    /// Keys whose values wait, and that were freed since the start.
    pub(super) pending: AtomicUsize,
    pub(super) freed: AtomicU64,
}

impl Dead {
    pub(super) fn bytes(&self) -> i64 {
        match self {
            Dead::Value(value) => value.bytes() as i64,
            Dead::Table(table, entries) => table.bytes() as i64 + entries,
        }
    }

    pub(super) fn keys(&self) -> usize {
        match self {
            Dead::Value(_) => 1,
            Dead::Table(table, _) => table.len(),
        }
    }

    /// Frees up to about `most` elements; how many, less if there are no more.
    pub(super) fn free_some(&mut self, most: usize, more: &mut VecDeque<Dead>) -> usize {
        match self {
            Dead::Value(value) => value.free_some(most),
            Dead::Table(table, bytes) => table.free_some(most, &mut |mut entry: Entry| {
                *bytes -= (entry.bytes() + entry.owned_bytes()) as i64;
                more.extend(entry.take_large().map(Dead::Value));
            }),
        }
    }
}

impl Value {
    /// Whether freeing the value takes long enough for other clients to notice.
    pub(super) fn is_large(&self) -> bool {
        match self {
            Value::Str(s) => s.capacity() / PIECE > LARGE,
            Value::Shared(s) => s.capacity() / PIECE > LARGE,
            Value::List(x) => x.len() > LARGE && x.bytes() / PIECE > LARGE,
            Value::Hash(x) => x.is_spread() && x.len() > LARGE,
            Value::Set(x) => x.is_spread() && x.len() > LARGE,
            Value::ZSet(x) => x.is_spread() && x.len() > LARGE,
            Value::Stream(x) => x.allocations() > LARGE,
        }
    }

    pub(super) fn free_some(&mut self, most: usize) -> usize {
        match self {
            Value::Str(_) | Value::Shared(_) => 0,
            Value::List(x) => x.free_some(most),
            Value::Hash(x) => x.free_some(most),
            Value::Set(x) => x.free_some(most),
            Value::ZSet(x) => x.free_some(most),
            Value::Stream(x) => x.free_some(most),
        }
    }
}

impl Entry {
    /// Takes the value out if it is large, so that the entry can be dropped in no time, or if a snapshot
    /// is still writing it down.
    pub(crate) fn take_large(&mut self) -> Option<Value> {
        let value = self.value_mut()?;
        (value.is_large() || value.frozen_id().is_some())
            .then(|| std::mem::replace(value, Value::Str(Vec::new())))
    }
}

impl Graveyard {
    pub(super) fn lock(&self) -> MutexGuard<'_, VecDeque<Dead>> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a value that is to be freed. Short: may be called under the lock of a shard.
    pub(crate) fn bury(&self, dead: Dead) {
        self.bytes.fetch_add(dead.bytes(), Relaxed);
        self.pending.fetch_add(dead.keys(), Relaxed);
        self.lock().push_back(dead);
    }

    /// Counts bytes that a person has to look at before they are [buried](Graveyard::bury).
    pub(crate) fn hold(&self, bytes: i64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Releases memory that was looked at.
    pub(crate) fn release(&self, bytes: i64) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Sets the count of freed bytes to zero.
    pub(super) fn reset_freed(&self) {
        self.freed.store(0, Relaxed);
    }

    /// Bytes that wait to be freed.
    #[inline]
    pub(crate) fn bytes(&self) -> i64 {
        self.bytes.load(Relaxed)
    }

    /// Frees some values; returns their bytes, or `None` if none waited.
    pub(crate) fn step(&self) -> Option<i64> {
        let mut dead = self.lock().pop_front()?;
        let (bytes, keys) = (dead.bytes(), dead.keys());
        let mut more = VecDeque::new();
        let left = if dead.free_some(STEP, &mut more) < STEP {
            // The value's last elements went, or it never had any.
            drop(dead);
            None
        } else {
            Some(dead)
        };
        let rest = left.iter().chain(&more);
        let (bytes_left, keys_left) = rest.fold((0, 0), |(bytes, keys), dead| {
            (bytes + dead.bytes(), keys + dead.keys())
        });
        self.bytes.fetch_add(bytes_left - bytes, Relaxed);
        self.pending.fetch_sub(keys, Relaxed);
        self.pending.fetch_add(keys_left, Relaxed);
        self.freed
            .fetch_add((keys.saturating_sub(keys_left)) as u64, Relaxed);
        let mut all = self.lock();
        more.into_iter()
            .chain(left)
            .for_each(|dead| all.push_front(dead));
        Some(bytes - bytes_left)
    }
}
