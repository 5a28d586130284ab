//! What one connection is, between its commands.

use std::collections::BTreeSet;

use super::multi::Transaction;
use super::pubsub::Kind;
use crate::reply::Proto;

/// The state of one connection. What few connections have is boxed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) proto: Proto,
    pub(crate) db: u16,
    pub(crate) authenticated: bool,
    /// The connection ends when the reply to this command is written.
    pub(crate) closing: bool,
    pub(crate) replies: Replies,
    pub(crate) no_touch: bool,
    /// The largest ticket that must have settled before this client hears more.
    pub(crate) barrier: u64,
    /// Of the last unit that it has written.
    pub(crate) written: u64,
    /// Since when it tries what the log was too busy for, or waits for a sync; milliseconds of the loops'
    /// clock, 0 for not.
    pub(crate) waits_since_ms: u64,
    /// The snapshot that it waits for.
    pub(crate) waits_for_snapshot: Option<u64>,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) subscriptions: Option<Box<Subscriptions>>,
}

/// Whether the client wants to hear replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// Not the next one: this command is the one that said so.
    SkipNext,
    /// Not this one.
    Skip,
}

impl Session {
    pub(crate) fn new(authenticated: bool) -> Session {
        Session {
            proto: Proto::Resp2,
            db: 0,
            authenticated,
            closing: false,
            replies: Replies::On,
            no_touch: false,
            barrier: 0,
            written: 0,
            waits_since_ms: 0,
            waits_for_snapshot: None,
            transaction: None,
            subscriptions: None,
        }
    }

    /// What a script that runs elsewhere knows of it.
    pub(crate) fn of_script(&self) -> Session {
        Session {
            proto: self.proto,
            db: self.db,
            no_touch: self.no_touch,
            barrier: self.barrier,
            ..Session::new(self.authenticated)
        }
    }

    /// Whether nothing has to be looked at before a command is run.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.authenticated && self.transaction.is_none() && self.subscriptions.is_none()
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscriptions.is_some()
    }

    /// Whether the reply to the command that has just run is not to be heard; asked once for each.
    pub(crate) fn is_unheard(&mut self) -> bool {
        let next = match self.replies {
            Replies::On => return false,
            Replies::Off => Replies::Off,
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
        };
        self.replies = next;
        true
    }

    /// Whether commands are queued rather than run.
    pub(crate) fn is_queuing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|t| t.is_open())
    }
}

/// What a connection listens to. Never empty.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    names: [BTreeSet<Box<[u8]>>; 3],
}

impl Subscriptions {
    pub(crate) fn of(&mut self, kind: Kind) -> &mut BTreeSet<Box<[u8]>> {
        &mut self.names[kind as usize]
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.names[kind as usize].len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.iter().all(BTreeSet::is_empty)
    }
}
