//! The system calls for which no safe wrapper does.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::peer::Process;

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

/// The process at the other end of a Unix socket (`SO_PEERCRED`, unix(7)). The safe wrapper at hand
/// cannot hold the process number 0, which is what a process of another namespace has.
pub(crate) fn peer_process(socket: impl AsFd) -> Option<Process> {
    let mut cred = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed, and the pointers are to a value
    // of the size given and to that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    let pid = u32::try_from(cred.pid).ok().filter(|pid| *pid != 0);
    // A socket that is not connected has the user -1.
    (result == 0 && cred.uid != u32::MAX).then(|| Process::new(pid, cred.uid, cred.gid))
}
