//! The subscribers of one loop.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire::{ConnId, LoopHandle};

use super::frame::Frame;
use super::hub::Hub;
use super::inbox::{Inbox, Published};
use super::listening::Listening;
use super::names::{Kind, Names};
use super::patterns::Cursor;

/// Messages handed out before the loop's other work gets its turn.
const TURN_DELIVERIES: usize = 10_000;

/// Steps of matching before that: some milliseconds.
const TURN_STEPS: u64 = 1 << 21;

/// The listeners to one name, each with the number of the last message that was before its time.
type Since = BTreeMap<ConnId, u64>;

/// The listeners on this loop, and their names.
pub(crate) struct Subscribers<M> {
    names: Names<Since>,
    /// Made for the first subscriber.
    inbox: Option<Arc<Inbox<M>>>,
    /// A message that has been handed out to some of its patterns' listeners.
    partial: RefCell<Option<Partial>>,
}

/// A message, its number, and how many subscribers have it already.
struct Partial {
    sequence: u64,
    message: Arc<Published>,
    cursor: Cursor,
}

impl<M> Default for Subscribers<M> {
    fn default() -> Subscribers<M> {
        Subscribers {
            names: Names::default(),
            inbox: None,
            partial: RefCell::default(),
        }
    }
}

impl<M> Subscribers<M> {
    /// Whether any client on this loop has ever subscribed.
    pub(crate) fn any(&self) -> bool {
        self.inbox.is_some()
    }

    /// Makes the list of subscriptions for a connection of this loop.
    pub(crate) fn listening(&mut self, hub: &Hub<M>, at: &LoopHandle<M>) -> Arc<Listening<M>> {
        let inbox = self.inbox.get_or_insert_with(|| hub.inbox(at.clone()));
        Arc::new(Listening::new(inbox.clone()))
    }

    /// Subscribes a connection, unless the connection has gone.
    pub(crate) fn add(
        &mut self,
        hub: &Hub<M>,
        listening: &Listening<M>,
        kind: Kind,
        name: &Arc<[u8]>,
        conn: ConnId,
    ) {
        if let Some(since) = hub.subscribe(listening, kind, name)
            && let Some(listeners) = self.names.entry(kind, name)
        {
            listeners.insert(conn, since);
        }
    }

    /// Ends a subscription; false if there was none.
    pub(crate) fn remove(
        &mut self,
        hub: &Hub<M>,
        listening: &Listening<M>,
        kind: Kind,
        name: &[u8],
        conn: ConnId,
    ) -> bool {
        let was_there = hub.unsubscribe(listening, kind, name);
        if was_there {
            self.forget(kind, name, conn);
        }
        was_there
    }

    /// Ends so many subscriptions of a connection at most; how many it were.
    pub(crate) fn remove_some(
        &mut self,
        hub: &Hub<M>,
        listening: &Arc<Listening<M>>,
        conn: ConnId,
        most: usize,
    ) -> usize {
        let ended = hub.end_some(listening, most);
        for (kind, name) in &ended {
            self.forget(*kind, name, conn);
        }
        ended.len()
    }

    fn forget(&mut self, kind: Kind, name: &[u8], conn: ConnId) {
        if let Some(since) = self.names.get_mut(kind, name) {
            since.remove(&conn);
            if since.is_empty() {
                self.names.remove(kind, name);
            }
        }
    }

    /// Clients that may have subscribed to an event that was dropped for lack of room, since the
    /// last call.
    pub(crate) fn deceived(&self) -> Vec<ConnId> {
        if !self.inbox.as_ref().is_some_and(|inbox| inbox.was_lossy()) {
            return Vec::new();
        }
        let channels = self.names.channels(false);
        let channels = channels.filter(|(name, _)| name.starts_with(b"__key"));
        let listeners = channels.chain(self.names.patterns.iter());
        let mut deceived: Vec<ConnId> = listeners
            .flat_map(|(_, since)| since.keys().copied())
            .collect();
        deceived.sort_unstable();
        deceived
    }

    /// Delivers the messages in the inbox, up to the work of one turn; asks for another turn if
    /// there are more. `to` is called with each subscriber and its message.
    pub(crate) fn deliver(&self, mut to: impl FnMut(ConnId, &mut Frame<'_>)) {
        let Some(inbox) = &self.inbox else {
            return;
        };
        let (mut deliveries, mut steps) = (0, TURN_STEPS);
        loop {
            let partial = self.partial.take();
            let is_new = partial.is_none();
            let next = partial.or_else(|| {
                let (sequence, message) = inbox.pop()?;
                let cursor = Cursor::default();
                Some(Partial {
                    sequence,
                    message,
                    cursor,
                })
            });
            let Some(mut next) = next else { return };
            let (sequence, message) = (next.sequence, next.message.clone());
            let mut hand_out = |listeners: &Since, pattern: Option<&[u8]>| {
                let mut frame = Frame::new(&message, pattern);
                for (&conn, &since) in listeners {
                    if since < sequence {
                        to(conn, &mut frame);
                    }
                }
                deliveries += listeners.len();
            };
            if is_new && let Some(listeners) = self.names.named(message.sharded, &message.channel) {
                hand_out(listeners, None);
            }
            if !message.sharded {
                let patterns = &self.names.patterns;
                let is_all = patterns.match_some(
                    &message.channel,
                    &mut next.cursor,
                    &mut steps,
                    |pattern, listeners| hand_out(listeners, Some(pattern)),
                );
                if !is_all {
                    self.partial.replace(Some(next));
                    inbox.signal();
                    return;
                }
            }
            deliveries += 1;
            if deliveries >= TURN_DELIVERIES || steps == 0 {
                inbox.signal();
                return;
            }
        }
    }
}
