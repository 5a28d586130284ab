//! Connecting a blocking client.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use super::error::Error;

/// A server to connect to: its addresses, and what it was called.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    addrs: Vec<SocketAddr>,
}

impl Server {
    /// Looks up `HOST:PORT`.
    pub(super) fn find(name: &str) -> Result<Server, Error> {
        let unknown = |source: io::Error| Error::Address {
            to: name.to_owned(),
            source: Arc::new(source),
        };
        let addrs: Vec<SocketAddr> = name.to_socket_addrs().map_err(unknown)?.collect();
        if addrs.is_empty() {
            return Err(unknown(io::ErrorKind::NotFound.into()));
        }
        Ok(Server {
            name: name.to_owned(),
            addrs,
        })
    }

    /// Connects to the first address that answers.
    pub(super) fn connect(&self, timeout: Duration) -> Result<TcpStream, Error> {
        let mut last = None;
        for addr in &self.addrs {
            match TcpStream::connect_timeout(addr, timeout) {
                Ok(socket) => {
                    // Pieces are whole messages, and gathered already.
                    let set = socket.set_nodelay(true);
                    return set.map(|()| socket).map_err(|e| self.failed("set up", e));
                }
                Err(e) => last = Some(e),
            }
        }
        let last = last.expect("there is an address");
        Err(self.failed("connect to", last))
    }

    pub(super) fn failed(&self, what: &'static str, source: io::Error) -> Error {
        Error::Connection {
            what,
            to: self.name.clone(),
            source: Arc::new(source),
        }
    }

    pub(super) fn broken(&self, source: super::broken::Broken) -> Error {
        Error::Broken {
            to: self.name.clone(),
            source,
        }
    }
}
