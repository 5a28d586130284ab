//! The system calls for which no safe wrapper does.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `CLOCK_MONOTONIC` in nanoseconds. The standard library's type hides the number behind arithmetic
/// that costs more than the clock, and rustix's reading of the vDSO crashes under valgrind.
#[inline]
pub(crate) fn monotonic_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec that lives through the call, which fails for no valid
    // clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Leaves the choice of the local port to `connect` (`IP_BIND_ADDRESS_NO_PORT`, ip(7)), which knows
/// the destination and so can use a port for each.
pub(crate) fn bind_address_no_port(socket: impl AsFd) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the value points to an int
    // of the size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
