//! CLIENT TRACKING: clients are told when keys change that they have read, or that have their
//! prefixes.
//!
//! A read is noted in the key's shard, under the lock of the read; so the key cannot change in
//! between. The first change removes the note and notifies the client. A note promises a
//! notification, so a note that has to go for lack of room goes by notifying. A client that is
//! notified faster than it reads is told at last that all keys have changed: no client ever keeps
//! stale data.
//!
//! With a log, the changed keys of a unit are [kept](Untold) until the unit is committed, and sent with its ticket: a
//! notification reveals as much as the value, and a crash may take the change back.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::place::Place;

/// Bytes of names that wait for one client; beyond this, the client is told that everything has
/// changed.
pub(super) const PENDING_MAX: usize = 1 << 20;
/// Bytes of changed keys that one unit keeps; beyond this, clients are told that all keys have
/// changed.
pub(super) const UNTOLD_MAX: usize = 16 << 20;
/// Bytes that a name takes beside its text, about.
pub(super) const EACH: usize = 32;
/// Bytes that a note takes beside the key's name, about; each further client of a note takes as
/// much again.
pub(super) const NOTE: usize = 192;
pub(super) const READER: usize = 24;
/// Notes that one more may take away where there are too many.
pub(super) const EVICTIONS: usize = 16;
/// Bytes of notes for clients that have ended from which on they are looked for.
pub(super) const SWEEP_MIN: usize = 1 << 20;
/// Notes that one visit of a shard takes away where there are too many.
pub(super) const EVICTIONS_A_VISIT: usize = 1024;

/// Tells a client that messages wait for it.
pub trait Notify: Send + Sync {
    /// The client is to [take](Tracker::take) what waits. Called under locks of the store: be
    /// quick, and do not call it.
    fn notify(&self, tracker: &Arc<Tracker>);
}

/// A client that wants to be told of changes.
pub struct Tracker {
    pub(super) client: u64,
    /// Whether the client is also told of its own changes.
    pub(super) own_too: AtomicBool,
    pub(super) over: AtomicBool,
    pub(super) pending: Mutex<Pending>,
    pub(super) to: Mutex<Box<dyn Notify>>,
    /// Bytes of memory of the notes that it pays for: see [`Trackers`].
    pub(super) noted: AtomicI64,
}

#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) bytes: usize,
    pub(super) all: bool,
    pub(super) notified: bool,
    /// The client may not be notified before this ticket has settled.
    pub(super) ticket: u64,
}

/// The contents of a notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Perhaps everything.
    All,
    /// The names of changed keys.
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

    /// Bytes of memory of the client's notes alone.
    pub(super) fn noted_bytes(&self) -> usize {
        self.noted.load(Relaxed).max(0) as usize
    }

    /// Changes where and how the client is told, also of the keys that it has read before.
    pub fn change(self: &Arc<Tracker>, own_too: bool, to: Box<dyn Notify>) {
        self.own_too.store(own_too, Relaxed);
        *self.to.lock().unwrap_or_else(PoisonError::into_inner) = to;
        self.notify_again();
    }

    /// Lets know once more that something waits, if it does: the notified connection may have gone
    /// without taking it.
    pub(super) fn notify_again(self: &Arc<Tracker>) {
        if self.pending().notified && !self.is_over() {
            let to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
            to.notify(self);
        }
    }

    /// The notifications that wait to be sent, and the ticket that must
    /// [settle](super::Effects::settled) before the client receives them, 0 for none. `None` if
    /// they were taken already, or the client does not track any more.
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

    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Tells of a key, or of all, that was changed with this ticket.
    pub(super) fn tell(self: &Arc<Tracker>, key: Option<&[u8]>, by: u64, ticket: u64) {
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

/// The price that each client in a note pays, in their order; `len` is the length of the key.
pub(super) fn prices(len: usize) -> impl Iterator<Item = i64> {
    let first = (NOTE + len) as i64;
    std::iter::once(first).chain(std::iter::repeat(READER as i64))
}

/// Changed keys, and the clients that must be notified.
#[derive(Debug, Default)]
pub(super) struct Untold {
    pub(super) keys: Vec<Key>,
    pub(super) bytes: usize,
    /// All clients are told that everything may have changed.
    pub(super) all: bool,
}

/// A key that has changed.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) place: Place,
    /// The client that has changed the key.
    pub(super) by: u64,
    /// The clients that have read the key.
    pub(super) trackers: Trackers,
    /// Clients with a prefix of this key are told too.
    pub(super) broadcasts: bool,
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

    /// Adds changes that were kept elsewhere.
    pub(super) fn append(&mut self, other: Untold) {
        if other.all {
            self.add_all();
        }
        other.keys.into_iter().for_each(|key| self.add(key));
    }

    pub(super) fn add(&mut self, mut key: Key) {
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
pub(super) struct Prefixes {
    pub(super) all: HashMap<Arc<[u8]>, Trackers>,
    /// How many there are of each length.
    pub(super) lengths: BTreeMap<usize, usize>,
}

/// The state of tracking that all shards share.
#[derive(Debug)]
pub struct Tracking {
    pub(super) trackers: RwLock<BTreeMap<u64, Arc<Tracker>>>,
    pub(super) prefixes: RwLock<Prefixes>,
    /// Notes in all shards, and how many there may be; 0 is any number.
    pub(super) keys: AtomicUsize,
    pub(super) keys_max: AtomicUsize,
    /// Clients in all notes, each as often as there are notes with it.
    pub(super) items: AtomicUsize,
    /// Bytes of memory of all notes.
    pub(super) bytes: AtomicI64,
    /// Bytes of notes that ended clients paid for, since the notes were last swept.
    pub(super) ended: AtomicUsize,
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

    /// Changes how many keys may be noted. Surplus notes are removed within seconds, by [`Store::expire`](super::Store::expire).
    pub fn set_keys_max(&self, most: usize) {
        self.keys_max.store(most, Relaxed);
    }

    /// Prefixes of keys that clients are told of.
    #[must_use]
    pub fn prefixes(&self) -> usize {
        let prefixes = self.prefixes.read().unwrap_or_else(PoisonError::into_inner);
        prefixes.all.len()
    }

    pub(super) fn trackers(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<u64, Arc<Tracker>>> {
        self.trackers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells clients that have a prefix of this key.
    pub(super) fn tell_prefixes(&self, key: &[u8], by: u64, ticket: u64) {
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
    pub(super) fn drop_those_over(&self, trackers: &mut Trackers, len: usize) {
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
    pub(super) fn forget_note(&self, trackers: &Trackers, len: usize) {
        self.pay(trackers, len, -1);
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(trackers.len(), Relaxed);
    }

    /// Has the clients in a note pay for it, or be paid back if `sign` is -1.
    pub(super) fn pay(&self, trackers: &Trackers, len: usize, sign: i64) {
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
    pub(super) fn is_to_sweep(&self) -> bool {
        self.ended.load(Relaxed) > SWEEP_MIN.max(self.bytes() / 2)
    }

    /// Tells all clients that everything may have changed.
    pub(super) fn tell_all(&self, ticket: u64) {
        for tracker in self.trackers().values() {
            tracker.tell(None, 0, ticket);
        }
    }
}

impl Prefixes {
    pub(super) fn add(&mut self, prefix: &Arc<[u8]>, tracker: &Arc<Tracker>) {
        let trackers = self.all.entry(prefix.clone()).or_insert_with(|| {
            *self.lengths.entry(prefix.len()).or_default() += 1;
            Trackers::new()
        });
        trackers.push(tracker.clone());
    }

    pub(super) fn remove(&mut self, tracker: &Arc<Tracker>) {
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
