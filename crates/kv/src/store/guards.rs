//! The locks that a runner holds. Always taken in ascending order, so that nobody waits in a circle.

use std::sync::{MutexGuard, PoisonError, TryLockError};

use super::Store;
use super::events::Classes;
use super::pending::Pending;
use super::shard::Shard;

/// Locks held. Most commands need one shard; that case touches no list.
pub(crate) struct Guards<'s> {
    pub(super) store: &'s Store,
    one: Option<(usize, MutexGuard<'s, Shard>)>,
    many: Vec<(usize, MutexGuard<'s, Shard>)>,
    held: u64,
    /// A script keeps some of them; and whether it did so at any time since this was set to false.
    is_kept: bool,
    pub(super) met_kept: bool,
    /// The shards of the script that runs here, whose locks it has let go of.
    left: u64,
    /// The key of the command that runs, by its place in memory, and its hash.
    known: (*const u8, usize, u64),
    /// What was changed under the locks that are held, and is to be committed before they are let go;
    /// made for the first change.
    pub(crate) pending: Option<Box<Pending>>,
    /// Keys past their time that a scan has met.
    pub(crate) met_expired: Vec<Vec<u8>>,
    /// Events that are told, as of when the locks were taken; none of what is replayed.
    pub(super) told: Classes,
    pub(super) replays: bool,
    /// Decides whether a use of a key is counted.
    pub(super) luck: fastrand::Rng,
    /// Who changes keys; 0 for nobody who wants to know.
    pub(crate) client: u64,
}

impl<'s> Guards<'s> {
    pub(crate) fn new(store: &'s Store) -> Guards<'s> {
        Guards {
            store,
            one: None,
            many: Vec::new(),
            held: 0,
            is_kept: false,
            met_kept: false,
            left: 0,
            known: (std::ptr::null(), 0, 0),
            pending: None,
            met_expired: Vec::new(),
            told: 0,
            replays: false,
            luck: fastrand::Rng::with_seed(0),
            client: 0,
        }
    }

    /// Remembers the hash of a key that a command will ask for several times. The caller forgets it
    /// before the key's bytes can change or go.
    #[inline]
    pub(crate) fn know(&mut self, key: &[u8], hash: u64) {
        self.known = (key.as_ptr(), key.len(), hash);
    }

    #[inline]
    pub(crate) fn forget(&mut self) {
        self.known.0 = std::ptr::null();
    }

    /// The hash of a key.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        if (key.as_ptr(), key.len()) == (self.known.0, self.known.1) {
            self.known.2
        } else {
            self.store.hash(key)
        }
    }

    /// A random number.
    pub(super) fn chance(&mut self) -> u32 {
        self.luck.u32(..)
    }

    pub(crate) fn store(&self) -> &'s Store {
        self.store
    }

    /// Holds at least the shards of `mask`.
    #[inline]
    pub(crate) fn hold(&mut self, mask: u64) {
        if mask & !self.held != 0 {
            self.change(mask);
        }
    }

    /// Lets go of what is held and takes the shards of `mask`.
    fn change(&mut self, mask: u64) {
        self.release();
        self.told = if self.replays {
            0
        } else {
            self.store.events.heard()
        };
        self.held = mask;
        if mask.is_power_of_two() {
            let at = mask.trailing_zeros() as usize;
            let shard = self.store.lock(at);
            self.note(shard.is_kept);
            self.one = Some((at, shard));
            return;
        }
        let mut rest = mask;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            let shard = self.store.lock(at);
            self.note(shard.is_kept);
            self.many.push((at, shard));
            rest &= rest - 1;
        }
    }

    #[inline]
    fn note(&mut self, is_kept: bool) {
        self.is_kept |= is_kept;
        self.met_kept |= is_kept;
    }

    /// Whether a script keeps some of the shards that are held: then no key of theirs may be read or changed.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Lets go of the locks of a script that takes long, and keeps others from its keys: they find the shards marked
    /// when they have the locks. What it has changed is committed when it ends.
    pub(crate) fn leave(&mut self) {
        self.left = self.held;
        for (_, mut shard) in self.one.take().into_iter().chain(self.many.drain(..)) {
            shard.is_kept = true;
            self.store.tell(&mut shard);
        }
        self.held = 0;
    }

    /// Takes back what was [left](Guards::leave), if anything was.
    pub(crate) fn come_back(&mut self) {
        let mut rest = std::mem::take(&mut self.left);
        self.held |= rest;
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            let mut shard = self.store.lock(at);
            shard.is_kept = false;
            self.many.push((at, shard));
            rest &= rest - 1;
        }
    }

    /// Takes those of `mask` that are not held without waiting; false if one is taken, and then
    /// holds no more than before.
    pub(crate) fn try_add(&mut self, mask: u64) -> bool {
        let mut rest = mask & !self.held;
        if rest == 0 {
            return true;
        }
        let mut more = Vec::new();
        while rest != 0 {
            let at = rest.trailing_zeros() as usize;
            match self.store.shards[at].0.try_lock() {
                Ok(guard) => more.push((at, guard)),
                Err(TryLockError::Poisoned(poisoned)) => more.push((at, poisoned.into_inner())),
                Err(TryLockError::WouldBlock) => return false,
            }
            if more.last().is_some_and(|(_, shard)| shard.is_kept) {
                return false;
            }
            rest &= rest - 1;
        }
        self.held |= mask;
        self.many.extend(self.one.take());
        self.many.extend(more);
        self.many.sort_by_key(|(at, _)| *at);
        true
    }

    /// Has the shards that are held tell how much memory they use.
    #[inline]
    pub(crate) fn tell(&mut self) {
        if let Some((_, shard)) = &mut self.one {
            self.store.tell(shard);
        }
        for (_, shard) in &mut self.many {
            self.store.tell(shard);
        }
    }

    /// Bytes that were ever brought to the shards that are held, without what was freed at once: what
    /// they have, and what they have buried.
    pub(crate) fn brought(&self) -> i64 {
        let one = self.one.iter().map(|(_, shard)| shard);
        let all = one.chain(self.many.iter().map(|(_, shard)| shard));
        all.map(|shard| shard.used + shard.buried).sum()
    }

    /// Lets go of all.
    #[inline]
    pub(crate) fn release(&mut self) {
        if self.left != 0 {
            self.come_back();
        }
        self.is_kept = false;
        if self.pending.is_some() {
            self.commit();
        }
        if let Some((_, mut shard)) = self.one.take() {
            self.store.tell(&mut shard);
        }
        for (_, mut shard) in self.many.drain(..) {
            self.store.tell(&mut shard);
        }
        self.held = 0;
    }

    /// The shard that is held, if it is a single one.
    #[inline]
    pub(crate) fn only_one(&self) -> Option<&Shard> {
        match &self.one {
            Some((_, shard)) if self.many.is_empty() => Some(shard),
            _ => None,
        }
    }

    /// # Panics
    /// When the shard is not held: a command used a key that its [`Keys`](crate::commands::Keys)
    /// do not name.
    #[inline]
    pub(crate) fn shard(&mut self, at: usize) -> &mut Shard {
        match &mut self.one {
            Some((held, shard)) if *held == at => shard,
            _ => &mut self.many[index(&self.held, at)].1,
        }
    }

    /// The same, only to look at.
    ///
    /// # Panics
    /// As [`shard`](Guards::shard).
    #[inline]
    pub(crate) fn peek(&self, at: usize) -> &Shard {
        match &self.one {
            Some((held, shard)) if *held == at => shard,
            _ => &self.many[index(&self.held, at)].1,
        }
    }
}

impl Drop for Guards<'_> {
    fn drop(&mut self) {
        self.release();
        self.give_back();
    }
}

/// Where a shard is among those held.
fn index(held: &u64, at: usize) -> usize {
    assert!(
        held & (1 << at) != 0,
        "a command used a key that it does not name"
    );
    (held & ((1 << at) - 1)).count_ones() as usize
}

/// The guard of a lock, whatever happened to those who held it: a panic ends one connection.
pub(crate) fn unpoisoned<'a>(
    lock: Result<MutexGuard<'a, Shard>, PoisonError<MutexGuard<'a, Shard>>>,
) -> MutexGuard<'a, Shard> {
    lock.unwrap_or_else(PoisonError::into_inner)
}
