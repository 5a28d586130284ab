//! The subscriptions of one connection. The connection's loop changes them; a client that ends the connection from
//! another loop makes them not count any more.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inbox::Inbox;
use super::names::Kind;

/// Bytes that a subscription to a channel takes beside the channel's name: entries in the tables of the connection, the
/// loop and the hub.
const SUBSCRIPTION: usize = 640;
/// Bytes that a pattern takes beside its text and what it is prepared in.
const PATTERN: usize = 2900;

const KINDS: [Kind; 3] = [Kind::Channel, Kind::Pattern, Kind::Shard];

/// Bytes of memory that a subscription takes at most. Connection, loop and hub share the name; what a pattern is prepared
/// in is at most twice as long, once in the loop and once in the hub.
pub(crate) fn subscription_memory(kind: Kind, name: &[u8]) -> usize {
    match kind {
        Kind::Pattern => PATTERN + 5 * name.len(),
        Kind::Channel | Kind::Shard => SUBSCRIPTION + name.len(),
    }
}

/// Bytes for which a pattern counts in `pubsub-patterns-limit`.
pub(crate) fn pattern_cost(name: &[u8]) -> usize {
    1024 + 7 * name.len()
}

/// The subscriptions of one connection. The lock of a `Listening` is taken after the hub's.
pub(crate) struct Listening<M> {
    pub(super) inbox: Arc<Inbox<M>>,
    names: Mutex<Subscriptions>,
}

impl<M> fmt::Debug for Listening<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listening({:?})", self.names)
    }
}

/// Names, each shared with the tables of the loop and of the hub.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    names: [BTreeSet<Arc<[u8]>>; 3],
    memory: usize,
    pattern_cost: usize,
    left: Option<Forgotten>,
}

/// How far the hub has forgotten the names of a client that has gone, in the order of kinds and names.
#[derive(Debug, Default)]
struct Forgotten {
    kinds: usize,
    behind: Option<Arc<[u8]>>,
}

impl<M> Listening<M> {
    pub(super) fn new(inbox: Arc<Inbox<M>>) -> Listening<M> {
        Listening {
            inbox,
            names: Mutex::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Subscriptions> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has(&self, kind: Kind, name: &[u8]) -> bool {
        self.lock().of(kind).contains(name)
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.lock().of(kind).len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// The names of a kind.
    pub(crate) fn names(&self, kind: Kind) -> Vec<Arc<[u8]>> {
        self.lock().of(kind).iter().cloned().collect()
    }

    /// Whether all names pass a test, which is told which of them are patterns.
    pub(crate) fn all(&self, test: impl Fn(&[u8], bool) -> bool) -> bool {
        let these = self.lock();
        let mut kinds = KINDS.into_iter();
        kinds.all(|kind| {
            let mut names = these.of(kind).iter();
            names.all(|name| test(name, kind == Kind::Pattern))
        })
    }

    /// Bytes of memory of all names.
    pub(crate) fn memory(&self) -> usize {
        self.lock().memory
    }

    /// The bytes of the connection's patterns, which count towards `pubsub-patterns-limit`.
    pub(crate) fn pattern_cost(&self) -> usize {
        self.lock().pattern_cost
    }
}

impl Subscriptions {
    pub(super) fn of(&self, kind: Kind) -> &BTreeSet<Arc<[u8]>> {
        &self.names[kind as usize]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }

    /// Whether the client has gone: it can subscribe to no more channels.
    pub(super) fn has_left(&self) -> bool {
        self.left.is_some()
    }

    /// The client has gone; false if that is known.
    pub(super) fn leave(&mut self) -> bool {
        let is_new = self.left.is_none();
        self.left.get_or_insert_default();
        is_new
    }

    /// Whether the hub has a name of this client.
    pub(super) fn is_known(&self, kind: Kind, name: &[u8]) -> bool {
        self.of(kind).contains(name) && !self.is_forgotten(kind, name)
    }

    fn is_forgotten(&self, kind: Kind, name: &[u8]) -> bool {
        let (kind, Some(left)) = (kind as usize, &self.left) else {
            return false;
        };
        let of_this = left.behind.as_deref().filter(|_| kind == left.kinds);
        kind < left.kinds || of_this.is_some_and(|behind| name <= behind)
    }

    /// Adds a name; false if the name was there already.
    pub(super) fn add(&mut self, kind: Kind, name: &Arc<[u8]>) -> bool {
        let is_new = self.names[kind as usize].insert(name.clone());
        if is_new {
            self.memory += subscription_memory(kind, name);
            if kind == Kind::Pattern {
                self.pattern_cost += pattern_cost(name);
            }
        }
        is_new
    }

    /// Removes a name; returns whether the hub must forget it, or `None` if it was not there.
    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) -> Option<bool> {
        let was_there = self.names[kind as usize].remove(name);
        was_there.then(|| {
            self.memory -= subscription_memory(kind, name);
            if kind == Kind::Pattern {
                self.pattern_cost -= pattern_cost(name);
            }
            !self.is_forgotten(kind, name)
        })
    }

    /// The first name that is there.
    pub(super) fn first(&self) -> Option<(Kind, Arc<[u8]>)> {
        let mut kinds = KINDS.into_iter();
        kinds.find_map(|kind| Some((kind, self.of(kind).first()?.clone())))
    }

    /// The next name that the hub is to forget, of a client that has gone.
    pub(super) fn forget_next(&mut self) -> Option<(Kind, Arc<[u8]>)> {
        let mut left = self.left.take()?;
        let mut next = None;
        while next.is_none() && left.kinds < KINDS.len() {
            let kind = KINDS[left.kinds];
            let behind = left.behind.take();
            let from = behind.as_deref().map_or(Unbounded, Excluded);
            let name = self.of(kind).range::<[u8], _>((from, Unbounded)).next();
            match name {
                Some(name) => {
                    left.behind = Some(name.clone());
                    next = Some((kind, name.clone()));
                }
                None => left.kinds += 1,
            }
        }
        self.left = Some(left);
        next
    }

    /// Names of a kind that the hub has still to forget, of a client that has gone.
    pub(super) fn unforgotten(&self, kind: Kind) -> impl Iterator<Item = &Arc<[u8]>> {
        let names = self.of(kind).iter().rev();
        names.take_while(move |name| !self.is_forgotten(kind, name))
    }
}
