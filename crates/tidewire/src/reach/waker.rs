//! Waking a loop from another thread: many reasons, one system call, and none while it is awake.
//!
//! `pending` says that there is something to look at, `sleeping` that the loop may be blocked. A
//! loop sets `sleeping` before it looks at `pending` a last time; a waker sets `pending` before it
//! looks at `sleeping`. Both change `pending` in one atomic step, although the loop leaves its value
//! as it is. So one of the two is second, and sees all that the first has done: either the loop sees
//! that something is pending, or the waker sees that the loop sleeps. No wake-up is lost.
//!
//! A waker outlives its loop, because handles are kept. The parts that the loop owns through its
//! waker (the wake-up descriptor, the waiting commands) are given up by [`Waker::end`].

use std::sync::Arc;

use crate::admission::door::Permit;
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};
use crate::reach::sync::{Mutex, lock};
use crate::vocabulary::answer::Answer;
use crate::vocabulary::dial::{Dial, NotDialled};
use crate::vocabulary::endpoint::Endpoint;

/// Commands that may wait for one loop, unless [`Builder::inbox`](crate::Builder::inbox) says
/// otherwise.
pub(crate) const INBOX: usize = 16 << 10;

/// An order to a loop, from the builder, the acceptor or a handle.
#[derive(Debug)]
pub(crate) enum Command {
    /// Take over an accepted socket.
    Adopt {
        socket: Descriptor,
        listener: u32,
        service: u16,
        peer: Endpoint,
        permit: Permit,
    },
    /// Let in a connection that another process has accepted at the listener of this number.
    Accept { socket: Descriptor, listener: u32 },
    /// Connect for the service of this index.
    Dial { service: u16, dial: Dial },
    /// Take in clients that wait to be accepted.
    Look,
    /// What a resolver says, for a dial that waits for it.
    Answered(Answer),
}

impl Command {
    /// The service that the command is for.
    pub(crate) fn service(&self) -> u16 {
        match self {
            Command::Adopt { service, .. } | Command::Dial { service, .. } => *service,
            Command::Look | Command::Accept { .. } | Command::Answered(_) => {
                unreachable!("no thread is started for what an acceptor does itself")
            }
        }
    }
}

/// Why a command was not taken; the command comes back.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// As many commands wait as may wait.
    NoRoom(Box<Command>),
    /// The loop has ended.
    Ended(Box<Command>),
}

impl Unsent {
    /// The error for a dial that was not made.
    pub(crate) fn into_not_dialled(self) -> NotDialled {
        let dial = |command: Box<Command>| match *command {
            Command::Dial { dial, .. } => Box::new(dial),
            _ => {
                unreachable!("what was sent comes back")
            }
        };
        match self {
            Unsent::NoRoom(command) => NotDialled::NoRoom(dial(command)),
            Unsent::Ended(command) => NotDialled::Ended(dial(command)),
        }
    }
}

/// How far a stop has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stop {
    No,
    /// Finish the pending work, within the deadline.
    Graceful,
    /// End at once.
    Now,
}

pub(crate) struct Waker {
    /// The loop's number.
    number: u32,
    pending: AtomicBool,
    sleeping: AtomicBool,
    stop: AtomicU8,
    /// Made by the loop when it first needs it, gone when the loop ends.
    fd: Mutex<Option<Arc<Descriptor>>>,
    inbox: Mutex<Inbox>,
    inbox_max: usize,
    /// Whether `inbox` may hold something: spares the loop the lock.
    filled: AtomicBool,
    /// The kernel lets the loop take no client in for now: accepted sockets go elsewhere, or wait.
    takes_nobody: AtomicBool,
    /// Dials refused because the inbox was full, and not yet counted by the loop.
    refused: AtomicU64,
    /// Connections that the loop carries, or is being given: what placement goes by. Changed when they come
    /// and go, and by nothing in between.
    carried: AtomicUsize,
}

enum Inbox {
    Open(Vec<Command>),
    /// The loop has ended. A thread that carried one connection leaves what comes later to its
    /// acceptor.
    Ended {
        heir: Option<Arc<Waker>>,
    },
}

impl Waker {
    pub(crate) fn new() -> Waker {
        Waker::of_loop(0)
    }

    /// At most `inbox_max` commands may wait.
    pub(crate) fn bounded(self, inbox_max: usize) -> Waker {
        Waker { inbox_max, ..self }
    }

    pub(crate) fn of_loop(number: u32) -> Waker {
        Waker {
            number,
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            stop: AtomicU8::new(Stop::No as u8),
            fd: Mutex::new(None),
            inbox: Mutex::new(Inbox::Open(Vec::new())),
            inbox_max: INBOX,
            filled: AtomicBool::new(false),
            takes_nobody: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            carried: AtomicUsize::new(0),
        }
    }

    pub(crate) fn carries_more(&self) {
        self.carried.fetch_add(1, Relaxed);
    }

    pub(crate) fn carries_less(&self) {
        self.carried.fetch_sub(1, Relaxed);
    }

    /// Connections that the loop carries or is being given.
    pub(crate) fn carried(&self) -> usize {
        self.carried.load(Relaxed)
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The descriptor a blocked loop waits on, made on first use; called by the loop alone.
    pub(crate) fn descriptor(&self, sys: &impl Sys) -> std::io::Result<Arc<Descriptor>> {
        let mut fd = lock(&self.fd);
        if let Some(fd) = &*fd {
            return Ok(fd.clone());
        }
        Ok(fd.insert(Arc::new(sys.event()?)).clone())
    }

    /// Has the loop look at its mailboxes and its inbox soon.
    pub(crate) fn wake(&self) {
        if !self.pending.swap(true, SeqCst)
            && self.sleeping.load(SeqCst)
            && let Some(fd) = &*lock(&self.fd)
        {
            // The descriptor's counter cannot overflow: the loop empties it each time, and
            // `pending` admits one writer until then.
            fd.notify();
        }
    }

    /// Announces that the loop may block; false if there is something to look at first.
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Release);
        // Not a load, which could come before the store of a waker that came first.
        if self.pending.fetch_or(false, SeqCst) && !mistaken(Mistake::WakeUpLost) {
            self.awake();
            return false;
        }
        true
    }

    /// The loop is awake again.
    pub(crate) fn awake(&self) {
        // A waker that sees the new value late writes once more than necessary.
        self.sleeping.store(false, Release);
    }

    /// Whether the loop has announced that it may block.
    pub(crate) fn is_asleep(&self) -> bool {
        self.sleeping.load(Acquire)
    }

    /// Whether there was something to look at since the last call.
    #[inline]
    pub(crate) fn take_pending(&self) -> bool {
        self.pending.load(SeqCst) && self.pending.swap(false, SeqCst)
    }

    /// Whether there is something to look at.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(SeqCst)
    }

    /// Resets the descriptor after it became readable.
    pub(crate) fn clear_descriptor(&self) {
        if let Some(fd) = &*lock(&self.fd) {
            fd.clear();
        }
    }

    /// Whether there is no room for accepted sockets, however few commands wait.
    pub(crate) fn take_nobody(&self, on: bool) {
        self.takes_nobody.store(on, SeqCst);
    }

    /// Leaves a command for the loop, or for the heir of one that has ended.
    pub(crate) fn send(&self, command: Command) -> Result<(), Unsent> {
        let adopts = matches!(command, Command::Adopt { .. });
        let heir = match &mut *lock(&self.inbox) {
            Inbox::Open(_) if adopts && self.takes_nobody.load(SeqCst) => {
                return Err(Unsent::NoRoom(Box::new(command)));
            }
            Inbox::Open(commands) if commands.len() >= self.inbox_max => {
                self.refused.fetch_add(u64::from(!adopts), SeqCst);
                return Err(Unsent::NoRoom(Box::new(command)));
            }
            Inbox::Open(commands) => {
                if adopts {
                    self.carries_more();
                }
                commands.push(command);
                None
            }
            Inbox::Ended { heir: None } => return Err(Unsent::Ended(Box::new(command))),
            Inbox::Ended { heir: Some(heir) } => Some((heir.clone(), command)),
        };
        if let Some((heir, command)) = heir {
            return heir.send(command);
        }
        self.filled.store(true, SeqCst);
        self.wake();
        Ok(())
    }

    /// Leaves an answer for a dial of the loop, which has room for it: each was asked for by a dial, which are counted. If
    /// the loop has ended, so have its dials.
    pub(crate) fn answer(&self, answer: Answer) {
        match &mut *lock(&self.inbox) {
            Inbox::Open(commands) => commands.push(Command::Answered(answer)),
            Inbox::Ended { .. } => return,
        }
        self.filled.store(true, SeqCst);
        self.wake();
    }

    /// Whether commands may wait.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.filled.load(SeqCst)
    }

    /// Takes the commands that wait.
    pub(crate) fn commands(&self) -> Vec<Command> {
        if self.filled.load(SeqCst)
            && self.filled.swap(false, SeqCst)
            && let Inbox::Open(commands) = &mut *lock(&self.inbox)
        {
            return std::mem::take(commands);
        }
        Vec::new()
    }

    /// Commands refused since the last call because too many waited.
    pub(crate) fn take_refused(&self) -> u64 {
        match self.refused.load(SeqCst) {
            0 => 0,
            _ => self.refused.swap(0, SeqCst),
        }
    }

    /// The loop has ended: gives up its descriptor and returns the commands that were not taken.
    /// Commands that are sent from now on go to `heir`, or come back.
    pub(crate) fn end(&self, heir: Option<Arc<Waker>>) -> Vec<Command> {
        let before = std::mem::replace(&mut *lock(&self.inbox), Inbox::Ended { heir });
        *lock(&self.fd) = None;
        match before {
            Inbox::Open(commands) => commands,
            Inbox::Ended { .. } => Vec::new(),
        }
    }

    /// [`end`](Waker::end), unless a command waits; whether it is the end.
    pub(crate) fn end_if_idle(&self, heir: &Arc<Waker>) -> bool {
        let mut inbox = lock(&self.inbox);
        let idle = !matches!(&*inbox, Inbox::Open(commands) if !commands.is_empty());
        if idle {
            *inbox = Inbox::Ended {
                heir: Some(heir.clone()),
            };
        }
        idle
    }

    pub(crate) fn stop(&self, how: Stop) {
        self.stop.fetch_max(how as u8, SeqCst);
        self.wake();
    }

    pub(crate) fn stopping(&self) -> Stop {
        match self.stop.load(SeqCst) {
            0 => Stop::No,
            1 => Stop::Graceful,
            _ => Stop::Now,
        }
    }
}

#[cfg(all(test, loom))]
pub(crate) mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::linux::Linux;

    fn dial(token: u64) -> Command {
        Command::Dial {
            service: 0,
            dial: Dial::to(([127, 0, 0, 1], 1)).token(token),
        }
    }

    fn tokens(commands: Vec<Command>) -> Vec<u64> {
        let token = |command| match command {
            Command::Dial { dial, .. } => dial.token,
            _ => {
                unreachable!("only dials are sent here")
            }
        };
        commands.into_iter().map(token).collect()
    }

    #[test]
    fn an_inbox_is_bounded_and_counts_what_it_refuses() {
        let waker = Waker::new().bounded(2);
        assert!(waker.send(dial(1)).is_ok() && waker.send(dial(2)).is_ok());
        assert!(matches!(waker.send(dial(3)), Err(Unsent::NoRoom(_))));
        assert_eq!((waker.take_refused(), waker.take_refused()), (1, 0));
        assert_eq!(tokens(waker.commands()), [1, 2]);
        assert!(waker.send(dial(4)).is_ok());
    }

    #[test]
    fn what_comes_too_late_goes_to_the_heir_or_comes_back() {
        let (waker, heir) = (Waker::new(), Arc::new(Waker::new()));
        waker.send(dial(1)).unwrap();
        assert!(!waker.end_if_idle(&heir), "a command waits");
        assert_eq!(tokens(waker.commands()), [1]);
        assert!(waker.end_if_idle(&heir));
        waker.send(dial(2)).unwrap();
        assert_eq!(tokens(heir.commands()), [2]);
        heir.send(dial(3)).unwrap();
        assert_eq!(tokens(heir.end(None)), [3]);
        assert!(matches!(waker.send(dial(4)), Err(Unsent::Ended(_))));
    }

    #[test]
    fn an_end_closes_the_descriptor_although_the_waker_lives() {
        let waker = Waker::new();
        let fd = Arc::downgrade(&waker.descriptor(&Linux).unwrap());
        assert!(fd.upgrade().is_some());
        waker.end(None);
        assert!(fd.upgrade().is_none());
        waker.wake();
    }
}
