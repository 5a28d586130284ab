//! Readiness from `poll`, for the few descriptors of one connection's thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::driver::readiness::{Poller, Readiness};
use crate::reach::waker::Waker;

struct Entry {
    what: What,
    token: u64,
    read: bool,
    write: bool,
    /// The peer's end of sending was reported; `poll` would report it for ever.
    ended: Cell<bool>,
    /// The end of both directions was reported; so would this.
    over: Cell<bool>,
}

impl Entry {
    /// Whether anything new could be reported.
    fn waits(&self) -> bool {
        self.read || self.write || !self.over.get()
    }
}

enum What {
    Connection(Rc<OwnedFd>),
    Waker(Arc<OwnedFd>),
}

pub(crate) struct Poll {
    entries: Vec<Entry>,
    /// What a wait hands to the kernel; empty between waits, which so allocate nothing.
    fds: Vec<PollFd<'static>>,
    events: VecDeque<Readiness>,
    /// Becomes readable when all threads are to stop, and stays so. Not waited for once seen.
    stop: Option<Arc<OwnedFd>>,
}

impl Poll {
    pub(crate) fn new(stop: Arc<OwnedFd>) -> Poll {
        Poll {
            entries: Vec::new(),
            fds: Vec::new(),
            events: VecDeque::new(),
            stop: Some(stop),
        }
    }

    fn entry(&mut self, token: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.token == token)
    }
}

/// An empty list with the memory of this one, for borrows of another length.
fn recycled<'a>(mut fds: Vec<PollFd<'_>>) -> Vec<PollFd<'a>> {
    fds.clear();
    // Collecting in place keeps the allocation, as the test below makes sure.
    fds.into_iter()
        .map(|_| unreachable!("it is empty"))
        .collect()
}

impl Poller for Poll {
    type Fd = Rc<OwnedFd>;
    const EDGE_TRIGGERED: bool = false;

    fn own(fd: OwnedFd) -> Rc<OwnedFd> {
        Rc::new(fd)
    }

    fn add(&mut self, fd: &Rc<OwnedFd>, token: u64) -> io::Result<()> {
        let what = What::Connection(fd.clone());
        self.entries.push(Entry {
            what,
            token,
            read: true,
            write: true,
            ended: Cell::new(false),
            over: Cell::new(false),
        });
        Ok(())
    }

    fn add_waker(&mut self, waker: &Arc<Waker>, token: u64) -> io::Result<()> {
        let what = What::Waker(waker.descriptor()?);
        self.entries.push(Entry {
            what,
            token,
            read: true,
            write: false,
            ended: Cell::new(false),
            over: Cell::new(false),
        });
        Ok(())
    }

    fn add_listener(&mut self, _fd: BorrowedFd<'_>, _token: u64) -> io::Result<()> {
        // A connection's thread never accepts.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove_listener(&mut self, _fd: BorrowedFd<'_>) {}

    fn forget(&mut self, token: u64) {
        self.entries.retain(|e| e.token != token);
    }

    fn interest(&mut self, token: u64, read: bool, write: bool) {
        if let Some(e) = self.entry(token) {
            (e.read, e.write) = (read, write);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        let timeout = timeout.map(|t| Timespec {
            tv_sec: t.as_secs().min(1 << 30) as i64,
            tv_nsec: t.subsec_nanos().into(),
        });
        let mut fds = recycled(std::mem::take(&mut self.fds));
        for e in self.entries.iter().filter(|e| e.waits()) {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, e.read);
            flags.set(PollFlags::OUT, e.write);
            let fd = match &e.what {
                What::Connection(fd) => {
                    flags.set(PollFlags::RDHUP, !e.ended.get());
                    fd.as_fd()
                }
                What::Waker(fd) => fd.as_fd(),
            };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        if let Some(stop) = &self.stop {
            fds.push(PollFd::new(stop, PollFlags::IN));
        }
        if let Err(e) = rustix::event::poll(&mut fds, timeout.as_ref()) {
            self.fds = recycled(fds);
            return match e {
                rustix::io::Errno::INTR => Ok(()),
                e => Err(e.into()),
            };
        }
        let stopped = self.stop.is_some() && fds.pop().is_some_and(|f| !f.revents().is_empty());
        let waiting = self.entries.iter().filter(|e| e.waits());
        for (e, fd) in waiting.zip(&fds) {
            let got = fd.revents();
            if got.is_empty() {
                continue;
            }
            let ended = got.contains(PollFlags::RDHUP);
            e.ended.set(e.ended.get() || ended);
            e.over.set(e.over.get() || got.contains(PollFlags::HUP));
            self.events.push_back(Readiness {
                token: e.token,
                readable: got.contains(PollFlags::IN),
                writable: got.contains(PollFlags::OUT),
                urgent: false,
                ended,
                over: got.contains(PollFlags::HUP),
                failed: got.intersects(PollFlags::ERR | PollFlags::NVAL),
            });
        }
        self.fds = recycled(fds);
        if stopped {
            self.stop = None;
        }
        Ok(())
    }

    fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    fn event(&mut self) -> Option<Readiness> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_allocates_nothing_after_the_first() {
        let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let mut poll = Poll::new(Arc::new(event()));
        poll.add(&Rc::new(event()), 7).unwrap();
        poll.interest(7, true, true);
        let mut memory = Vec::new();
        for _ in 0..5 {
            poll.wait(Some(Duration::ZERO)).unwrap();
            assert!(poll.event().is_some_and(|e| e.token == 7 && e.writable));
            memory.push((poll.fds.as_ptr().addr(), poll.fds.capacity()));
        }
        assert!(
            memory.iter().all(|m| *m == memory[0] && m.1 > 0),
            "{memory:?}"
        );
    }
}
