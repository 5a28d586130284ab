//! The record of the services under exploration, and the tasks of their workers.

use std::collections::HashMap;
use std::sync::Arc;

use crate::reach::mailbox::{Handle, Permit};
use crate::reach::sync::{Mutex, MutexGuard, lock};
use crate::sim::explore::role::{Message, Role};
use crate::vocabulary::closed::Closed;
use crate::vocabulary::endpoint::Endpoint;

/// One connection from its protocol's point of view.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) role: Option<Role>,
    pub(super) opened: u32,
    pub(super) closed: Vec<Closed>,
    /// Consumed bytes of the connection's input.
    pub(super) consumed: usize,
    /// Bytes left unconsumed when the connection's peer had finished.
    pub(super) unread: usize,
    /// Messages for the connection that the mailbox took.
    pub(super) posted: u32,
    /// Messages that the connection was given.
    pub(super) given: u32,
    /// Whether a stop has told the connection to drain.
    pub(super) drained: bool,
}

impl Seen {
    pub(super) fn is_open(&self) -> bool {
        self.opened > 0 && self.closed.is_empty()
    }

    /// Whether the connection pauses until its peer has gone, or longer.
    pub(super) fn waits(&self) -> bool {
        matches!(self.role, Some(Role::Wait | Role::Deaf)) && self.is_open()
    }
}

/// Work that another thread does for a connection.
pub(super) enum Job {
    Post(Handle<Message>, Message),
    Reserved(Permit<Message>, Message),
}

#[derive(Default)]
pub(super) struct Notes {
    /// Accepted connections, by the addresses of their peers.
    pub(super) accepted: HashMap<Endpoint, Seen>,
    /// Connections dialled, by token.
    pub(super) dialled: HashMap<u64, Dialled>,
    pub(super) jobs: Vec<(Endpoint, Job)>,
    /// Violated contracts.
    pub(super) wrongs: Vec<String>,
}

/// A connection that a service has dialled: what became of it.
#[derive(Debug, Default)]
pub(super) struct Dialled {
    pub(super) opened: u32,
    pub(super) closed: Vec<Closed>,
    pub(super) failed: u32,
    /// The peer's echo came back whole, and then its end.
    pub(super) complete: bool,
}

impl Dialled {
    pub(super) fn has_one_outcome(&self) -> bool {
        self.failed as usize + self.closed.len() == 1
    }
}

impl Notes {
    /// Whether nothing is waited for.
    pub(super) fn is_at_rest(&self) -> bool {
        self.jobs.is_empty() && self.dialled.values().all(Dialled::has_one_outcome)
    }
}

#[derive(Clone, Default)]
pub(super) struct Record(Arc<Mutex<Notes>>);

impl Record {
    pub(super) fn lock(&self) -> MutexGuard<'_, Notes> {
        lock(&self.0)
    }

    pub(super) fn wrong(&self, what: String) {
        self.lock().wrongs.push(what);
    }

    pub(super) fn seen<R>(&self, of: &Endpoint, f: impl FnOnce(&mut Seen) -> R) -> R {
        f(self.lock().accepted.entry(of.clone()).or_default())
    }

    pub(super) fn dialled<R>(&self, token: u64, f: impl FnOnce(&mut Dialled) -> R) -> R {
        f(self.lock().dialled.entry(token).or_default())
    }
}
