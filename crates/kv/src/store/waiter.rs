//! Clients that wait for a key: BLPOP and its like.
//!
//! A command that would wait says so with [`Ctx::block`](crate::commands::Ctx::block). The service
//! then makes a [`Waiter`] and calls [`Runner::wait`](super::Runner::wait) *before it releases the
//! runner's locks*; so no push is missed. The command that makes a key ready runs the waiting
//! commands, the longest waiting first, under its own locks, right after its own command (or
//! transaction), and hands each reply to the waiter's [`Deliver`].
//! [`Store::cancel`](super::Store::cancel) ends a wait early (timeout, disconnect, CLIENT UNBLOCK);
//! its answer says which was first.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::effect::NoRoom;
use super::value::Kind;
use crate::commands::Signature;
use crate::reply::{Proto, Reply};

/// The keys for which a blocking command waits.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// The keys of which any one ends the wait.
    pub keys: Vec<Vec<u8>>,
    /// The type that the key has to have.
    pub kind: Kind,
    /// How long; `None` for ever.
    pub timeout: Option<Duration>,
    /// The reply where a command may not wait, for example in a transaction. After a time-out the
    /// reply of every command is [`Nothing::Array`]: Redis makes this difference too.
    pub nothing: Nothing,
    /// The group for which the client reads a stream. The client is told when the group or the
    /// stream is removed. If one reader of a group finds nothing, the other readers of that group
    /// find nothing either.
    pub group: Option<Vec<u8>>,
    /// The arguments with which the command goes on, if they differ.
    pub instead: Option<Vec<Vec<u8>>>,
}

/// The reply of a command that found no element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// The null of a string.
    Bulk,
    /// The null of an array.
    Array,
}

impl Nothing {
    /// Writes the reply.
    pub fn write(self, reply: &mut Reply) {
        match self {
            Nothing::Bulk => reply.null(),
            Nothing::Array => reply.null_array(),
        }
    }
}

/// Where the reply of a command that waited goes: posts it to the connection.
pub trait Deliver: Send + Sync {
    /// Takes the reply, which waits until `ticket` has settled; an empty one was larger than the waiter's
    /// limit. Called under the locks of the keys: be quick, and do not call the store.
    fn deliver(&self, reply: Vec<u8>, ticket: u64);

    /// The wait is over, and the command has done nothing: there is no room for its effect just
    /// now. The waiter runs the command again a little later if it can; other waiters learn that.
    /// Called as [`deliver`](Deliver::deliver).
    fn try_again(&self) {
        self.deliver(format!("-{}\r\n", NoRoom::Busy).into(), 0);
    }

    /// Whether the command may not be run any more, asked right before it would be: then the wait
    /// is over, and the waiting client has been told. Called as [`deliver`](Deliver::deliver).
    fn refuses(&self, spec: &Signature, args: &[&[u8]]) -> bool {
        let _ = (spec, args);
        false
    }
}

/// A command that waits.
pub struct Waiter {
    pub(crate) blocked: Blocked,
    pub(crate) signature: &'static Signature,
    /// The command itself; only the code that runs it knows the type.
    pub(crate) command: &'static (dyn Any + Send + Sync),
    pub(crate) db: u16,
    pub(crate) args: Vec<Vec<u8>>,
    pub(crate) proto: Proto,
    pub(crate) reply_max: usize,
    /// The client that made the change and need not be notified of it; 0 is none.
    pub(crate) client: u64,
    pub(crate) to: Box<dyn Deliver>,
    /// Changes only under the lock of one of its keys.
    pub(crate) over: AtomicBool,
    /// Place among the waiters, given when the wait begins: the smaller, the longer.
    pub(crate) number: AtomicU64,
}

impl Waiter {
    /// For the command `args`, run in database `db`, that came back blocked.
    #[must_use]
    pub fn new<C>(
        mut blocked: Blocked,
        command: &'static C,
        db: u16,
        args: &[&[u8]],
        proto: Proto,
        to: Box<dyn Deliver>,
    ) -> Waiter
    where
        C: Deref<Target = Signature> + Any + Send + Sync,
    {
        let instead = blocked.instead.take();
        Waiter {
            args: instead.unwrap_or_else(|| args.iter().map(|arg| arg.to_vec()).collect()),
            blocked,
            signature: command,
            command,
            db,
            proto,
            reply_max: usize::MAX,
            client: 0,
            to,
            over: AtomicBool::new(false),
            number: AtomicU64::new(0),
        }
    }

    /// Sets a limit of the reply; bytes. There is no limit by default.
    #[must_use]
    pub fn limited(self, reply_max: usize) -> Waiter {
        Waiter { reply_max, ..self }
    }

    /// Sets the client that need not be told of what the command changes; none by default.
    #[must_use]
    pub fn of_client(self, client: u64) -> Waiter {
        Waiter { client, ..self }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    fn place(&self) -> (Kind, u64) {
        (self.blocked.kind, self.number.load(Relaxed))
    }
}

/// The waiters of one key. A hundred thousand may wait, so none that comes, goes or is served is
/// looked for among the others.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    by_kind: BTreeMap<(Kind, u64), Arc<Waiter>>,
    /// How many of the waiters are told when the key is removed.
    grouped: usize,
}

impl Queue {
    /// Adds one, behind waiters with smaller numbers; once, however often it names the key.
    pub(crate) fn add(&mut self, waiter: &Arc<Waiter>) {
        let before = self.by_kind.insert(waiter.place(), waiter.clone());
        self.grouped += usize::from(before.is_none() && waiter.blocked.group.is_some());
    }

    /// Removes a waiter, if it is in the list.
    pub(crate) fn remove(&mut self, waiter: &Waiter) {
        let before = self.by_kind.remove(&waiter.place());
        self.grouped -= usize::from(before.is_some_and(|gone| gone.blocked.group.is_some()));
    }

    /// Whether any waiter is told when the key is removed.
    pub(crate) fn heeds_absence(&self) -> bool {
        self.grouped > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    /// Waiters for a value of this type, the longest waiting first.
    pub(crate) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Arc<Waiter>> {
        let these = self.by_kind.range((kind, 0)..=(kind, u64::MAX));
        these.map(|(_, waiter)| waiter)
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter")
            .field("blocked", &self.blocked)
            .finish_non_exhaustive()
    }
}
