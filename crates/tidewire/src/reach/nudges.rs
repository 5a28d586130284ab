//! Telling a connection that something it waits for has moved on, whatever its messages are: many become one, so that no queue
//! can be full. A name and a key of the connection's own are all that is kept.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use crate::reach::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::Waker;

/// Connections of one service on one loop that are to be told something.
pub(crate) struct Nudges {
    due: Mutex<Due>,
    /// Whether `due` may hold something: spares the loop the lock.
    filled: AtomicBool,
    waker: Arc<Waker>,
}

/// A channel that keeps places for connections which are to be told.
pub(crate) trait Promises: Send + Sync {
    /// The connection with this ticket cannot be told any more: the place is another's.
    fn decline(&self, ticket: u64);
}

/// A place that was promised.
pub(crate) struct Promised {
    pub(crate) by: Weak<dyn Promises>,
    pub(crate) ticket: u64,
}

/// The notifications that a loop takes at once.
#[derive(Default)]
pub(crate) struct Due {
    /// Names of connections, as numbers, each with a key of its own, and the places that are kept for it until it is told.
    pub(crate) names: BTreeMap<(u64, u64), Vec<Promised>>,
    /// Sends of these connections that found no room.
    pub(crate) delayed: u64,
    /// The loop has ended.
    is_over: bool,
}

impl Nudges {
    pub(crate) fn new(waker: Arc<Waker>) -> Nudges {
        Nudges {
            due: Mutex::new(Due::default()),
            filled: AtomicBool::new(false),
            waker,
        }
    }

    /// The notifications since the last call, if there are any.
    pub(crate) fn take(&self) -> Option<Due> {
        let any = self.filled.load(SeqCst) && self.filled.swap(false, SeqCst);
        any.then(|| std::mem::take(&mut *lock(&self.due)))
    }

    /// The loop has ended: returns the remaining nudges, and takes no more.
    pub(crate) fn close(&self) -> Due {
        let over = Due {
            is_over: true,
            ..Due::default()
        };
        std::mem::replace(&mut *lock(&self.due), over)
    }
}

/// A connection, and the key with which it is to be notified.
#[derive(Clone)]
pub(crate) struct Nudge {
    at: Arc<Nudges>,
    name: u64,
    key: u64,
}

impl Nudge {
    pub(crate) fn new(at: Arc<Nudges>, name: u64, key: u64) -> Nudge {
        Nudge { at, name, key }
    }

    /// Has the connection notified once, however often this is called before the notification. False if its
    /// loop has ended.
    pub(crate) fn give(&self, promised: Option<Promised>) -> bool {
        {
            let mut due = lock(&self.at.due);
            if due.is_over {
                return false;
            }
            due.names
                .entry((self.name, self.key))
                .or_default()
                .extend(promised);
        }
        self.at.filled.store(true, SeqCst);
        self.at.waker.wake();
        true
    }

    /// A send of this connection has found no room. The loop of the connection counts the event
    /// when the loop is next awake.
    pub(crate) fn delayed(&self) {
        lock(&self.at.due).delayed += 1;
        self.at.filled.store(true, SeqCst);
        self.at.waker.wake();
    }
}

/// Places of connections that cannot be told go to others.
pub(crate) fn decline(all: Vec<Promised>) {
    for Promised { by, ticket } in all {
        if let Some(by) = by.upgrade() {
            by.decline(ticket);
        }
    }
}
