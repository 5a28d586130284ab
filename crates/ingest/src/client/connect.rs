//! Connecting a blocking client.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tidewire_tls::{TlsClient, TlsStream};

use super::error::Error;

/// The server of a blocking client: `HOST:PORT`, or a Unix socket (`unix:/PATH`, or `unix:@NAME` in the
/// abstract namespace); and whether to use TLS.
///
/// ```
/// use tidewire_ingest::client::To;
///
/// let plain = To::from("127.0.0.1:7400");
/// let local = To::from("unix:/run/tidewire.sock");
/// # fn secured(tls: tidewire_tls::TlsClient) -> To {
/// // The server must show a certificate for `logs.example`.
/// let secured = To::from("logs.example:7400").tls(tls);
/// # secured }
/// ```
#[derive(Clone, Debug)]
pub struct To {
    name: String,
    tls: Option<TlsClient>,
}

impl<S: Into<String>> From<S> for To {
    fn from(name: S) -> To {
        To {
            name: name.into(),
            tls: None,
        }
    }
}

impl To {
    /// Speaks TLS. Unless `tls` names the server itself, it must prove to be the host of `HOST:PORT`; at
    /// a Unix socket, `localhost`.
    #[must_use]
    pub fn tls(mut self, tls: TlsClient) -> To {
        self.tls = Some(tls);
        self
    }

    /// Checks that the address has one of the forms above; does not check that such a server
    /// exists.
    ///
    /// # Errors
    ///
    /// [`Error::Address`] says which forms there are.
    ///
    /// ```
    /// use tidewire_ingest::client::To;
    ///
    /// assert!(To::from("logs.example:7400").check().is_ok());
    /// assert!(To::from("logs.example").check().is_err());
    /// ```
    pub fn check(&self) -> Result<(), Error> {
        Server::named(self.clone()).map(drop)
    }

    /// Without the port, and without the brackets of an IPv6 address.
    fn host(&self) -> &str {
        if self.name.starts_with(UNIX) {
            return "localhost";
        }
        let host = self
            .name
            .rsplit_once(':')
            .map_or(&*self.name, |(host, _)| host);
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        bare.unwrap_or(host)
    }
}

/// The prefix of a Unix socket's address.
const UNIX: &str = "unix:";

/// The server's address, as the caller gave it. The name is looked up for each attempt, so that a
/// server that is not known yet, or has moved, is found.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) name: String,
    to: To,
}

impl Server {
    /// `HOST:PORT` or a Unix socket; whether there is such a host is not asked yet.
    pub(super) fn named(to: To) -> Result<Server, Error> {
        let server = Server {
            name: to.name.clone(),
            to,
        };
        if let Some(place) = server.name.strip_prefix(UNIX) {
            let place = unix_socket(place).map_err(|e| server.unknown(e));
            return place.map(|_| server);
        }
        let port = server.name.rsplit_once(':');
        let port = port.map(|(_, port)| port.parse::<u16>());
        match port {
            Some(Ok(_)) => Ok(server),
            _ => Err(server.unknown(io::Error::new(
                io::ErrorKind::InvalidInput,
                "write it like HOST:PORT, unix:/PATH or unix:@NAME",
            ))),
        }
    }

    /// A server that this server has named. The client uses the same TLS settings for it. `None` if
    /// the place is not of the form `HOST:PORT`: other forms could name a socket on this host.
    pub(super) fn named_by(&self, place: &str) -> Option<Server> {
        let to = To {
            name: place.to_owned(),
            tls: self.to.tls.clone(),
        };
        let is_local = place.starts_with(UNIX);
        Server::named(to).ok().filter(|_| !is_local)
    }

    fn unknown(&self, source: io::Error) -> Error {
        Error::Address {
            to: self.name.clone(),
            source: Arc::new(source),
        }
    }

    /// Looks the host up, and connects to the first address that answers.
    pub(super) fn connect(&self, timeout: Duration) -> Result<Line, Error> {
        if let Some(place) = self.name.strip_prefix(UNIX) {
            let place = unix_socket(place).map_err(|e| self.unknown(e))?;
            let socket = connect_unix(&place).map_err(|e| self.failed("connect to", e))?;
            return self.secured(socket, timeout);
        }
        let addrs = self.name.to_socket_addrs().map_err(|e| self.unknown(e))?;
        let addrs: Vec<SocketAddr> = addrs.collect();
        if addrs.is_empty() {
            return Err(self.unknown(io::ErrorKind::NotFound.into()));
        }
        let mut last = None;
        for addr in &addrs {
            match TcpStream::connect_timeout(addr, timeout) {
                Ok(socket) => {
                    // Pieces are whole messages, and gathered already.
                    let set = socket.set_nodelay(true);
                    set.map_err(|e| self.failed("set up", e))?;
                    return self.secured(socket, timeout);
                }
                Err(e) => last = Some(e),
            }
        }
        let last = last.expect("there is an address");
        Err(self.failed("connect to", last))
    }

    fn secured(&self, socket: TcpStream, timeout: Duration) -> Result<Line, Error> {
        let Some(tls) = &self.to.tls else {
            return Ok(Line::Plain(socket));
        };
        let stream = tls.connect(socket, self.to.host(), timeout);
        match stream {
            Ok(stream) => Ok(Line::Tls(Box::new(stream))),
            Err(e) => Err(self.failed("speak TLS with", e)),
        }
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

/// Whether the time set for an answer has passed.
pub(super) fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// The address behind `unix:`.
fn unix_socket(place: &str) -> io::Result<SocketAddrUnix> {
    let addr = match place.strip_prefix('@') {
        Some(name) if !name.is_empty() => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        None if place.starts_with('/') => SocketAddrUnix::new(place),
        _ => {
            let what = "a Unix socket is unix:/PATH or unix:@NAME";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    };
    Ok(addr?)
}

/// Without waiting: where too many wait to be accepted, that is an error, and can be tried again.
fn connect_unix(place: &SocketAddrUnix) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, place)?;
    // Only operations that streams of both families have are used: reading, writing, waiting,
    // closing.
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// A connection.
pub(super) enum Line {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket().fmt(f)
    }
}

impl Line {
    /// The TCP socket, for setting its options.
    pub(super) fn socket(&self) -> &TcpStream {
        match self {
            Line::Plain(socket) => socket,
            Line::Tls(stream) => stream.socket(),
        }
    }

    /// Whether written bytes wait inside for the socket to take them.
    pub(super) fn holds_output(&self) -> bool {
        match self {
            Line::Plain(_) => false,
            Line::Tls(stream) => stream.wants_write(),
        }
    }

    /// Closes our side for writing; reading goes on.
    pub(super) fn end_writing(&mut self) -> io::Result<()> {
        match self {
            Line::Plain(socket) => socket.shutdown(Shutdown::Write),
            Line::Tls(stream) => stream.end_writing(),
        }
    }
}

impl Read for Line {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Line::Plain(socket) => socket.read(buffer),
            Line::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Line::Plain(socket) => socket.write(bytes),
            Line::Tls(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, all: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Line::Plain(socket) => socket.write_vectored(all),
            Line::Tls(stream) => stream.write_vectored(all),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Line::Plain(_) => Ok(()),
            Line::Tls(stream) => stream.flush(),
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_what_a_certificate_must_be_for() {
        for (name, host) in [
            ("logs.example:7400", "logs.example"),
            ("127.0.0.1:7400", "127.0.0.1"),
            ("[::1]:7400", "::1"),
            ("unix:/run/tidewire.sock", "localhost"),
        ] {
            assert_eq!(To::from(name).host(), host);
        }
    }

    #[test]
    fn a_unix_socket_has_a_path_or_a_name() {
        for (name, is_one) in [
            ("unix:/run/tidewire.sock", true),
            ("unix:@tidewire", true),
            ("unix:", false),
            ("unix:@", false),
            ("unix:relative", false),
        ] {
            assert_eq!(Server::named(To::from(name)).is_ok(), is_one, "{name}");
        }
    }
}
