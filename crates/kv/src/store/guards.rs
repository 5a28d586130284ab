//! The locks that a runner holds. Always taken in ascending order, so that no threads wait in a
//! circle.

use std::sync::atomic::Ordering::Relaxed;

use super::Store;
use super::events::Classes;
use super::lock::ShardGuard;
use super::pending::Pending;
use super::set::ShardSet;
use super::shard::Shard;

/// Locks held. Most commands need one shard; that case touches no list.
pub(crate) struct Guards<'s> {
    pub(super) store: &'s Store,
    one: Option<(usize, ShardGuard<'s>)>,
    /// The held shards in ascending order; empty where only one is held.
    many: Vec<(usize, ShardGuard<'s>)>,
    /// A script holds some of these shards, or held some at any time since this was set to false.
    is_kept: bool,
    pub(super) met_kept: bool,
    /// The shards of the script that runs here, whose locks it has let go of.
    left: Vec<usize>,
    /// The key of the command that runs, by its place in memory, and its hash.
    known: (*const u8, usize, u64),
    /// Changes under the held locks that must be committed before the locks are released; made with
    /// the first change.
    pub(crate) pending: Option<Box<Pending>>,
    /// Expired keys that a scan has met.
    pub(crate) met_expired: Vec<Vec<u8>>,
    /// The kinds of events that are published, as of when the locks were taken; none during a
    /// replay.
    pub(super) told: Classes,
    pub(super) replays: bool,
    /// The changes are in the log already, so they are not given to the hook.
    pub(super) is_known: bool,
    /// The running command removes keys, and may use the room that is reserved for that.
    pub(super) removes: bool,
    /// Decides whether a use of a key is counted.
    pub(super) luck: fastrand::Rng,
    /// The client that makes the changes; 0 for a client that does not track.
    pub(crate) client: u64,
}

impl<'s> Guards<'s> {
    pub(crate) fn new(store: &'s Store) -> Guards<'s> {
        Guards {
            store,
            one: None,
            many: Vec::new(),
            is_kept: false,
            met_kept: false,
            left: Vec::new(),
            known: (std::ptr::null(), 0, 0),
            pending: None,
            met_expired: Vec::new(),
            told: 0,
            replays: false,
            is_known: false,
            removes: false,
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

    /// Holds at least these shards.
    #[inline]
    pub(crate) fn hold(&mut self, shards: &ShardSet) {
        if let ShardSet::One(at) = *shards {
            self.hold_one(at.into());
        } else if !self.holds(shards) {
            self.begin();
            for at in shards.iter() {
                let shard = self.lock(at);
                self.many.push((at, shard));
            }
        }
    }

    /// Holds at least this shard.
    #[inline]
    pub(crate) fn hold_one(&mut self, at: usize) {
        if !matches!(&self.one, Some((held, _)) if *held == at) {
            self.take_one(at);
        }
    }

    #[inline(never)]
    fn take_one(&mut self, at: usize) {
        if index(&self.many, self.store, at).is_none() {
            self.begin();
            let shard = self.lock(at);
            self.one = Some((at, shard));
        }
    }

    fn holds(&self, shards: &ShardSet) -> bool {
        if self.many.len() == self.store.shards.len() {
            return true;
        }
        // Both lists of held shards are in ascending order.
        let mut held = self.one.iter().chain(&self.many).map(|(at, _)| *at);
        shards.iter().all(|at| held.any(|held| held == at))
    }

    /// Releases the held locks, to take others.
    #[inline]
    fn begin(&mut self) {
        self.release();
        self.told = if self.replays {
            0
        } else {
            self.store.events.heard()
        };
    }

    #[inline]
    fn lock(&mut self, at: usize) -> ShardGuard<'s> {
        let shard = self.store.lock_next(at);
        self.note(shard.is_kept);
        shard
    }

    #[inline]
    fn note(&mut self, is_kept: bool) {
        self.is_kept |= is_kept;
        self.met_kept |= is_kept;
    }

    /// Marks the held shards as if a script held them, until the locks are released.
    pub(crate) fn shut(&mut self) {
        self.is_kept = true;
    }

    /// Whether a script keeps some of the shards that are held: then no key of theirs may be read or changed.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Releases the locks of a script that runs beside the loops, and keeps other clients from its keys: they find the
    /// shards marked when they have the locks. The script's changes are committed when it ends.
    pub(crate) fn leave(&mut self) {
        for (at, mut shard) in self.one.take().into_iter().chain(self.many.drain(..)) {
            self.store.tell(&mut shard);
            if !std::mem::replace(&mut shard.is_kept, true) {
                self.left.push(at);
                self.store.is_kept.store(true, Relaxed);
            }
        }
    }

    /// Whether locks were [left](Guards::leave) and not taken back.
    #[inline]
    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes the locks of some [left](Guards::leave) shards again, for one command. The shards stay marked.
    pub(crate) fn come_back_to(&mut self, shards: &ShardSet) {
        debug_assert!(self.one.is_none() && self.many.is_empty());
        for at in shards.iter() {
            self.many.push((at, self.store.lock_next(at)));
        }
    }

    /// Takes the [left](Guards::leave) locks again, if any.
    pub(crate) fn come_back(&mut self) {
        if self.left.is_empty() {
            return;
        }
        debug_assert!(self.one.is_none() && self.many.is_empty());
        self.left.sort_unstable();
        for at in std::mem::take(&mut self.left) {
            let mut shard = self.store.lock_next(at);
            shard.is_kept = false;
            self.many.push((at, shard));
        }
        self.store.is_kept.store(false, Relaxed);
    }

    /// The shards that were [left](Guards::leave) belong to another thread from now on, with all that was to be done with
    /// them: what is pending is nothing that was committed, and its room is given back.
    pub(crate) fn disown(&mut self) {
        debug_assert!(self.one.is_none() && self.many.is_empty());
        self.left.clear();
        self.end_growing();
        if let Some(pending) = self.pending.take() {
            self.forget_pending(*pending);
        }
    }

    /// Takes the shards among these that are not held, without waiting; false if one is taken, and
    /// then holds no more than before.
    pub(crate) fn try_add(&mut self, shards: &ShardSet) -> bool {
        if self.holds(shards) {
            return true;
        }
        let mut more = Vec::new();
        let held = |at: &usize| {
            self.one.iter().any(|(one, _)| one == at)
                || index(&self.many, self.store, *at).is_some()
        };
        for at in shards.iter().filter(|at| !held(at)) {
            match self.store.try_lock(at) {
                Some(shard) if !shard.is_kept => more.push((at, shard)),
                _ => return false,
            }
        }
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

    /// Bytes ever added to the held shards, without bytes that were freed at once: their present
    /// memory, and values that wait to be freed.
    pub(crate) fn brought(&self) -> i64 {
        let one = self.one.iter().map(|(_, shard)| shard);
        let all = one.chain(self.many.iter().map(|(_, shard)| shard));
        all.map(|shard| shard.used + shard.buried).sum()
    }

    /// Lets go of all.
    #[inline]
    pub(crate) fn release(&mut self) {
        if !self.left.is_empty() {
            // A lock that was taken for one command is released with the others.
            self.leave();
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
    }

    /// Lets go of a lock that is held alone.
    #[inline]
    pub(crate) fn release_one(&mut self) {
        if self.one.is_some() {
            self.release();
        }
    }

    /// The held shard, if exactly one is held.
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
            _ => {
                let index = index(&self.many, self.store, at).expect(UNNAMED);
                &mut self.many[index].1
            }
        }
    }

    /// A shard, only to look at.
    ///
    /// # Panics
    /// As [`shard`](Guards::shard).
    #[inline]
    pub(crate) fn peek(&self, at: usize) -> &Shard {
        self.held(at).expect(UNNAMED)
    }

    /// A shard, if its lock is held.
    #[inline]
    pub(crate) fn held(&self, at: usize) -> Option<&Shard> {
        match &self.one {
            Some((held, shard)) if *held == at => Some(shard),
            _ => index(&self.many, self.store, at).map(|index| &*self.many[index].1),
        }
    }
}

impl Drop for Guards<'_> {
    fn drop(&mut self) {
        self.release();
        self.give_back();
    }
}

/// Where a shard is among the held ones.
#[inline]
fn index(held: &[(usize, ShardGuard<'_>)], store: &Store, at: usize) -> Option<usize> {
    if held.len() == store.shards.len() {
        return Some(at);
    }
    held.binary_search_by_key(&at, |(held, _)| *held).ok()
}

const UNNAMED: &str = "a command used a key that it does not name";
