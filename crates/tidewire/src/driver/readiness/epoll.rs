//! Readiness from `epoll`. Connections are edge-triggered and registered once, for everything, so
//! that pausing and resuming cost no system call; listeners and the wake-up descriptor are
//! level-triggered.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::readiness::{Poller, Readiness};
use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::reach::waker::Waker;

/// Events taken in one wait. More wait for the next turn.
const EVENTS: usize = 512;

pub(crate) struct Epoll<S: Sys> {
    sys: S,
    fd: S::Fd,
    events: Vec<libc::epoll_event>,
    /// How many of `events` were taken.
    taken: usize,
}

impl<S: Sys> Epoll<S> {
    pub(crate) fn new(sys: S) -> io::Result<Epoll<S>> {
        Ok(Epoll {
            fd: sys.epoll()?,
            sys,
            events: Vec::with_capacity(EVENTS),
            taken: 0,
        })
    }
}

impl<S: Sys> Poller for Epoll<S> {
    type Sys = S;
    const EDGE_TRIGGERED: bool = true;

    #[inline]
    fn sys(&self) -> &S {
        &self.sys
    }

    fn add(&mut self, fd: &S::Fd, token: u64) -> io::Result<()> {
        let flags =
            libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        Ok(self.sys.epoll_add(&self.fd, fd, token, flags)?)
    }

    fn add_waker(&mut self, waker: &Arc<Waker>, token: u64) -> io::Result<()> {
        self.add_listener(&*waker.descriptor(&self.sys)?, token)
    }

    fn add_listener(&mut self, fd: &Descriptor, token: u64) -> io::Result<()> {
        let fd = S::look(fd);
        Ok(self.sys.epoll_add(&self.fd, fd, token, libc::EPOLLIN)?)
    }

    fn remove_listener(&mut self, fd: &Descriptor) {
        self.sys.epoll_delete(&self.fd, S::look(fd));
    }

    fn add_timer(&mut self, fd: &S::Fd, token: u64) -> bool {
        let flags = libc::EPOLLIN | libc::EPOLLET;
        self.sys.epoll_add(&self.fd, fd, token, flags).is_ok()
    }

    fn forget(&mut self, _token: u64) {
        // Closing the descriptor removes it from the epoll set.
    }

    fn leave(&mut self, fd: &S::Fd, _token: u64) {
        self.sys.epoll_delete(&self.fd, fd);
    }

    fn interest(&mut self, _token: u64, _read: bool, _write: bool) {
        // Edge-triggered: always told, free to ignore.
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.taken = 0;
        let waited = self.sys.epoll_wait(&self.fd, &mut self.events, timeout);
        match waited {
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
