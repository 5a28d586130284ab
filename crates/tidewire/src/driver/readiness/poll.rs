//! Readiness from `poll`, for the few descriptors of one connection's thread.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::readiness::{Poller, Readiness};
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::Waker;

struct Entry {
    /// Open for as long as the entry is there: connections are forgotten before they are closed,
    /// and the waker is `keeps`'.
    fd: RawFd,
    is_waker: bool,
    token: u64,
    read: bool,
    write: bool,
    /// The peer's end of sending was reported; `poll` would report it for ever.
    ended: bool,
    /// The end of both directions was reported; so would this.
    over: bool,
}

impl Entry {
    fn new(fd: RawFd, token: u64) -> Entry {
        Entry {
            fd,
            is_waker: false,
            token,
            read: true,
            write: true,
            ended: false,
            over: false,
        }
    }

    /// Whether anything new could be reported.
    fn waits(&self) -> bool {
        self.read || self.write || !self.over
    }

    fn events(&self) -> i16 {
        let mut events = 0;
        for (wanted, flag) in [
            (self.read, libc::POLLIN),
            (self.write, libc::POLLOUT),
            (!self.is_waker && !self.ended, libc::POLLRDHUP),
        ] {
            events |= if wanted { flag } else { 0 };
        }
        events
    }
}

pub(crate) struct Poll<S: Sys> {
    sys: S,
    entries: Vec<Entry>,
    /// The list that a wait hands to the kernel, kept so that waits allocate nothing.
    fds: Vec<libc::pollfd>,
    events: VecDeque<Readiness>,
    /// Becomes readable when all threads are to stop, and stays so. Not waited for once seen.
    stop: Option<Arc<Descriptor>>,
    /// The waker's descriptor, which another thread may close.
    keeps: Option<Arc<Descriptor>>,
}

impl<S: Sys> Poll<S> {
    pub(crate) fn new(sys: S, stop: Arc<Descriptor>) -> Poll<S> {
        Poll {
            sys,
            entries: Vec::new(),
            fds: Vec::new(),
            events: VecDeque::new(),
            stop: Some(stop),
            keeps: None,
        }
    }

    fn entry(&mut self, token: u64) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.token == token)
    }
}

impl<S: Sys> Poller for Poll<S> {
    type Sys = S;
    const EDGE_TRIGGERED: bool = false;

    #[inline]
    fn sys(&self) -> &S {
        &self.sys
    }

    fn add(&mut self, fd: &S::Fd, token: u64) -> io::Result<()> {
        self.entries.push(Entry::new(S::number(fd), token));
        Ok(())
    }

    fn add_waker(&mut self, waker: &Arc<Waker>, token: u64) -> io::Result<()> {
        let fd = waker.descriptor(&self.sys)?;
        self.entries.push(Entry {
            write: false,
            is_waker: true,
            ..Entry::new(S::number(S::look(&fd)), token)
        });
        self.keeps = Some(fd);
        Ok(())
    }

    fn add_listener(&mut self, _fd: &Descriptor, _token: u64) -> io::Result<()> {
        // A connection's thread never accepts.
        Err(io::ErrorKind::Unsupported.into())
    }

    fn remove_listener(&mut self, _fd: &Descriptor) {}

    fn add_timer(&mut self, _fd: &S::Fd, _token: u64) -> bool {
        // A poller for each connection would cost it a descriptor.
        false
    }

    fn forget(&mut self, token: u64) {
        self.entries.retain(|e| e.token != token);
    }

    fn leave(&mut self, _fd: &S::Fd, token: u64) {
        self.forget(token);
    }

    fn interest(&mut self, token: u64, read: bool, write: bool) {
        if let Some(e) = self.entry(token) {
            (e.read, e.write) = (read, write);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.events.clear();
        self.fds.clear();
        let wait_for = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let waiting = self.entries.iter().filter(|e| e.waits());
        self.fds.extend(waiting.map(|e| wait_for(e.fd, e.events())));
        if let Some(stop) = &self.stop {
            self.fds
                .push(wait_for(S::number(S::look(stop)), libc::POLLIN));
        }
        self.sys.poll(&mut self.fds, timeout)?;
        if self.stop.is_some()
            && self.fds.pop().is_some_and(|fd| fd.revents != 0)
            && !mistaken(Mistake::StopReportedForEver)
        {
            self.stop = None;
        }
        let waiting = self.entries.iter_mut().filter(|e| e.waits());
        for (e, fd) in waiting.zip(&self.fds) {
            let got = |flags| fd.revents & flags != 0;
            if fd.revents == 0 {
                continue;
            }
            let (ended, over) = (got(libc::POLLRDHUP), got(libc::POLLHUP));
            let forgets = mistaken(Mistake::EndReportedForEver);
            e.ended |= ended && !forgets;
            e.over |= over && !forgets;
            self.events.push_back(Readiness {
                token: e.token,
                readable: got(libc::POLLIN),
                writable: got(libc::POLLOUT),
                urgent: false,
                ended,
                over,
                failed: got(libc::POLLERR | libc::POLLNVAL),
            });
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
    use crate::kernel::linux::Linux;

    #[test]
    fn a_wait_allocates_nothing_after_the_first() {
        let event = || Linux.event().unwrap();
        let mut poll = Poll::new(Linux, Arc::new(event()));
        let fd = event();
        poll.add(Linux::look(&fd), 7).unwrap();
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
