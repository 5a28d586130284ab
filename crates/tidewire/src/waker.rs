//! Waking a loop from another thread: many reasons, one system call, and none while it is awake.
//!
//! `pending` says that there is something to look at, `sleeping` that the loop may be blocked. A
//! loop sets `sleeping` before it looks at `pending` a last time; a waker sets `pending` before it
//! looks at `sleeping`. Both are sequentially consistent, so one of the two sees the other and no
//! wake-up is lost.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use rustix::event::{EventfdFlags, eventfd};

use crate::dial::Dial;
use crate::endpoint::Endpoint;
use crate::sync::lock;

/// What a loop is told to do by the builder, the acceptor or a handle.
pub(crate) enum Command {
    /// Take over an accepted socket.
    Adopt {
        socket: OwnedFd,
        listener: u32,
        service: u16,
        peer: Endpoint,
    },
    /// Connect for the service of this index.
    Dial { service: u16, dial: Dial },
}

/// How far a stop has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stop {
    No,
    /// Finish what is there, within the deadline.
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
    fd: OnceLock<OwnedFd>,
    inbox: Mutex<Vec<Command>>,
    /// Whether `inbox` may hold something: spares the loop the lock.
    filled: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> Waker {
        Waker::of_loop(0)
    }

    pub(crate) fn of_loop(number: u32) -> Waker {
        Waker {
            number,
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            stop: AtomicU8::new(Stop::No as u8),
            fd: OnceLock::new(),
            inbox: Mutex::new(Vec::new()),
            filled: AtomicBool::new(false),
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The descriptor a blocked loop waits on, made on first use; called by the loop alone.
    pub(crate) fn descriptor(&self) -> std::io::Result<BorrowedFd<'_>> {
        if self.fd.get().is_none() {
            let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let _ = self.fd.set(fd);
        }
        Ok(self.fd.get().expect("just set").as_fd())
    }

    /// Has the loop look at its mailboxes and its inbox soon.
    pub(crate) fn wake(&self) {
        if !self.pending.swap(true, SeqCst)
            && self.sleeping.load(SeqCst)
            && let Some(fd) = self.fd.get()
        {
            // The counter cannot overflow: the loop empties it each time, and `pending` admits one
            // writer until then. Nothing else can fail on an eventfd.
            let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
        }
    }

    /// Announces that the loop may block; false if there is something to look at first.
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        if self.pending.load(SeqCst) {
            self.sleeping.store(false, SeqCst);
            return false;
        }
        true
    }

    /// The loop is awake again.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, SeqCst);
    }

    /// Whether there was something to look at since the last call.
    pub(crate) fn take_pending(&self) -> bool {
        self.pending.load(SeqCst) && self.pending.swap(false, SeqCst)
    }

    /// Whether there is something to look at.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(SeqCst)
    }

    /// Resets the descriptor after it became readable.
    pub(crate) fn clear_descriptor(&self) {
        if let Some(fd) = self.fd.get() {
            let _ = rustix::io::read(fd, &mut [0u8; 8]);
        }
    }

    pub(crate) fn send(&self, command: Command) {
        lock(&self.inbox).push(command);
        self.filled.store(true, SeqCst);
        self.wake();
    }

    pub(crate) fn commands(&self) -> Vec<Command> {
        if self.filled.load(SeqCst) && self.filled.swap(false, SeqCst) {
            return std::mem::take(&mut *lock(&self.inbox));
        }
        Vec::new()
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
