//! Readiness from `epoll`. Connections are edge-triggered and registered once, for everything, so
//! that pausing and resuming cost no system call; listeners and the wake-up descriptor are
//! level-triggered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll;

use crate::driver::readiness::{Poller, Readiness};
use crate::reach::waker::Waker;

/// Events taken in one wait. More wait for the next turn.
const EVENTS: usize = 512;

pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
    /// How many of `events` were taken.
    taken: usize,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        Ok(Epoll {
            fd: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            events: Vec::with_capacity(EVENTS),
            taken: 0,
        })
    }
}

impl Poller for Epoll {
    type Fd = OwnedFd;
    const EDGE_TRIGGERED: bool = true;

    fn own(fd: OwnedFd) -> OwnedFd {
        fd
    }

    fn add(&mut self, fd: &OwnedFd, token: u64) -> io::Result<()> {
        use epoll::EventFlags as F;
        let flags = F::IN | F::PRI | F::OUT | F::RDHUP | F::ET;
        Ok(epoll::add(
            &self.fd,
            fd,
            epoll::EventData::new_u64(token),
            flags,
        )?)
    }

    fn add_waker(&mut self, waker: &Arc<Waker>, token: u64) -> io::Result<()> {
        self.add_listener(waker.descriptor()?.as_fd(), token)
    }

    fn add_listener(&mut self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let flags = epoll::EventFlags::IN;
        Ok(epoll::add(
            &self.fd,
            fd,
            epoll::EventData::new_u64(token),
            flags,
        )?)
    }

    fn remove_listener(&mut self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.fd, fd);
    }

    fn forget(&mut self, _token: u64) {
        // Closing the descriptor takes it out.
    }

    fn interest(&mut self, _token: u64, _read: bool, _write: bool) {
        // Edge-triggered: always told, free to ignore.
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.taken = 0;
        match crate::kernel::sys::epoll_wait(&self.fd, &mut self.events, timeout) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
            _ => Ok(()),
        }
    }

    #[inline]
    fn has_event(&self) -> bool {
        self.taken < self.events.len()
    }

    #[inline]
    fn event(&mut self) -> Option<Readiness> {
        let event = self.events.get(self.taken)?;
        self.taken += 1;
        let (flags, token) = (event.events as i32, event.u64);
        Some(Readiness {
            token,
            readable: flags & (libc::EPOLLIN | libc::EPOLLPRI) != 0,
            writable: flags & libc::EPOLLOUT != 0,
            urgent: flags & libc::EPOLLPRI != 0,
            ended: flags & libc::EPOLLRDHUP != 0,
            over: flags & libc::EPOLLHUP != 0,
            failed: flags & libc::EPOLLERR != 0,
        })
    }
}
