//! Connections that have gone, and what they are still subscribed to.
//!
//! A client may leave a million subscriptions behind. To end them takes seconds, in which the others
//! on its loop would wait; so they end some in each turn. Until then they are counted, by PUBLISH too,
//! and nobody is sent anything for them.

use std::collections::{BTreeSet, VecDeque, btree_set};
use std::sync::Arc;

use tidewire::ConnId;

use super::hub::Hub;
use super::names::Kind;
use super::subscribers::Subscribers;

/// Subscriptions that end in one turn of a loop.
const TURN: usize = 1000;

/// Subscriptions that are still to be ended, of connections that have gone.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    names: VecDeque<(ConnId, Kind, Names)>,
}

/// Names of one kind, those left.
type Names = btree_set::IntoIter<Arc<[u8]>>;

impl Leaving {
    /// Takes the subscriptions of a connection that has gone.
    pub(crate) fn add(&mut self, conn: ConnId, kind: Kind, names: BTreeSet<Arc<[u8]>>) {
        if !names.is_empty() {
            self.names.push_back((conn, kind, names.into_iter()));
        }
    }

    /// Ends a turn's worth of subscriptions; whether there are more.
    pub(crate) fn turn<M>(&mut self, subscribers: &mut Subscribers<M>, hub: &Hub<M>) -> bool {
        let mut left = TURN;
        while left > 0
            && let Some((conn, kind, names)) = self.names.front_mut()
        {
            match names.next() {
                Some(name) => subscribers.remove(hub, *kind, &name, *conn),
                None => drop(self.names.pop_front()),
            }
            left -= 1;
        }
        !self.names.is_empty()
    }
}
