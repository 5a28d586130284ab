//! A descriptor on its way between loops, which are generic over their kernel while what lies between
//! them is not.

use std::os::fd::OwnedFd;

use crate::sim::kernel::SimFd;

/// An open descriptor of one kernel or the other, closed when dropped.
#[derive(Debug)]
pub(crate) enum Descriptor {
    Linux(OwnedFd),
    Simulated(SimFd),
}

impl Descriptor {
    /// Makes closing the descriptor send a reset.
    pub(crate) fn reset_on_close(&self) {
        match self {
            Descriptor::Linux(fd) => crate::kernel::sys::reset_on_close(fd),
            Descriptor::Simulated(fd) => fd.reset_on_close(),
        }
    }

    /// Makes an event readable.
    pub(crate) fn notify(&self) {
        match self {
            // A write to an eventfd can fail only by an overflow of its counter.
            Descriptor::Linux(fd) => drop(rustix::io::write(fd, &1u64.to_ne_bytes())),
            Descriptor::Simulated(fd) => fd.notify(),
        }
    }

    /// Resets an event that was readable.
    pub(crate) fn clear(&self) {
        match self {
            Descriptor::Linux(fd) => drop(rustix::io::read(fd, &mut [0u8; 8])),
            Descriptor::Simulated(fd) => fd.clear(),
        }
    }
}

impl From<OwnedFd> for Descriptor {
    fn from(fd: OwnedFd) -> Descriptor {
        Descriptor::Linux(fd)
    }
}
