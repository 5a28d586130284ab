//! A listener of the case's own, for what servers under test dial: by a real socket or on a simulated network.

use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

use tidewire::Endpoint;
use tidewire::sim::PlainListener;

use crate::client::{Client, PATIENCE, lonely};
use crate::world;

/// Connections that may wait to be accepted.
const BACKLOG: usize = 128;

/// Accepts when the case does. Clients that have connected before wait.
pub(crate) struct Listener {
    socket: Socket,
    at: Endpoint,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
    Simulated(PlainListener),
}

impl Listener {
    /// At an address of its own.
    pub(crate) fn new() -> Listener {
        Listener::at(lonely())
    }

    pub(crate) fn at(at: impl Into<Endpoint>) -> Listener {
        let at = at.into();
        if world::is_simulated() {
            return Listener::simulated(at, BACKLOG);
        }
        let (socket, at) = match &at {
            Endpoint::Tcp(addr) => {
                let socket = TcpListener::bind(addr).expect("a port");
                let at = socket.local_addr().expect("bound").into();
                (Socket::Tcp(socket), at)
            }
            Endpoint::Unix(path) => {
                let socket = UnixListener::bind(path).expect("a path");
                (Socket::Unix(socket), at)
            }
            Endpoint::Abstract(name) => {
                let addr = UnixAddr::from_abstract_name(name).expect("a name");
                let socket = UnixListener::bind_addr(&addr).expect("a name");
                (Socket::Unix(socket), at)
            }
            _ => panic!("nobody could come"),
        };
        Listener { socket, at }
    }

    /// On a simulated network: one at which no more than so many may wait.
    pub(crate) fn simulated(at: Endpoint, backlog: usize) -> Listener {
        let theirs = at.clone();
        let listener = world::with(move |sim| sim.plain_listener(theirs, backlog));
        let socket = Socket::Simulated(listener);
        Listener { socket, at }
    }

    /// A Unix socket that is there already.
    pub(crate) fn adopt(socket: UnixListener, at: Endpoint) -> Listener {
        let socket = Socket::Unix(socket);
        Listener { socket, at }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.at.tcp().expect("a TCP listener")
    }

    pub(crate) fn accept(&self) -> Client {
        self.accept_from().0
    }

    /// Accepts a client, with the place that it has come from.
    pub(crate) fn accept_from(&self) -> (Client, Endpoint) {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, from) = socket.accept().expect("dialled");
                (Client::adopt(stream).expect("socket options"), from.into())
            }
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept().expect("dialled");
                (Client::adopt_unix(stream), Endpoint::Unnamed)
            }
            Socket::Simulated(listener) => {
                let listener = *listener;
                let accepted = world::wait(PATIENCE, move |sim| sim.accept(listener));
                let (peer, from) = accepted.expect("dialled");
                (Client::accepted(peer), from)
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Simulated(listener) = self.socket {
            world::at_the_end(move |sim| sim.close_listener(listener));
        }
    }
}

/// An address without a listener.
pub(crate) fn nobody() -> SocketAddr {
    Listener::new().addr()
}
