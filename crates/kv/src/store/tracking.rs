//! CLIENT TRACKING: clients are told when keys change that they have read, or that have their
//! prefixes.
//!
//! What was read is noted in the key's shard, under the lock under which it was read; so nothing
//! can change in between. The first change takes the note away and tells. A note is a promise to
//! tell, so where there are too many one goes by telling, and a client that is told faster than it
//! reads is told at last that everything has changed: no client is ever left with stale data.
//!
//! With a log, what a unit has changed is [kept](Untold) until that is committed, and told with its ticket: that a key has
//! changed is as much as what it holds, and a crash may take it back.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::guards::Guards;
use super::shard::{Place, Shard};
use super::{Runner, Store};
use crate::commands::{READ, Spec};

/// Bytes of names that wait for one client; beyond it is told that everything has changed.
const PENDING_MAX: usize = 1 << 20;
/// Bytes that one unit keeps of what it has changed; beyond it is told that everything has.
const UNTOLD_MAX: usize = 16 << 20;
/// What a name takes beside its bytes, about.
const EACH: usize = 32;
/// What a note takes beside the key's name, about; and each client in it but the first.
const NOTE: usize = 192;
const READER: usize = 24;
/// Notes that one more may take away where there are too many.
const EVICTIONS: usize = 16;
/// Bytes of notes for clients that have ended from which on they are looked for.
const SWEEP_MIN: usize = 1 << 20;
/// Notes that one visit of a shard takes away where there are too many.
const EVICTIONS_A_VISIT: usize = 1024;

/// Lets a client know that something waits for it.
pub trait Notify: Send + Sync {
    /// The client is to [take](Tracker::take) what waits. Called under locks of the store: be
    /// quick, and do not call it.
    fn notify(&self, tracker: &Arc<Tracker>);
}

/// A client that wants to be told of changes.
pub struct Tracker {
    client: u64,
    /// Whether it is also told of its own changes.
    own_too: AtomicBool,
    over: AtomicBool,
    pending: Mutex<Pending>,
    to: Mutex<Box<dyn Notify>>,
    /// Bytes of memory of the notes that it pays for: see [`Trackers`].
    noted: AtomicI64,
}

#[derive(Debug, Default)]
struct Pending {
    keys: Vec<Box<[u8]>>,
    bytes: usize,
    all: bool,
    notified: bool,
    /// The client may not hear of it before this has settled.
    ticket: u64,
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Perhaps everything.
    All,
    /// These keys.
    Keys(Vec<Box<[u8]>>),
}

impl Tracker {
    /// For the client of this number, which is not 0.
    #[must_use]
    pub fn new(client: u64, own_too: bool, to: Box<dyn Notify>) -> Arc<Tracker> {
        Arc::new(Tracker {
            client,
            own_too: AtomicBool::new(own_too),
            over: AtomicBool::new(false),
            pending: Mutex::default(),
            to: Mutex::new(to),
            noted: AtomicI64::new(0),
        })
    }

    /// Bytes of memory of what was noted for this client, and of what waits to be told.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.noted_bytes() + self.pending().bytes
    }

    /// Bytes of memory of its notes alone.
    fn noted_bytes(&self) -> usize {
        self.noted.load(Relaxed).max(0) as usize
    }

    /// Has the client told otherwise, of what it has read before too.
    pub fn change(self: &Arc<Tracker>, own_too: bool, to: Box<dyn Notify>) {
        self.own_too.store(own_too, Relaxed);
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.notify_again();
    }

    /// Lets know once more that something waits, if it does: the notified connection may have gone
    /// without taking it.
    fn notify_again(self: &Arc<Tracker>) {
        if self.pending().notified && !self.is_over() {
            let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            to.notify(self);
        }
    }

    /// What waits to be told, and the ticket that has to [settle](super::Effects::settled) before
    /// the client hears of it, 0 for none; nothing if it was taken already, or the client does not
    /// track any more.
    #[must_use]
    pub fn take(&self) -> Option<(Changed, u64)> {
        let pending = std::mem::take(&mut *self.pending());
        let ticket = pending.ticket;
        match pending {
            _ if self.is_over() => None,
            Pending { all: true, .. } => Some((Changed::All, ticket)),
            Pending { keys, .. } if keys.is_empty() => None,
            Pending { keys, .. } => Some((Changed::Keys(keys), ticket)),
        }
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Tells of a key, or of all, that was changed with this ticket.
    fn tell(self: &Arc<Tracker>, key: Option<&[u8]>, by: u64, ticket: u64) {
        if self.is_over() || by == self.client && !self.own_too.load(Relaxed) {
            return;
        }
        let mut pending = self.pending();
        pending.ticket = pending.ticket.max(ticket);
        match key {
            _ if pending.all => {}
            Some(key) if pending.bytes + key.len() + EACH <= PENDING_MAX => {
                pending.bytes += key.len() + EACH;
                pending.keys.push(key.into());
            }
            _ => {
                *pending = Pending {
                    all: true,
                    notified: pending.notified,
                    ticket: pending.ticket,
                    ..Pending::default()
                };
            }
        }
        if !std::mem::replace(&mut pending.notified, true) {
            drop(pending);
            let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            to.notify(self);
        }
    }
}

impl fmt::Debug for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracker({})", self.client)
    }
}

/// The clients that have read a key. The first pays for the note, each other one for its place in it.
pub(crate) type Trackers = Vec<Arc<Tracker>>;

/// What each client in a note pays, in their order; `len` is the length of the key.
fn prices(len: usize) -> impl Iterator<Item = i64> {
    let first = (NOTE + len) as i64;
    std::iter::once(first).chain(std::iter::repeat(READER as i64))
}

/// What was changed, and which clients are to hear of it.
#[derive(Debug, Default)]
pub(super) struct Untold {
    keys: Vec<Key>,
    bytes: usize,
    /// All clients are told that everything may have changed.
    all: bool,
}

/// A key that has changed.
#[derive(Debug)]
struct Key {
    place: Place,
    /// The client that has changed it.
    by: u64,
    /// The clients that have read it.
    trackers: Trackers,
    /// Clients with a prefix of this key are told too.
    broadcasts: bool,
}

impl Untold {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.all
    }

    /// Everything may have changed.
    pub(super) fn add_all(&mut self) {
        *self = Untold {
            all: true,
            ..Untold::default()
        };
    }

    /// What was kept elsewhere.
    pub(super) fn append(&mut self, other: Untold) {
        if other.all {
            self.add_all();
        }
        other.keys.into_iter().for_each(|key| self.add(key));
    }

    fn add(&mut self, mut key: Key) {
        if self.all {
            return;
        }
        if let Some(last) = self.keys.last_mut()
            && last.by == key.by
            && last.place == key.place
        {
            last.trackers.append(&mut key.trackers);
            last.broadcasts |= key.broadcasts;
            return;
        }
        let each = size_of::<Key>() + size_of::<Arc<Tracker>>() * key.trackers.len();
        self.bytes += key.place.1.len() + each;
        self.keys.push(key);
        if self.bytes > UNTOLD_MAX {
            self.add_all();
        }
    }
}

/// Prefixes of keys, and the clients that are told of all keys with them.
#[derive(Debug, Default)]
struct Prefixes {
    all: HashMap<Arc<[u8]>, Trackers>,
    /// How many there are of each length.
    lengths: BTreeMap<usize, usize>,
}

/// What all shards know of clients that are told.
#[derive(Debug)]
pub struct Tracking {
    trackers: RwLock<BTreeMap<u64, Arc<Tracker>>>,
    prefixes: RwLock<Prefixes>,
    /// Notes in all shards, and how many there may be; 0 is any number.
    keys: AtomicUsize,
    keys_max: AtomicUsize,
    /// Clients in all notes, each as often as there are notes with it.
    items: AtomicUsize,
    /// Bytes of memory of all notes.
    bytes: AtomicI64,
    /// Bytes of notes that ended clients paid for, since the notes were last swept.
    ended: AtomicUsize,
}

impl Default for Tracking {
    fn default() -> Tracking {
        Tracking {
            trackers: RwLock::default(),
            prefixes: RwLock::default(),
            keys: AtomicUsize::new(0),
            keys_max: AtomicUsize::new(1_000_000),
            items: AtomicUsize::new(0),
            bytes: AtomicI64::new(0),
            ended: AtomicUsize::new(0),
        }
    }
}

impl Tracking {
    /// Clients that are told.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.trackers().len()
    }

    /// Keys that were read by clients which have not been told.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// The clients that have read them, counted once for each of them.
    #[must_use]
    pub fn items(&self) -> usize {
        self.items.load(Relaxed)
    }

    /// Bytes of memory of all notes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed).max(0) as usize
    }

    /// How many there may be, 0 for any number. 1,000,000 at first.
    #[must_use]
    pub fn keys_max(&self) -> usize {
        self.keys_max.load(Relaxed)
    }

    /// Changes how many there may be. Notes beyond it go within seconds, as [`Store::expire`] comes
    /// by.
    pub fn set_keys_max(&self, most: usize) {
        self.keys_max.store(most, Relaxed);
    }

    /// Prefixes of keys that clients are told of.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        prefixes.all.len()
    }

    fn trackers(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u64, Arc<Tracker>>> {
        self.trackers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells clients that have a prefix of this key.
    fn tell_prefixes(&self, key: &[u8], by: u64, ticket: u64) {
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        for (&len, _) in prefixes.lengths.range(..=key.len()) {
            for tracker in prefixes.all.get(&key[..len]).into_iter().flatten() {
                tracker.tell(Some(key), by, ticket);
            }
        }
    }

    /// Notifies all clients once more for which something waits: one that was notified in the place
    /// of others has gone.
    pub fn notify_again(&self) {
        for tracker in self.trackers().values() {
            tracker.notify_again();
        }
    }

    /// Takes ended clients out of a note. `len` is the length of its key.
    fn drop_those_over(&self, trackers: &mut Trackers, len: usize) {
        if !trackers.iter().any(|tracker| tracker.is_over()) {
            return;
        }
        let before = trackers.len();
        self.pay(trackers, len, -1);
        trackers.retain(|tracker| !tracker.is_over());
        self.pay(trackers, len, 1);
        self.items.fetch_sub(before - trackers.len(), Relaxed);
    }

    /// A note has gone.
    fn forget_note(&self, trackers: &Trackers, len: usize) {
        self.pay(trackers, len, -1);
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(trackers.len(), Relaxed);
    }

    /// Has the clients in a note pay for it, or be paid back if `sign` is -1.
    fn pay(&self, trackers: &Trackers, len: usize, sign: i64) {
        let mut all = 0;
        for (tracker, price) in trackers.iter().zip(prices(len)) {
            tracker.noted.fetch_add(sign * price, Relaxed);
            all += price;
        }
        self.bytes.fetch_add(sign * all, Relaxed);
    }

    /// Whether there are more notes than there may be.
    pub(super) fn is_too_much(&self) -> bool {
        let most = self.keys_max();
        most > 0 && self.keys() > most
    }

    /// Whether the notes for clients that have ended may be as much as notes for the others.
    /// Looking at all notes then costs, for each, no more than making it did.
    fn is_to_sweep(&self) -> bool {
        self.ended.load(Relaxed) > SWEEP_MIN.max(self.bytes() / 2)
    }

    /// Tells all clients that everything may have changed.
    fn tell_all(&self, ticket: u64) {
        for tracker in self.trackers().values() {
            tracker.tell(None, 0, ticket);
        }
    }
}

impl Prefixes {
    fn add(&mut self, prefix: &Arc<[u8]>, tracker: &Arc<Tracker>) {
        let trackers = self.all.entry(prefix.clone()).or_insert_with(|| {
            *self.lengths.entry(prefix.len()).or_default() += 1;
            Trackers::new()
        });
        trackers.push(tracker.clone());
    }

    fn remove(&mut self, tracker: &Arc<Tracker>) {
        let lengths = &mut self.lengths;
        #[expect(clippy::disallowed_methods, reason = "each is looked at for itself")]
        self.all.retain(|prefix, trackers| {
            trackers.retain(|other| !Arc::ptr_eq(other, tracker));
            if trackers.is_empty()
                && let Some(count) = lengths.get_mut(&prefix.len())
            {
                *count -= 1;
                if *count == 0 {
                    lengths.remove(&prefix.len());
                }
            }
            !trackers.is_empty()
        });
    }
}

impl Store {
    /// Clients that are told of changes.
    #[must_use]
    pub fn tracking(&self) -> &Tracking {
        &self.tracking
    }

    /// Tells a client from now on of changes of what it [reads](Runner::track).
    pub fn begin_tracking(&self, tracker: &Arc<Tracker>) {
        let trackers = self.tracking.trackers.write();
        let mut trackers = trackers.unwrap_or_else(PoisonError::into_inner);
        trackers.insert(tracker.client, tracker.clone());
    }

    /// Tells a client from now on of changes of all keys that begin so. Locks each shard in turn: no runner
    /// of the caller may hold locks.
    pub fn track_prefixes<'x>(
        &self,
        tracker: &Arc<Tracker>,
        prefixes: impl Iterator<Item = &'x Arc<[u8]>>,
    ) {
        let known = self.tracking.prefixes.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        prefixes.for_each(|prefix| known.add(prefix, tracker));
        drop(known);
        for at in 0..self.shards.len() {
            let mut shard = self.lock(at);
            shard.broadcasts = true;
            shard.observed = true;
        }
    }

    /// Tells a client nothing more. `alone` says that no runner of the caller holds locks: then
    /// notes without a client are forgotten at once.
    pub fn end_tracking(&self, tracker: &Arc<Tracker>, alone: bool) {
        tracker.over.store(true, Relaxed);
        let trackers = self.tracking.trackers.write();
        let mut trackers = trackers.unwrap_or_else(PoisonError::into_inner);
        trackers.remove(&tracker.client);
        let nobody = trackers.is_empty();
        drop(trackers);
        let known = self.tracking.prefixes.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        known.remove(tracker);
        drop(known);
        let noted = tracker.noted_bytes();
        self.tracking.ended.fetch_add(noted, Relaxed);
        if alone && (nobody || self.tracking.is_to_sweep()) {
            self.sweep_notes();
        }
    }

    /// Forgets what is noted for clients that are told nothing more, if that has become as much as what is noted for the
    /// others. No runner of the caller may hold locks.
    pub fn sweep_tracking(&self) {
        if self.tracking.is_to_sweep() {
            self.sweep_notes();
        }
    }

    /// Tells all clients that everything may have changed, though nothing was changed here. No runner of the caller may hold locks.
    pub fn distrust(&self) {
        for at in 0..self.shards.len() {
            self.lock(at).forget_tracked(&self.tracking);
        }
        self.tracking.tell_all(0);
    }

    fn sweep_notes(&self) {
        self.tracking.ended.store(0, Relaxed);
        for at in 0..self.shards.len() {
            let mut shard = self.lock(at);
            // Another client may have come in between.
            #[expect(clippy::disallowed_methods, reason = "sums do not show the order")]
            shard.tracked.retain(|(_, key), trackers| {
                self.tracking.drop_those_over(trackers, key.len());
                let stays = !trackers.is_empty();
                if !stays {
                    self.tracking.forget_note(trackers, key.len());
                }
                stays
            });
            shard.tracked.shrink_to_fit();
            shard.broadcasts &= self.tracking.prefixes() > 0;
            shard.note_observers();
        }
    }

    /// Finds the clients that have read a key that has changed, or have a prefix of it.
    #[cold]
    pub(super) fn find_trackers(
        &self,
        shard: &mut Shard,
        place: &Place,
        by: u64,
        untold: &mut Untold,
    ) {
        let trackers = shard.tracked.remove(place);
        if let Some(trackers) = &trackers {
            self.tracking.forget_note(trackers, place.1.len());
        }
        let broadcasts = shard.broadcasts;
        if trackers.is_some() || broadcasts {
            untold.add(Key {
                place: place.clone(),
                by,
                trackers: trackers.unwrap_or_default(),
                broadcasts,
            });
        }
        shard.note_observers();
    }

    /// Tells what was changed with this ticket.
    #[cold]
    pub(super) fn tell_untold(&self, untold: Untold, ticket: u64) {
        if untold.all {
            self.tracking.tell_all(ticket);
        }
        for key in untold.keys {
            for tracker in key.trackers {
                tracker.tell(Some(&key.place.1), key.by, ticket);
            }
            if key.broadcasts {
                self.tracking.tell_prefixes(&key.place.1, key.by, ticket);
            }
        }
    }
}

impl Guards<'_> {
    /// Tells what was changed, or keeps it for the commit.
    #[cold]
    pub(super) fn tell_or_keep(&mut self, untold: Untold) {
        match &mut self.pending {
            Some(pending) => pending.untold.append(untold),
            None => self.store().tell_untold(untold, 0),
        }
    }
}

impl Shard {
    /// Forgets which client has read what: all are about to be told that everything has changed.
    pub(crate) fn forget_tracked(&mut self, tracking: &Tracking) {
        let none = HashMap::with_hasher(*self.tracked.hasher());
        #[expect(clippy::iter_over_hash_type, reason = "sums do not show the order")]
        for ((_, key), trackers) in std::mem::replace(&mut self.tracked, none) {
            tracking.forget_note(&trackers, key.len());
        }
        self.note_observers();
    }

    /// Takes notes away while there are too many, at most so many, by telling of them.
    pub(super) fn evict_tracked(&mut self, tracking: &Tracking, most: usize) {
        for _ in 0..most {
            if !tracking.is_too_much() {
                break;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "any will do, and the store's key decides"
            )]
            let first = self.tracked.keys().next();
            let Some(place) = first.cloned() else {
                break;
            };
            let gone = self.tracked.remove(&place).unwrap_or_default();
            tracking.forget_note(&gone, place.1.len());
            for tracker in gone {
                // The tracker tells of no change.
                tracker.tell(Some(&place.1), 0, 0);
            }
        }
    }

    /// As [`evict_tracked`](Shard::evict_tracked), as much as a visit may.
    pub(super) fn evict_tracked_some(&mut self, tracking: &Tracking) {
        self.evict_tracked(tracking, EVICTIONS_A_VISIT);
        self.note_observers();
    }
}

impl Runner<'_> {
    /// Holds what a command needs, so that nothing can change between it and [`track`](Runner::track).
    pub fn hold_for(&mut self, spec: &Spec, args: &[&[u8]]) {
        if !self.in_transaction {
            let shards = self.guards.store().shards_for(spec, args);
            self.guards.hold(&shards);
        }
    }

    /// Notes that a client has read the keys of a command, which has just been run under the locks that are
    /// held. Commands that do more than read are not noted.
    pub fn track(&mut self, spec: &Spec, db: u16, args: &[&[u8]], tracker: &Arc<Tracker>) {
        if spec.flags & READ == 0 {
            return;
        }
        let store = self.guards.store();
        let tracking = &store.tracking;
        let mut keys = Vec::new();
        spec.keys.each(args, |key| keys.push(key));
        for key in keys {
            let shard = self.guards.shard(store.shard_of(store.hash(key)));
            let trackers = match shard.tracked.entry((db, key.into())) {
                std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::hash_map::Entry::Vacant(free) => {
                    tracking.keys.fetch_add(1, Relaxed);
                    free.insert(Trackers::new())
                }
            };
            tracking.drop_those_over(trackers, key.len());
            if !trackers.iter().any(|other| Arc::ptr_eq(other, tracker)) {
                let price = prices(key.len()).nth(trackers.len()).unwrap_or_default();
                tracker.noted.fetch_add(price, Relaxed);
                tracking.bytes.fetch_add(price, Relaxed);
                trackers.push(tracker.clone());
                tracking.items.fetch_add(1, Relaxed);
            }
            shard.observed = true;
            shard.evict_tracked(tracking, EVICTIONS);
        }
    }

    /// Sets the client that runs the commands, so that it need not be told of its own changes; 0 is
    /// none.
    pub fn set_client(&mut self, client: u64) {
        self.guards.client = client;
    }
}
