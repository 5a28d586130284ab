//! TLS on a socket of one's own, for clients that run on no loop.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::client::TlsClient;
use crate::words;

/// A TLS connection on a socket: bytes written and read are the plaintext. Errors of TLS are of the
/// kind [`io::ErrorKind::InvalidData`], and say in words what is wrong; trying again does not help.
///
/// ```
/// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
/// # let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
/// # let certificate = tidewire_tls::Certificate::from_pem(chain.as_bytes(), key.as_bytes())?;
/// # let tls = tidewire_tls::Server::new(certificate).build()?;
/// # let echo = tidewire::on_input(|input, link| link.forward_all(input));
/// # let mut builder = tidewire::Builder::new();
/// # let running = builder.serve("127.0.0.1:0", tidewire::Layered::new(tls, echo)).start()?;
/// # let (authority, address) = (chain.as_bytes(), &running.addrs()[0]);
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::time::Duration;
/// use tidewire_tls::{Client, Roots};
///
/// let client = Client::new(&Roots::from_pem(authority)?).build()?;
/// let socket = TcpStream::connect(address)?;
/// let mut stream = client.connect(socket, "it.example", Duration::from_secs(30))?;
/// stream.socket().set_nodelay(true)?;
/// stream.write_all(b"hello")?;
/// assert!(!stream.wants_write(), "the socket blocks, so it has taken all");
/// stream.end_writing()?;
/// let mut said = String::new();
/// stream.read_to_string(&mut said)?;
/// assert_eq!(said, "hello"); // from an echo
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TlsStream {
    tls: ClientConnection,
    socket: TcpStream,
    /// What is wrong with what the server sent, told once all was read that came before it.
    fault: Option<rustls::Error>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsStream({:?})", self.socket)
    }
}

impl TlsClient {
    /// Makes the handshake on a connected socket, which must block; its time-outs are restored
    /// afterwards. The server must prove to be `host`, unless
    /// [another name](crate::Client::server_name) is set.
    ///
    /// # Errors
    /// `InvalidData`, with the reason as a text, if the server's identity is not the expected one,
    /// or either side rejects the other; `TimedOut` if the handshake takes longer than `within`;
    /// otherwise the socket's error.
    ///
    /// ```
    /// # let made = rcgen::generate_simple_self_signed(vec!["it.example".to_owned()]).unwrap();
    /// # let chain = made.cert.pem();
    /// use std::net::{TcpListener, TcpStream};
    /// use std::time::Duration;
    /// use tidewire_tls::{Client, Roots};
    ///
    /// // The server here never says a word.
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let client = Client::new(&Roots::from_pem(chain.as_bytes())?).build()?;
    /// let socket = TcpStream::connect(listener.local_addr()?)?;
    /// let error = client.connect(socket, "it.example", Duration::from_millis(10)).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::disallowed_methods, reason = "it runs on no loop")]
    pub fn connect(
        &self,
        mut socket: TcpStream,
        host: &str,
        within: Duration,
    ) -> io::Result<TlsStream> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| {
                let what = format!("{host:?} is no valid name for a certificate");
                io::Error::new(io::ErrorKind::InvalidInput, what)
            })?,
        };
        let mut tls = ClientConnection::new(self.config.clone(), name).map_err(|e| failed(&e))?;
        let before = (socket.read_timeout()?, socket.write_timeout()?);
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long");
        let start = Instant::now();
        // The last of the handshake leaves as well: a server that speaks first waits for it.
        while tls.is_handshaking() || tls.wants_write() {
            // A time-out of zero would be none.
            let left = within.checked_sub(start.elapsed());
            let left = left.filter(|left| !left.is_zero()).ok_or_else(late)?;
            socket.set_read_timeout(Some(left))?;
            socket.set_write_timeout(Some(left))?;
            // One read, so that the deadline is looked at between the bytes of a server that drips.
            if tls.wants_write() {
                tls.write_tls(&mut socket)?;
                continue;
            }
            match tls.read_tls(&mut socket) {
                Ok(0) => {
                    let what = "the server ended within the TLS handshake";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                Err(e) => return Err(e),
            }
            if let Err(e) = tls.process_new_packets() {
                // The alert; the connection is over anyway.
                let _ = tls.write_tls(&mut socket);
                return Err(failed(&e));
            }
        }
        socket.set_read_timeout(before.0)?;
        socket.set_write_timeout(before.1)?;
        Ok(TlsStream {
            tls,
            socket,
            fault: None,
        })
    }
}

impl TlsStream {
    /// The socket, for its options.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether written data waits for the socket. On a non-blocking socket, wait until it is
    /// writable, then [flush](Write::flush).
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Says that nothing more comes; reading goes on.
    ///
    /// # Errors
    /// The socket's.
    pub fn end_writing(&mut self) -> io::Result<()> {
        self.tls.send_close_notify();
        self.flush()?;
        self.socket.shutdown(Shutdown::Write)
    }
}

/// Reading does not wait for pending writes, so that a non-blocking socket can be read while its peer
/// reads nothing.
impl Read for TlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            // What came whole before the fault was read first.
            if let Some(e) = &self.fault {
                return Err(failed(e));
            }
            self.tls.read_tls(&mut self.socket)?;
            self.fault = self.tls.process_new_packets().err();
            if self.tls.wants_write() {
                // An answer of TLS's own, or an alert; what does not go now goes with the next write.
                let _ = self.tls.write_tls(&mut self.socket);
            }
        }
    }
}

impl Write for TlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, all: &[IoSlice<'_>]) -> io::Result<usize> {
        if all.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        loop {
            let taken = self.tls.writer().write_vectored(all)?;
            match self.flush() {
                // The record owns these bytes now; the next call reports why the socket does not
                // take them.
                _ if taken > 0 => return Ok(taken),
                Ok(()) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(_) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// The socket's, to be polled.
impl AsFd for TlsStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn failed(error: &rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words::why(error))
}
