//! Which loops have subscribers of what.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;

use super::inbox::{Inbox, Published};
use crate::types::glob;

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

/// Where the subscribers of one channel or pattern are.
type Places<M> = Vec<(Arc<Inbox<M>>, usize)>;

/// Channels or patterns that have subscribers.
type ByName<M> = HashMap<Box<[u8]>, Places<M>>;

/// The subscriptions of all loops.
pub(crate) struct Hub<M> {
    maps: RwLock<[ByName<M>; 3]>,
}

impl<M> Default for Hub<M> {
    fn default() -> Hub<M> {
        Hub {
            maps: RwLock::new([HashMap::new(), HashMap::new(), HashMap::new()]),
        }
    }
}

impl<M> Hub<M> {
    /// One more subscriber on the inbox's loop. The result is the number of the last message that
    /// is not for it.
    pub(crate) fn subscribe(&self, kind: Kind, name: &[u8], inbox: &Arc<Inbox<M>>) -> u64 {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let places = maps[kind as usize].entry(name.into()).or_default();
        match places.iter_mut().find(|(at, _)| Arc::ptr_eq(at, inbox)) {
            Some((_, subscribers)) => *subscribers += 1,
            None => places.push((inbox.clone(), 1)),
        }
        // Nobody publishes while the lock is held.
        inbox.sequence()
    }

    /// One subscriber fewer.
    pub(crate) fn unsubscribe(&self, kind: Kind, name: &[u8], inbox: &Arc<Inbox<M>>) {
        let mut maps = self.maps.write().unwrap_or_else(PoisonError::into_inner);
        let Some(places) = maps[kind as usize].get_mut(name) else {
            return;
        };
        if let Some(at) = places.iter().position(|(at, _)| Arc::ptr_eq(at, inbox)) {
            places[at].1 -= 1;
            if places[at].1 == 0 {
                places.swap_remove(at);
            }
        }
        if places.is_empty() {
            maps[kind as usize].remove(name);
        }
    }

    /// Sends a message to all subscribers; how many subscriptions it matches.
    ///
    /// # Errors
    /// If an inbox is full, unless `overfill`; nothing was sent then.
    pub(crate) fn publish(
        &self,
        sharded: bool,
        channel: &[u8],
        payload: &[u8],
        overfill: bool,
    ) -> Result<usize, InboxFull> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let mut inboxes: Vec<&Arc<Inbox<M>>> = Vec::new();
        let mut receivers = 0;
        let named = if sharded { Kind::Shard } else { Kind::Channel };
        let by_name = maps[named as usize].get(channel).into_iter();
        let by_pattern = maps[Kind::Pattern as usize]
            .iter()
            .filter(|(pattern, _)| !sharded && glob::matches(pattern, channel))
            .map(|(_, places)| places);
        for (inbox, subscribers) in by_name.chain(by_pattern).flatten() {
            receivers += subscribers;
            if !inboxes.iter().any(|known| Arc::ptr_eq(known, inbox)) {
                inboxes.push(inbox);
            }
        }
        if !overfill && inboxes.iter().any(|inbox| inbox.is_full()) {
            return Err(InboxFull);
        }
        if !inboxes.is_empty() {
            let message = Arc::new(Published {
                channel: Bytes::copy_from_slice(channel),
                payload: Bytes::copy_from_slice(payload),
                sharded,
            });
            for inbox in inboxes {
                inbox.push(message.clone());
            }
        }
        Ok(receivers)
    }

    /// The names that have subscribers and match.
    pub(crate) fn names(&self, kind: Kind, pattern: Option<&[u8]>) -> Vec<Box<[u8]>> {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let names = maps[kind as usize].keys();
        names
            .filter(|name| pattern.is_none_or(|pattern| glob::matches(pattern, name)))
            .cloned()
            .collect()
    }

    /// How many subscribers a name has.
    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        let places = maps[kind as usize].get(name);
        places.map_or(0, |places| places.iter().map(|(_, n)| n).sum())
    }

    /// How many names have subscribers.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps[kind as usize].len()
    }
}
