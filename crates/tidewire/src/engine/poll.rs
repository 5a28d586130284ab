//! Readiness from `poll`, for the few descriptors of one connection's thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::engine::ready::{Poller, Readiness};
use crate::waker::Waker;

struct Entry {
    what: What,
    token: u64,
    read: bool,
    write: bool,
    /// The peer's end of sending was reported; `poll` would report it for ever.
    ended: bool,
    /// The end of both directions was reported; so would this.
    over: bool,
}

impl Entry {
    /// Whether anything new could be reported.
    fn waits(&self) -> bool {
        self.read || self.write || !self.over
    }
}

enum What {
    Connection(Rc<OwnedFd>),
    Waker(Arc<OwnedFd>),
}

pub(crate) struct Poll {
    entries: Vec<Entry>,
    events: VecDeque<Readiness>,
    /// Becomes readable when all threads are to stop, and stays so. Not waited for once seen.
    stop: Option<Arc<OwnedFd>>,
}

impl Poll {
    pub(crate) fn new(stop: Arc<OwnedFd>) -> Poll {
        Poll {
            entries: Vec::new(),
            events: VecDeque::new(),
            stop: Some(stop),
        }
    }

    fn entry(&mut self, token: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.token == token)
    }
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
            ended: false,
            over: false,
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
            ended: false,
            over: false,
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
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.entries.len() + 1);
        for e in self.entries.iter().filter(|e| e.waits()) {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, e.read);
            flags.set(PollFlags::OUT, e.write);
            let fd = match &e.what {
                What::Connection(fd) => {
                    flags.set(PollFlags::RDHUP, !e.ended);
                    fd.as_fd()
                }
                What::Waker(fd) => fd.as_fd(),
            };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        if let Some(stop) = &self.stop {
            fds.push(PollFd::new(stop, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let stopped = self.stop.is_some() && fds.pop().is_some_and(|f| !f.revents().is_empty());
        let got: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let waiting = self.entries.iter_mut().filter(|e| e.waits());
        for (e, got) in waiting.zip(got) {
            if got.is_empty() {
                continue;
            }
            let ended = got.contains(PollFlags::RDHUP);
            e.ended |= ended;
            e.over |= got.contains(PollFlags::HUP);
            self.events.push_back(Readiness {
                token: e.token,
                readable: got.contains(PollFlags::IN),
                writable: got.contains(PollFlags::OUT),
                ended,
                over: got.contains(PollFlags::HUP),
                failed: got.intersects(PollFlags::ERR | PollFlags::NVAL),
            });
        }
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
