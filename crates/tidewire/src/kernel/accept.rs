//! Accepting one connection, what the kernel says of its peer, and what an error of `accept` means.

use std::io;

use crate::kernel::calls::Sys;
use crate::kernel::descriptor::Descriptor;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};

/// The result of one attempt to accept.
pub(crate) enum Accepted<F> {
    Connection(F, Endpoint),
    /// The connection had closed already, or a firewall forbids it; other connections may wait.
    Gone(io::Error),
    /// No client is waiting.
    None,
    /// The process or the machine has nothing left to take one in with.
    Exhausted(io::Error),
    /// This listener will never accept again.
    Broken(io::Error),
}

pub(crate) fn accept<S: Sys>(sys: &S, listener: &Descriptor) -> Accepted<S::Fd> {
    match sys.accept(S::look(listener)) {
        Ok((socket, Some(addr))) => Accepted::Connection(socket, addr),
        Ok((_, None)) => Accepted::Gone(io::ErrorKind::AddrNotAvailable.into()),
        Err(e) => classify(e.into()),
    }
}

/// The peer of an accepted socket, with what the kernel knows of it.
pub(crate) fn peer<S: Sys>(sys: &S, socket: &S::Fd, endpoint: Endpoint, listener: u32) -> Peer {
    let mut peer = Peer::new(endpoint, Origin::Accepted(listener));
    meet(&mut peer, sys, socket);
    peer
}

/// Learns of the kernel what it knows of the peer of this socket.
pub(crate) fn meet<S: Sys>(peer: &mut Peer, sys: &S, socket: &S::Fd) {
    if peer.endpoint.is_unix() {
        peer.known_as(sys.peer_process(socket));
    }
}

/// Whether the process or the machine has nothing left to take a connection in with: descriptors, memory, or
/// watches of epoll (`max_user_watches`).
pub(crate) fn is_exhaustion(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let e = e.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        e,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::NOSPC)
    )
}

/// Tells errors of one connection from errors of accepting as such. Linux passes pending network
/// errors of the new socket through `accept`; they mean that this connection has closed.
pub(crate) fn classify<F>(e: io::Error) -> Accepted<F> {
    use rustix::io::Errno;
    match e.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::AGAIN) => Accepted::None,
        _ if is_exhaustion(&e) => Accepted::Exhausted(e),
        // For example an inherited listener that another process has shut down: it would report an
        // error for ever.
        Some(Errno::BADF | Errno::INVAL | Errno::NOTSOCK | Errno::OPNOTSUPP) => Accepted::Broken(e),
        _ => Accepted::Gone(e),
    }
}
