//! The state of one connection between its commands.

use std::sync::Arc;

use super::acl::{Account, Rights};
use super::following::Following;
use super::message::Message;
use super::monitors::Monitor;
use super::pubsub::{Audience, Listening};
use super::replication::Waits;
use super::shared::Shared;
use super::transaction::Transaction;
use crate::reply::Proto;
use crate::store::Tracker;

/// The state of one connection. State that few connections have is boxed.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) proto: Proto,
    pub(crate) db: u16,
    authenticated: bool,
    /// The user, and its rights as of `seen`.
    account: Arc<Account>,
    rights: Arc<Rights>,
    /// See [`Attention`](super::attention::Attention).
    seen: u64,
    /// The client has logged in, may do everything, and is told of nothing.
    free: bool,
    /// The client wants to be told of changes.
    tracking: Option<Box<Following>>,
    /// The connection was accepted while the store was being recovered, and that was not over at
    /// its last command.
    pub(crate) loading: bool,
    /// The server cannot prove that the store is its own, as of when the batch that runs was received.
    pub(crate) unproven: bool,
    /// The connection ends when the reply to this command is written.
    pub(crate) closing: bool,
    pub(crate) replies: Replies,
    pub(crate) no_touch: bool,
    /// The largest ticket that must have settled before this client hears more.
    pub(crate) barrier: u64,
    /// Ticket of the last unit that the connection has written.
    pub(crate) written: u64,
    /// Since when the connection retries a change for which the log was too busy, or waits for a sync;
    /// milliseconds of the loops' clock, 0 for not.
    pub(crate) waits_since_ms: u64,
    /// How many times the connection has waited, in any command; the number names the wait.
    pub(crate) waits: u64,
    /// CLIENT UNBLOCK has ended its wait for replicas or a sync: whether with an error.
    pub(crate) unblocked: Option<bool>,
    /// The snapshot for which the connection waits.
    pub(crate) waits_for_snapshot: Option<u64>,
    /// The promotion for which the connection waits.
    pub(crate) waits_for_takeover: Option<Waits>,
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) listening: Option<Arc<Listening<Message>>>,
    /// The subscribers of the message that the client is about to publish, as far as they were
    /// found.
    pub(crate) audience: Option<Box<Audience<Message>>>,
    /// The client is shown all commands.
    pub(crate) monitor: Option<Arc<Monitor>>,
    /// For a script that runs beside the loops: the tracker of the client that must be notified
    /// when a key changes that the script has read. The client need not be notified of the script's
    /// own changes.
    pub(crate) reads_for: Option<Arc<Tracker>>,
    pub(crate) changes_as: u64,
}

/// Whether the client wants to hear replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replies {
    On,
    Off,
    /// The next command is not tracked: the present one was CLIENT CACHING.
    SkipNext,
    /// This command is not tracked.
    Skip,
}

impl Session {
    /// A session of the user `default`. If that user has a password, the client has to
    /// authenticate, unless it is trusted.
    pub(crate) fn new(shared: &Shared, trusted: bool) -> Session {
        let seen = shared.attention.now();
        let account = shared.acl.default_account().clone();
        let rights = account.rights();
        Session::of(account, rights, seen, trusted)
    }

    fn of(account: Arc<Account>, rights: Arc<Rights>, seen: u64, authenticated: bool) -> Session {
        Session {
            proto: Proto::Resp2,
            db: 0,
            authenticated,
            free: authenticated && rights.is_unrestricted(),
            account,
            rights,
            seen,
            tracking: None,
            loading: false,
            unproven: false,
            closing: false,
            replies: Replies::On,
            no_touch: false,
            barrier: 0,
            written: 0,
            waits_since_ms: 0,
            waits: 0,
            unblocked: None,
            waits_for_snapshot: None,
            waits_for_takeover: None,
            transaction: None,
            listening: None,
            audience: None,
            monitor: None,
            reads_for: None,
            changes_as: 0,
        }
    }

    /// A copy of the session for a script that runs elsewhere.
    pub(crate) fn of_script(&self) -> Session {
        Session {
            proto: self.proto,
            db: self.db,
            no_touch: self.no_touch,
            barrier: self.barrier,
            reads_for: self.tracker(),
            changes_as: self.changes_as,
            ..Session::of(
                self.account.clone(),
                self.rights.clone(),
                self.seen,
                self.authenticated,
            )
        }
    }

    /// Whether nothing has to be looked at before a command is run.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.free
            && !self.loading
            && !self.unproven
            && self.transaction.is_none()
            && self.listening.is_none()
    }

    /// The number of the last change to all connections that this session has handled.
    #[inline]
    pub(crate) fn seen(&self) -> u64 {
        self.seen
    }

    /// Whether the connection may run commands.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.authenticated
    }

    /// Whether the user may do everything, and no client monitors commands.
    pub(crate) fn is_free(&self) -> bool {
        self.free
    }

    /// The user, or the one that it will be when it has logged in.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub(crate) fn rights(&self) -> &Arc<Rights> {
        &self.rights
    }

    /// Makes the connection one of this user from now on.
    pub(crate) fn become_user(&mut self, account: Arc<Account>, shared: &Shared) {
        self.authenticated = true;
        self.account = account;
        self.look_up(shared);
    }

    /// Notes that the connection need not log in.
    pub(crate) fn trust(&mut self) {
        self.authenticated = true;
        self.settle();
    }

    /// Brings the rights up to date, if any have changed.
    pub(crate) fn heed(&mut self, shared: &Shared) {
        if shared.attention.now() != self.seen {
            self.look_up(shared);
        }
    }

    fn look_up(&mut self, shared: &Shared) {
        // In this order: what changes in between is seen the next time.
        self.seen = shared.attention.now();
        self.rights = self.account.rights();
        self.settle();
    }

    /// Notes whether the connection has to look up before its commands.
    fn settle(&mut self) {
        let may_do_all = self.authenticated && self.rights.is_unrestricted();
        self.free = may_do_all && self.tracking.is_none();
    }

    pub(crate) fn tracking(&self) -> Option<&Following> {
        self.tracking.as_deref()
    }

    pub(crate) fn tracking_mut(&mut self) -> Option<&mut Following> {
        self.tracking.as_deref_mut()
    }

    /// Sets whether the client wants notifications of changes; returns the former setting.
    pub(crate) fn set_tracking(
        &mut self,
        following: Option<Box<Following>>,
    ) -> Option<Box<Following>> {
        let before = std::mem::replace(&mut self.tracking, following);
        self.settle();
        before
    }

    pub(crate) fn is_subscribed(&self) -> bool {
        self.listening.is_some()
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
