//! Channels and patterns, each with a value.

use std::collections::HashMap;
use std::sync::Arc;

use super::patterns::Patterns;

/// The kind of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A channel by its name.
    Channel,
    /// All channels whose names match.
    Pattern,
    /// A sharded channel, a name space of its own.
    Shard,
}

impl Kind {
    /// That of a channel's own name.
    pub(super) fn of_channel(sharded: bool) -> Kind {
        if sharded { Kind::Shard } else { Kind::Channel }
    }
}

/// Names of all kinds.
#[derive(Debug)]
pub(super) struct Names<V> {
    channels: HashMap<Arc<[u8]>, V>,
    shards: HashMap<Arc<[u8]>, V>,
    pub(super) patterns: Patterns<V>,
}

impl<V> Default for Names<V> {
    fn default() -> Names<V> {
        Names {
            channels: HashMap::new(),
            shards: HashMap::new(),
            patterns: Patterns::default(),
        }
    }
}

impl<V> Names<V> {
    /// The channel that a message goes to by its name.
    pub(super) fn named(&self, sharded: bool, channel: &[u8]) -> Option<&V> {
        self.get(Kind::of_channel(sharded), channel)
    }

    pub(super) fn get(&self, kind: Kind, name: &[u8]) -> Option<&V> {
        match kind {
            Kind::Channel => self.channels.get(name),
            Kind::Pattern => self.patterns.get(name),
            Kind::Shard => self.shards.get(name),
        }
    }

    pub(super) fn get_mut(&mut self, kind: Kind, name: &[u8]) -> Option<&mut V> {
        match kind {
            Kind::Channel => self.channels.get_mut(name),
            Kind::Pattern => self.patterns.get_mut(name),
            Kind::Shard => self.shards.get_mut(name),
        }
    }

    /// The entry of a name, added if it is missing; `None` for a pattern that is too long.
    pub(super) fn entry(&mut self, kind: Kind, name: &Arc<[u8]>) -> Option<&mut V>
    where
        V: Default,
    {
        match kind {
            Kind::Channel => Some(self.channels.entry(name.clone()).or_default()),
            Kind::Pattern => self.patterns.entry(name),
            Kind::Shard => Some(self.shards.entry(name.clone()).or_default()),
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &[u8]) {
        match kind {
            Kind::Channel => drop(self.channels.remove(name)),
            Kind::Pattern => self.patterns.remove(name),
            Kind::Shard => drop(self.shards.remove(name)),
        }
    }

    pub(super) fn len(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel => self.channels.len(),
            Kind::Pattern => self.patterns.len(),
            Kind::Shard => self.shards.len(),
        }
    }

    /// The names of channels, sharded ones or others, in no order.
    pub(super) fn channels(&self, sharded: bool) -> impl Iterator<Item = (&[u8], &V)> {
        let these = if sharded {
            &self.shards
        } else {
            &self.channels
        };
        #[expect(clippy::disallowed_methods, reason = "callers sort them")]
        these.iter().map(|(name, value)| (&**name, value))
    }
}
