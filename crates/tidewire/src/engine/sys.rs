//! Socket options that no safe wrapper offers.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

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
