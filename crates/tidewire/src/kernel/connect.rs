//! Starting an outgoing connection without waiting for it.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SocketFlags, SocketType, socket_with};
use socket2::Socket;

use crate::build::listen::TcpOptions;
use crate::vocabulary::endpoint::Endpoint;

/// A socket ready to connect: options set, bound if asked.
pub(crate) fn prepare(
    to: &Endpoint,
    from: Option<SocketAddr>,
    options: &TcpOptions,
) -> io::Result<Socket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = Socket::from(socket_with(to.family(), SocketType::STREAM, flags, None)?);
    options.apply(&socket, to.is_tcp())?;
    if let Some(from) = from {
        if from.port() == 0 {
            // The port is chosen when connecting, knowing the destination. Without this option,
            // 28 thousand connections from one address are the end.
            crate::kernel::sys::bind_address_no_port(&socket)?;
        }
        socket.bind(&from.into())?;
    }
    Ok(socket)
}

/// Starts to connect. Whether that was done at once makes no difference: both are reported.
pub(crate) fn start(
    to: &Endpoint,
    from: Option<SocketAddr>,
    options: &TcpOptions,
) -> io::Result<OwnedFd> {
    let addr = to.to_kernel()?;
    let socket = prepare(to, from, options)?;
    match rustix::net::connect(&socket, &addr) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(e) => Err(refused(to, e)),
    }
}

/// Why an attempt has not even begun.
pub(crate) fn refused(to: &Endpoint, why: Errno) -> io::Error {
    match why {
        // A Unix socket is connected at once, or not at all.
        Errno::AGAIN if to.is_unix() => io::Error::new(
            io::ErrorKind::WouldBlock,
            format!("{to} has no room for another connection until it accepts some"),
        ),
        e => e.into(),
    }
}

/// The result of an attempt to connect. A socket whose local port is its own destination is
/// connected to itself: no process listens there, and none could while the connection exists.
pub(crate) fn outcome(socket: impl AsFd) -> Result<(), Errno> {
    rustix::net::sockopt::socket_error(&socket).and_then(|error| error)?;
    let (here, there) = (
        rustix::net::getsockname(&socket)?,
        rustix::net::getpeername(&socket)?,
    );
    if there.is_some_and(|there| there == here) {
        return Err(Errno::CONNREFUSED);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise one address could serve only 28 thousand connections to all destinations together.
    #[test]
    fn the_port_is_left_to_connect_for_both_families() {
        for (to, from) in [("127.0.0.1:1", "127.0.0.1:0"), ("[::1]:1", "[::1]:0")] {
            let (to, from) = (to.parse().unwrap(), from.parse().unwrap());
            let socket = match prepare(&to, Some(from), &TcpOptions::default()) {
                Err(e) if from.is_ipv6() => return eprintln!("no IPv6 here: {e}"),
                socket => socket.unwrap(),
            };
            let bound = socket.local_addr().unwrap().as_socket().unwrap();
            assert_eq!(bound, from, "a port was chosen already");
        }
    }
}
