//! The state that all connections of one loop share.

use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire::{ConnId, Instant, LoopHandle};

use super::durable::Waiting;
use super::log_keys::Followers;
use super::message::Message;
use super::pubsub::{Leaving, Subscribers};
use super::script::Interpreter;
use super::shared::{Here, Shared};
use super::stats::LoopStats;
use super::table::Entry;
use crate::reply::{Proto, Reply};

/// State of one loop.
pub struct RespLocal {
    pub(crate) shared: Here,
    pub(crate) at: LoopHandle<Message>,
    pub(crate) stats: Arc<LoopStats>,
    pub(crate) subscribers: Subscribers<Message>,
    /// The subscriptions of connections that have gone.
    pub(crate) leaving: Leaving<Message>,
    pub(crate) scratch: Scratch,
    /// All commands of this batch are timed.
    pub(crate) times_all: bool,
    batches: u32,
    /// When a line was last logged about a client that was cut.
    warned: Option<Instant>,
    /// The loop's state for the log, if there is one.
    pub(crate) waiting: Option<Waiting<Message>>,
    /// The messages that the running transaction has published, until the transaction is committed.
    pub(crate) published: Vec<Unpublished>,
    /// DEBUG SLEEP was just run.
    pub(crate) sleep: Option<Duration>,
    /// Connections that wait for the log of messages.
    pub(crate) followers: Followers,
    /// The command that was just run took long: its connection may have had its share of the turn.
    pub(crate) spent: bool,
    /// The loop's name among the loops that are told when a script ends.
    pub(crate) name: u64,
    /// Connections whose command waits for keys of a script.
    pub(crate) parked: BTreeSet<ConnId>,
    /// Whether the command that could not run waits for keys that a script keeps.
    pub(crate) parks: bool,
    /// Connections that had much input or output under way when they were last looked at.
    pub(crate) busy: Vec<ConnId>,
    /// How often the allocator is still to be asked for memory that they have freed.
    pub(super) giving_back: u8,
    /// The interpreter of scripts, once a script has run.
    pub(crate) interpreter: Option<Box<Interpreter>>,
}

impl RespLocal {
    pub(crate) fn new(shared: Arc<Shared>, at: LoopHandle<Message>) -> RespLocal {
        let mut local = RespLocal {
            name: shared.scripts.add_loop(at.clone()),
            stats: shared.stats.on_loop(),
            waiting: None,
            published: Vec::new(),
            shared: Rc::new(shared),
            at,
            subscribers: Subscribers::default(),
            leaving: Leaving::default(),
            scratch: Scratch::default(),
            times_all: false,
            batches: 0,
            warned: None,
            sleep: None,
            followers: Followers::default(),
            spent: false,
            parked: BTreeSet::new(),
            parks: false,
            busy: Vec::new(),
            giving_back: 0,
            interpreter: None,
        };
        local.find_log();
        local
    }

    /// Waits for the log from now on, if there is one: it comes when the store has been recovered.
    /// To be called before any client on this loop is served keys, or hears of them.
    pub(crate) fn find_log(&mut self) {
        if self.waiting.is_none()
            && let Some(durable) = self.shared.durable.get()
        {
            self.waiting = Some(durable.on_loop(self.at.clone()));
        }
    }
}

/// A message of a transaction that is not committed yet.
pub(crate) struct Unpublished {
    pub(crate) sharded: bool,
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// How often, in a row, the allocator is asked for memory that connections have freed: some wait for a second with it.
pub(crate) const GIVING_BACK: u8 = 15;
/// One of so many batches has all its commands timed.
const TIMED_ONE_IN: u32 = 64;

impl RespLocal {
    /// Whether to log a line about a client that was cut: one a second on each loop.
    pub(crate) fn may_warn(&mut self, now: Instant) -> bool {
        let may = self
            .warned
            .is_none_or(|last| now - last >= Duration::from_secs(1));
        if may {
            self.warned = Some(now);
        }
        may
    }

    /// A connection has freed much: the allocator is asked to give it to the system.
    pub(crate) fn gives_back(&mut self) {
        self.giving_back = GIVING_BACK;
        self.at.signal();
    }

    /// Whether connections are to be looked at again, or the allocator is to be asked again.
    pub(crate) fn is_busy(&self) -> bool {
        self.giving_back > 0 || !self.busy.is_empty()
    }

    /// Evicts the largest clients if all hold more than they may.
    #[cold]
    pub(crate) fn evict_clients(&mut self, now: Instant) {
        let evicted = self.shared.evict_clients();
        if evicted == 0 {
            return;
        }
        self.stats.evicted_clients.add(evicted);
        if self.may_warn(now) {
            tracing::warn!(
                evicted,
                limit = self.shared.clients_limit(),
                "clients hold more memory than maxmemory-clients: closing the largest",
            );
        }
    }

    /// Counts and logs a command that was refused because more would stay than its client may have held.
    #[cold]
    pub(crate) fn note_refused(&mut self, limit: usize, link: &tidewire::Link<'_>) {
        self.stats.refused_holding.add(1);
        if self.may_warn(link.now()) {
            tracing::warn!(
                peer = %link.peer().client(), limit,
                "a client asks the server to hold more than the query buffer limit: refusing its command",
            );
        }
    }

    /// Has this loop woken when the log moves from now on.
    #[inline]
    pub(crate) fn arm(&self) {
        if let Some(waiting) = &self.waiting {
            waiting.arm();
        }
    }

    /// Decides whether to time the commands of the batch to come.
    #[inline]
    pub(crate) fn begin_batch(&mut self) {
        self.arm();
        self.batches = self.batches.wrapping_add(1);
        self.times_all = self.batches.is_multiple_of(TIMED_ONE_IN)
            || self.shared.config.slow_us.load(Relaxed) == 0
            || self.shared.config.spikes_ms.load(Relaxed) > 0;
    }
}

impl RespLocal {
    /// Ends some subscriptions of connections that have gone, and asks for another turn if there are
    /// more.
    pub(crate) fn end_subscriptions(&mut self) {
        if self.leaving.turn(&mut self.subscribers, &self.shared.hub) {
            self.at.signal();
        }
    }
}

impl fmt::Debug for RespLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RespLocal").finish_non_exhaustive()
    }
}

/// Where a batch of commands and its replies are put together; empty between callbacks, so that
/// only the memory is kept.
pub(crate) struct Scratch {
    pub(crate) reply: Reply,
    args: Vec<&'static [u8]>,
    pub(crate) commands: Vec<Command>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch {
            reply: Reply::new(Proto::Resp2),
            args: Vec::new(),
            commands: Vec::new(),
        }
    }
}

/// A parsed command: where its arguments end among the batch's, and its bytes in the input.
#[derive(Clone, Copy)]
pub(crate) struct Command {
    /// The table's entry for this name.
    pub(crate) entry: Option<&'static Entry>,
    pub(crate) args_end: usize,
    pub(crate) input_end: usize,
}

/// Arguments that a batch may have for its memory to be kept.
const KEPT_ARGS: usize = 16 << 10;
/// Bytes that are kept for replies.
pub(crate) const KEPT_REPLY: usize = 64 << 10;

impl Scratch {
    /// The memory for arguments.
    pub(crate) fn take_args<'a>(&mut self) -> Vec<&'a [u8]> {
        std::mem::take(&mut self.args)
    }

    /// Keeps the memory for the next batch.
    pub(crate) fn keep(&mut self, mut args: Vec<&[u8]>, mut commands: Vec<Command>) {
        if args.capacity() <= KEPT_ARGS {
            args.clear();
            // In place: an empty vector has nothing that could be of another lifetime.
            self.args = args.into_iter().map(|_| &[][..]).collect();
            commands.clear();
            self.commands = commands;
        }
    }
}
