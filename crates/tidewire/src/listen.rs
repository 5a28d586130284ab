//! Where to listen, and the TCP options of the connections that come in.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

/// TCP options. They are set on the listener, from which Linux hands them to accepted sockets, and
/// on dialled sockets before they connect.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Send small segments at once (`TCP_NODELAY`). Default true: replies are gathered already.
    pub nodelay: bool,
    /// Idle time after which the kernel probes the peer. Default `None`: no probes.
    pub keepalive: Option<Duration>,
    /// Connections that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
    /// Default 4096.
    pub backlog: i32,
    /// Kernel receive buffer in bytes. Default `None`: sized by the kernel.
    pub receive_buffer: Option<usize>,
    /// Kernel send buffer in bytes. Default `None`: sized by the kernel.
    pub send_buffer: Option<usize>,
    /// Congestion control, such as `cubic`. Default `None`: the system's.
    pub congestion: Option<String>,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions {
            nodelay: true,
            keepalive: None,
            backlog: 4096,
            receive_buffer: None,
            send_buffer: None,
            congestion: None,
        }
    }
}

impl TcpOptions {
    pub(crate) fn apply(&self, socket: &Socket) -> io::Result<()> {
        socket.set_tcp_nodelay(self.nodelay)?;
        if let Some(idle) = self.keepalive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle))?;
        }
        if let Some(n) = self.receive_buffer {
            socket.set_recv_buffer_size(n)?;
        }
        if let Some(n) = self.send_buffer {
            socket.set_send_buffer_size(n)?;
        }
        if let Some(name) = &self.congestion {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        Ok(())
    }
}

/// A listener to be: an address to bind, or a socket inherited from elsewhere.
#[derive(Debug)]
pub struct Listen {
    place: Place,
    options: TcpOptions,
}

#[derive(Debug)]
enum Place {
    Bind(SocketAddr),
    Inherited(TcpListener),
}

impl Listen {
    /// Binds `addr` when the loops start; port 0 takes any free port. An IPv6 address takes IPv6
    /// connections only.
    #[must_use]
    pub fn at(addr: SocketAddr) -> Listen {
        Listen {
            place: Place::Bind(addr),
            options: TcpOptions::default(),
        }
    }

    /// Accepts from a socket that listens already, such as one handed over by a predecessor or a
    /// service manager.
    #[must_use]
    pub fn inherited(listener: TcpListener) -> Listen {
        Listen {
            place: Place::Inherited(listener),
            options: TcpOptions::default(),
        }
    }

    /// Sets the TCP options.
    #[must_use]
    pub fn options(mut self, options: TcpOptions) -> Listen {
        self.options = options;
        self
    }

    /// Makes `copies` sockets that share the address, one for each loop that accepts for itself.
    pub(crate) fn bind(&self, copies: usize) -> io::Result<(SocketAddr, Vec<OwnedFd>)> {
        let mut sockets = Vec::with_capacity(copies);
        let addr = match &self.place {
            Place::Inherited(listener) => {
                listener.set_nonblocking(true)?;
                for _ in 0..copies {
                    sockets.push(listener.try_clone()?.into());
                }
                listener.local_addr()?
            }
            Place::Bind(wanted) => {
                let mut addr = *wanted;
                for copy in 0..copies {
                    let socket = self.socket(addr, copy > 0)?;
                    if copies > 1 && copy == 0 {
                        // After its bind, which has failed if anybody listens here: with the
                        // option set before, two servers would share the port unnoticed.
                        socket.set_reuse_port(true)?;
                    }
                    socket.listen(self.options.backlog)?;
                    addr = socket.local_addr()?.as_socket().unwrap_or(addr);
                    sockets.push(socket.into());
                }
                addr
            }
        };
        Ok((addr, sockets))
    }

    fn socket(&self, addr: SocketAddr, share: bool) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if share {
            socket.set_reuse_port(true)?;
        }
        self.options.apply(&socket)?;
        socket.bind(&addr.into())?;
        Ok(socket)
    }

    pub(crate) fn wanted(&self) -> String {
        match &self.place {
            Place::Bind(addr) => addr.to_string(),
            Place::Inherited(listener) => format!("inherited {listener:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_share_a_port_but_servers_do_not() {
        let listen = |addr| Listen::at(addr).bind(3);
        let (addr, sockets) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        assert_eq!(sockets.len(), 3);
        for socket in &sockets {
            let socket = socket2::SockRef::from(socket);
            let bound = socket.local_addr().unwrap().as_socket();
            assert!(bound == Some(addr) && socket.is_listener().unwrap());
        }
        let second = listen(addr).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(sockets);
        assert!(listen(addr).is_ok());
    }
}
