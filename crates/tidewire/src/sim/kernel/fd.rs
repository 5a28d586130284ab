//! A descriptor of the simulated kernel, as a program holds it.
//!
//! A descriptor may pass between loops like a real one, and so must not borrow the kernel. Calls on
//! a descriptor away from a loop, closing above all, are noted in a list that the kernel works off
//! before anything else: so everything happens in the order of the program.

use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::reach::sync::{Mutex, lock};

/// A call on a descriptor that was made away from a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Close(RawFd),
    ResetOnClose(RawFd),
    Notify(RawFd),
    Clear(RawFd),
}

#[derive(Clone)]
pub(super) struct Requests(Arc<Mutex<Vec<Request>>>);

impl Requests {
    pub(super) fn new() -> Requests {
        Requests(Arc::new(Mutex::new(Vec::new())))
    }

    pub(super) fn take(&self) -> Vec<Request> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn leave(&self, request: Request) {
        lock(&self.0).push(request);
    }
}

/// An open descriptor of the simulated kernel, closed when dropped.
pub(crate) struct SimFd {
    pub(super) number: RawFd,
    requests: Requests,
}

impl SimFd {
    pub(super) fn new(number: RawFd, requests: &Requests) -> SimFd {
        SimFd {
            number,
            requests: requests.clone(),
        }
    }

    pub(crate) fn reset_on_close(&self) {
        self.requests.leave(Request::ResetOnClose(self.number));
    }

    pub(crate) fn notify(&self) {
        self.requests.leave(Request::Notify(self.number));
    }

    pub(crate) fn clear(&self) {
        self.requests.leave(Request::Clear(self.number));
    }
}

impl Drop for SimFd {
    fn drop(&mut self) {
        self.requests.leave(Request::Close(self.number));
    }
}

impl fmt::Debug for SimFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFd({})", self.number)
    }
}
