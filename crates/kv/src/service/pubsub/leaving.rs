//! Connections that have gone, and what stands of their subscriptions in the table of their loop.
//!
//! A client may leave a million subscriptions behind. Removing them takes seconds, in which other clients of its
//! loop would wait; so some are removed in each turn. Subscriptions that wait for their removal do not count
//! ([`Hub::depart`]), and nothing is sent for them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use tidewire::ConnId;

use super::hub::{Hub, TURN};
use super::listening::Listening;
use super::subscribers::Subscribers;

/// Subscriptions that are still to be removed, of connections that have gone.
pub(crate) struct Leaving<M>(VecDeque<(ConnId, Arc<Listening<M>>)>);

impl<M> Default for Leaving<M> {
    fn default() -> Leaving<M> {
        Leaving(VecDeque::new())
    }
}

impl<M> fmt::Debug for Leaving<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leaving({})", self.0.len())
    }
}

impl<M> Leaving<M> {
    /// Takes the subscriptions of a connection that has gone.
    pub(crate) fn add(&mut self, conn: ConnId, listening: Arc<Listening<M>>) {
        self.0.push_back((conn, listening));
    }

    /// Removes a turn's worth of subscriptions; whether there are more.
    pub(crate) fn turn(&mut self, subscribers: &mut Subscribers<M>, hub: &Hub<M>) -> bool {
        let mut left = TURN;
        while left > 0
            && let Some((conn, listening)) = self.0.front()
        {
            let removed = subscribers.remove_some(hub, listening, *conn, left);
            left -= removed.clamp(1, left);
            if listening.is_empty() {
                self.0.pop_front();
            }
        }
        !self.0.is_empty()
    }
}
