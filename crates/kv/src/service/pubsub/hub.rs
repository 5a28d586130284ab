//! Which loops have subscribers of what.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use tidewire::LoopHandle;

use super::inbox::{Inbox, Published};
use crate::store::events::{BY_EVENT, BY_KEY, Classes};
use crate::store::{Announce, Event};
use crate::types::glob::Glob;

/// What one subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A channel by its name.
    Channel,
    /// All channels whose names match.
    Pattern,
    /// A sharded channel, a name space of its own.
    Shard,
}

/// An inbox is full: publish later.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InboxFull;

/// A channel or pattern that has subscribers.
struct Name<M> {
    /// `None` for a channel.
    glob: Option<Glob>,
    /// How many there are on which loops, by the addresses of their inboxes.
    places: BTreeMap<usize, (Arc<Inbox<M>>, usize)>,
}

/// Channels or patterns that have subscribers.
type ByName<M> = HashMap<Box<[u8]>, Name<M>>;

fn address<M>(inbox: &Arc<Inbox<M>>) -> usize {
    Arc::as_ptr(inbox) as usize
}

/// The subscriptions of all loops.
pub(crate) struct Hub<M> {
    maps: RwLock<[ByName<M>; 3]>,
    /// Inboxes that are full.
    full: Arc<AtomicUsize>,
}

impl<M> Default for Hub<M> {
    fn default() -> Hub<M> {
        Hub {
            maps: RwLock::new([HashMap::new(), HashMap::new(), HashMap::new()]),
            full: Arc::default(),
        }
    }
}

impl<M> Hub<M> {
    /// One more subscriber on the inbox's loop. The result is the number of the last message that
    /// is not for it.
    pub(crate) fn subscribe(&self, kind: Kind, name: &[u8], inbox: &Arc<Inbox<M>>) -> u64 {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Name {
            glob: (kind == Kind::Pattern).then(|| Glob::new(name)).flatten(),
            places: BTreeMap::new(),
        };
        let name = maps[kind as usize].entry(name.into()).or_insert_with(new);
        let place = name.places.entry(address(inbox));
        place.or_insert_with(|| (inbox.clone(), 0)).1 += 1;
        // Nobody publishes while the lock is held.
        inbox.sequence()
    }

    /// One subscriber fewer.
    pub(crate) fn unsubscribe(&self, kind: Kind, name: &[u8], inbox: &Arc<Inbox<M>>) {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = maps[kind as usize].get_mut(name) else {
            return;
        };
        if let Some((_, subscribers)) = known.places.get_mut(&address(inbox)) {
            *subscribers -= 1;
            if *subscribers == 0 {
                known.places.remove(&address(inbox));
            }
        }
        if known.places.is_empty() {
            maps[kind as usize].remove(name);
        }
    }

    /// Sends a message to all subscribers, who hear it when `ticket` has settled; how many
    /// subscriptions it matches.
    ///
    /// # Errors
    /// If an inbox is full, unless `overfill`; nothing was sent then.
    pub(crate) fn publish(
        &self,
        sharded: bool,
        channel: &[u8],
        payload: &[u8],
        overfill: bool,
        ticket: u64,
    ) -> Result<usize, InboxFull> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let mut inboxes: BTreeMap<usize, &Arc<Inbox<M>>> = BTreeMap::new();
        let mut receivers = 0;
        for name in matching(&maps, sharded, channel) {
            for (&at, (inbox, subscribers)) in &name.places {
                receivers += subscribers;
                inboxes.insert(at, inbox);
            }
        }
        if !overfill && inboxes.values().any(|inbox| inbox.is_full()) {
            return Err(InboxFull);
        }
        if !inboxes.is_empty() {
            let message = Arc::new(Published {
                channel: Bytes::copy_from_slice(channel),
                payload: Bytes::copy_from_slice(payload),
                sharded,
                ticket,
            });
            for inbox in inboxes.into_values() {
                inbox.push(message.clone());
            }
        }
        Ok(receivers)
    }

    /// An inbox for a loop.
    pub(crate) fn inbox(&self, at: LoopHandle<M>) -> Inbox<M> {
        Inbox::new(at, self.full.clone())
    }

    /// Whether any loop has more to hand out than it should: what makes more of it is to wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.full.load(Relaxed) > 0
    }

    /// Sends what became of a key; false if some loop has too much to hand out already.
    fn tell(&self, channel: &[u8], payload: &[u8], ticket: u64) -> bool {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let mut inboxes: BTreeMap<usize, &Arc<Inbox<M>>> = BTreeMap::new();
        for name in matching(&maps, false, channel) {
            inboxes.extend(name.places.iter().map(|(&at, (inbox, _))| (at, inbox)));
        }
        if inboxes.is_empty() {
            return true;
        }
        let message = Arc::new(Published {
            channel: Bytes::copy_from_slice(channel),
            payload: Bytes::copy_from_slice(payload),
            sharded: false,
            ticket,
        });
        let mut all = true;
        for inbox in inboxes.into_values() {
            all &= inbox.push_unless_over(&message);
        }
        all
    }

    /// How many subscriptions a message would match.
    pub(crate) fn receivers(&self, sharded: bool, channel: &[u8]) -> usize {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let places = matching(&maps, sharded, channel).flat_map(|name| name.places.values());
        places.map(|(_, subscribers)| subscribers).sum()
    }

    /// The names that have subscribers and match.
    pub(crate) fn names(&self, kind: Kind, pattern: Option<&Glob>) -> Vec<Box<[u8]>> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let names = maps[kind as usize].keys();
        names
            .filter(|name| pattern.is_none_or(|pattern| pattern.matches(name)))
            .cloned()
            .collect()
    }

    /// How many subscribers a name has.
    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let known = maps[kind as usize].get(name);
        known.map_or(0, |known| known.places.values().map(|(_, n)| n).sum())
    }

    /// How many names have subscribers.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps[kind as usize].len()
    }
}

impl<M: Send + 'static> Announce for Hub<M> {
    fn announce(&self, event: &Event, by: Classes, ticket: u64) -> bool {
        let mut all = true;
        if by & BY_KEY != 0 {
            let mut channel = format!("__keyspace@{}__:", event.db).into_bytes();
            channel.extend_from_slice(&event.key);
            all &= self.tell(&channel, event.name.as_bytes(), ticket);
        }
        if by & BY_EVENT != 0 {
            let channel = format!("__keyevent@{}__:{}", event.db, event.name);
            all &= self.tell(channel.as_bytes(), &event.key, ticket);
        }
        all
    }
}

/// The names that a message matches.
fn matching<'m, M>(
    maps: &'m [ByName<M>; 3],
    sharded: bool,
    channel: &'m [u8],
) -> impl Iterator<Item = &'m Name<M>> {
    let named = if sharded { Kind::Shard } else { Kind::Channel };
    let by_name = maps[named as usize].get(channel).into_iter();
    let by_pattern = maps[Kind::Pattern as usize].values();
    let by_pattern = by_pattern.filter(move |name| {
        let glob = name.glob.as_ref();
        !sharded && glob.is_some_and(|glob| glob.matches(channel))
    });
    by_name.chain(by_pattern)
}
