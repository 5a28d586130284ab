//! Accepting one connection, what the kernel says of its peer, and what an error of `accept` means.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{SocketFlags, acceptfrom_with};

use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};

/// What one attempt to accept came to.
pub(crate) enum Accepted {
    Connection(OwnedFd, Endpoint),
    /// This one had gone already, or was forbidden; there may be more.
    Gone(io::Error),
    /// Nobody is waiting.
    None,
    /// The process or the machine has nothing left to take one in with.
    Exhausted(io::Error),
    /// This listener will never accept again.
    Broken(io::Error),
}

pub(crate) fn accept(listener: impl AsFd) -> Accepted {
    match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok((socket, addr)) => match addr.and_then(Endpoint::from_kernel) {
            Some(addr) => Accepted::Connection(socket, addr),
            None => Accepted::Gone(io::ErrorKind::AddrNotAvailable.into()),
        },
        Err(e) => classify(e.into()),
    }
}

/// The peer of an accepted socket, with what the kernel knows of it.
pub(crate) fn peer(socket: impl AsFd, endpoint: Endpoint, listener: u32) -> Peer {
    let mut peer = Peer::new(endpoint, Origin::Accepted(listener));
    peer.ask_kernel(socket);
    peer
}

/// Tells errors of one connection from errors of accepting as such. Linux passes pending network
/// errors of the new socket through `accept`; they mean that this one has gone.
pub(crate) fn classify(e: io::Error) -> Accepted {
    use rustix::io::Errno;
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Accepted::None,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => Accepted::Exhausted(e),
        // Such as an inherited listener that somebody has shut down: it would be reported for ever.
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP) => Accepted::Broken(e),
        _ => Accepted::Gone(e),
    }
}

/// The address at the other end, which a multishot accept does not tell.
pub(crate) fn peer_of(socket: &OwnedFd) -> Endpoint {
    let found = |addr: rustix::io::Result<Option<_>>| {
        let addr = addr.ok().flatten();
        addr.and_then(Endpoint::from_kernel)
    };
    let connected = found(rustix::net::getpeername(socket));
    // A peer that has reset the connection by now is asked for in the way of `accept`.
    let known = connected.or_else(|| crate::kernel::sys::peer_name(socket).map(Endpoint::Tcp));
    known.unwrap_or_else(|| {
        let ours = found(rustix::net::getsockname(socket).map(Some));
        match ours {
            Some(Endpoint::Unix(_) | Endpoint::Abstract(_) | Endpoint::Unnamed) => {
                Endpoint::Unnamed
            }
            Some(Endpoint::Tcp(SocketAddr::V6(_))) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            _ => (Ipv4Addr::UNSPECIFIED, 0).into(),
        }
    })
}
