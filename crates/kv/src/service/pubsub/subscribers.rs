//! The subscribers of one loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tidewire::{ConnId, LoopHandle};

use super::frame::Frame;
use super::hub::{Hub, Kind};
use super::inbox::Inbox;
use crate::types::glob::Glob;

/// Messages handed out before the loop's other work gets its turn.
const TURN_DELIVERIES: usize = 10_000;

/// Each name's subscribers.
type ByName = HashMap<Box<[u8]>, Listeners>;

/// Who listens to one name.
#[derive(Default)]
struct Listeners {
    /// `None` for a channel.
    glob: Option<Glob>,
    /// Each with the number of the last message that was before its time.
    since: BTreeMap<ConnId, u64>,
}

/// Who on this loop listens to what.
pub(crate) struct Subscribers<M> {
    by_kind: [ByName; 3],
    /// Made for the first subscriber.
    inbox: Option<Arc<Inbox<M>>>,
}

impl<M> Default for Subscribers<M> {
    fn default() -> Subscribers<M> {
        Subscribers {
            by_kind: Default::default(),
            inbox: None,
        }
    }
}

impl<M> Subscribers<M> {
    /// Whether anybody on this loop has ever subscribed.
    pub(crate) fn any(&self) -> bool {
        self.inbox.is_some()
    }

    /// Subscribes a connection that is not subscribed to this yet.
    pub(crate) fn add(
        &mut self,
        hub: &Hub<M>,
        at: &LoopHandle<M>,
        kind: Kind,
        name: &[u8],
        conn: ConnId,
    ) {
        let inbox = self
            .inbox
            .get_or_insert_with(|| Arc::new(hub.inbox(at.clone())));
        let since = hub.subscribe(kind, name, inbox);
        let names = &mut self.by_kind[kind as usize];
        let new = || Listeners {
            glob: (kind == Kind::Pattern).then(|| Glob::new(name)).flatten(),
            since: BTreeMap::new(),
        };
        let listeners = names.entry(name.into()).or_insert_with(new);
        listeners.since.insert(conn, since);
    }

    /// Ends a subscription.
    pub(crate) fn remove(&mut self, hub: &Hub<M>, kind: Kind, name: &[u8], conn: ConnId) {
        let names = &mut self.by_kind[kind as usize];
        let Some(subscribers) = names.get_mut(name) else {
            return;
        };
        if subscribers.since.remove(&conn).is_some()
            && let Some(inbox) = &self.inbox
        {
            hub.unsubscribe(kind, name, inbox);
        }
        if subscribers.since.is_empty() {
            names.remove(name);
        }
    }

    /// Who may have listened to an event that was left out for want of room, since this was asked last.
    pub(crate) fn deceived(&self) -> Vec<ConnId> {
        if !self.inbox.as_ref().is_some_and(|inbox| inbox.was_lossy()) {
            return Vec::new();
        }
        let channels = &self.by_kind[Kind::Channel as usize];
        let channels = channels
            .iter()
            .filter(|(name, _)| name.starts_with(b"__key"));
        let patterns = &self.by_kind[Kind::Pattern as usize];
        let listeners = channels.chain(patterns).map(|(_, listeners)| listeners);
        listeners
            .flat_map(|these| these.since.keys().copied())
            .collect()
    }

    /// Hands out what is in the inbox, up to the work of one turn; asks for another turn if there
    /// is more. `to` is given each subscriber and its message.
    pub(crate) fn deliver(&self, mut to: impl FnMut(ConnId, &mut Frame<'_>)) {
        let Some(inbox) = &self.inbox else {
            return;
        };
        let mut deliveries = 0;
        while let Some((sequence, message)) = inbox.pop() {
            let mut hand_out = |listeners: &Listeners, pattern: Option<&[u8]>| {
                let mut frame = Frame::new(&message, pattern);
                for (&conn, &since) in &listeners.since {
                    if since < sequence {
                        to(conn, &mut frame);
                    }
                }
                deliveries += listeners.since.len();
            };
            let named = if message.sharded {
                Kind::Shard
            } else {
                Kind::Channel
            };
            if let Some(subscribers) = self.by_kind[named as usize].get(&message.channel[..]) {
                hand_out(subscribers, None);
            }
            if !message.sharded {
                for (pattern, listeners) in &self.by_kind[Kind::Pattern as usize] {
                    let glob = listeners.glob.as_ref();
                    if glob.is_some_and(|glob| glob.matches(&message.channel)) {
                        hand_out(listeners, Some(pattern));
                    }
                }
            }
            deliveries += 1;
            if deliveries >= TURN_DELIVERIES {
                inbox.signal();
                return;
            }
        }
    }
}
