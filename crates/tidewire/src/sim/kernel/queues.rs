//! A ring of the simulated kernel, as drivers see it.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::kernel::queues::{Buffers, Done, Operation, Queues};
use crate::sim::kernel::memory::Lent;
use crate::sim::kernel::sys::SimSys;
use crate::sim::kernel::{Shared, SimFd, enter};

pub(crate) struct SimQueues {
    sys: SimSys,
    ring: usize,
}

impl SimQueues {
    pub(crate) fn new(kernel: &Shared) -> SimQueues {
        SimQueues {
            sys: SimSys::new(kernel),
            ring: enter(kernel).make_ring(),
        }
    }

    fn kernel(&self) -> &Shared {
        &self.sys.0
    }
}

impl Drop for SimQueues {
    fn drop(&mut self) {
        // Not while a panic of the kernel's own unwinds.
        if let Ok(mut kernel) = self.kernel().try_borrow_mut() {
            kernel.catch_up();
            kernel.drop_ring(self.ring);
        }
    }
}

impl Queues for SimQueues {
    type Sys = SimSys;
    type Buffers = SimBuffers;

    fn sys(&self) -> &SimSys {
        &self.sys
    }

    unsafe fn push(&mut self, operation: Operation, user_data: u64) -> bool {
        enter(self.kernel()).push(self.ring, operation, user_data)
    }

    fn enter(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        Ok(enter(self.kernel()).enter_ring(self.ring, timeout)?)
    }

    fn look(&mut self) -> bool {
        enter(self.kernel()).overflowed(self.ring)
    }

    fn pop(&mut self) -> Option<Done> {
        self.kernel().borrow_mut().pop(self.ring)
    }

    fn popped(&mut self) {}

    fn has_news(&mut self) -> bool {
        enter(self.kernel()).has_news(self.ring)
    }

    fn make_table(&mut self, places: u32) -> io::Result<()> {
        enter(self.kernel()).make_table(self.ring, places);
        Ok(())
    }

    fn put(&mut self, place: u32, fd: &SimFd) -> io::Result<()> {
        Ok(enter(self.kernel()).put(self.ring, place, fd.number)?)
    }

    fn take_out(&mut self, place: u32) {
        enter(self.kernel()).take_out(self.ring, place);
    }

    unsafe fn accepted(&self, number: RawFd) -> SimFd {
        self.kernel().borrow().fd(number)
    }

    fn register(&self, id: u16, _size: u16) -> io::Result<SimBuffers> {
        enter(self.kernel()).register(self.ring, id);
        Ok(SimBuffers {
            kernel: self.kernel().clone(),
            ring: self.ring,
            group: id,
            pending: Vec::new(),
        })
    }

    fn unregister(&self, buffers: SimBuffers) -> io::Result<()> {
        enter(self.kernel()).unregister(self.ring, buffers.group);
        Ok(())
    }
}

/// A group of receive buffers.
pub(crate) struct SimBuffers {
    kernel: Shared,
    ring: usize,
    group: u16,
    /// Given, and not published yet.
    pending: Vec<Lent>,
}

impl Buffers for SimBuffers {
    unsafe fn give(&mut self, id: u16, start: *mut u8, len: u32) {
        // SAFETY: the caller's.
        self.pending.push(unsafe { Lent::new(id, start, len) });
    }

    fn publish(&mut self) {
        let mut kernel = enter(&self.kernel);
        for lent in self.pending.drain(..) {
            kernel.give(self.ring, self.group, lent);
        }
    }
}
