//! TLS in front of a server that knows none: each connection is decrypted and handed on, byte for byte, and so are ends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustix::event::{PollFd, PollFlags, poll};
use tidewire_tls::rustls::crypto::ring;
use tidewire_tls::rustls::pki_types::PrivateKeyDer;
use tidewire_tls::rustls::{ServerConfig, ServerConnection};
use tidewire_tls::{Client, Roots, TlsClient};

/// Decrypted bytes that wait for the server; beyond that nothing is read from the client.
const WAITING_MAX: usize = 1 << 20;

/// The certificate of every front, and its key.
fn certified() -> &'static CertifiedKey<rcgen::KeyPair> {
    static CERTIFIED: OnceLock<CertifiedKey<rcgen::KeyPair>> = OnceLock::new();
    CERTIFIED.get_or_init(|| generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap())
}

/// A client that trusts the front.
pub(crate) fn client() -> Option<TlsClient> {
    let roots = Roots::from_pem(certified().cert.pem().as_bytes()).unwrap();
    Some(Client::new(&roots).build().unwrap())
}

/// Where the server is reached over TLS.
pub(crate) fn of(server: SocketAddr) -> SocketAddr {
    front(server, true)
}

/// Where it is reached over TLS, and an end of its output is no more than an end of the TCP connection.
pub(crate) fn that_says_no_end(server: SocketAddr) -> SocketAddr {
    front(server, false)
}

fn front(server: SocketAddr, says_end: bool) -> SocketAddr {
    let key = PrivateKeyDer::try_from(certified().signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified().cert.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, config) = (client.unwrap(), config.clone());
            thread::spawn(move || {
                let tls = ServerConnection::new(config).unwrap();
                // However it ends, both connections end with it.
                let _ = Relay::new(tls, client, server, says_end).and_then(Relay::run);
            });
        }
    });
    addr
}

struct Relay {
    tls: ServerConnection,
    client: TcpStream,
    server: TcpStream,
    says_end: bool,
    /// Decrypted, not yet taken by the server.
    waiting: Vec<u8>,
    client_ended: bool,
    server_ended: bool,
    /// The end of each was passed on to the other.
    told_server: bool,
    told_client: bool,
}

impl Relay {
    fn new(
        mut tls: ServerConnection,
        client: TcpStream,
        server: SocketAddr,
        says_end: bool,
    ) -> io::Result<Relay> {
        let server = TcpStream::connect(server)?;
        for socket in [&client, &server] {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
        }
        tls.set_buffer_limit(None);
        Ok(Relay {
            tls,
            client,
            server,
            says_end,
            waiting: Vec::new(),
            client_ended: false,
            server_ended: false,
            told_server: false,
            told_client: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        loop {
            self.send()?;
            if self.told_server && self.told_client {
                return Ok(());
            }
            self.wait()?;
            self.receive()?;
        }
    }

    fn send(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.client) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                sent => drop(sent?),
            }
        }
        if !self.waiting.is_empty() {
            match self.server.write(&self.waiting) {
                Ok(taken) => drop(self.waiting.drain(..taken)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        if self.client_ended && self.waiting.is_empty() && !self.told_server {
            self.told_server = true;
            self.server.shutdown(Shutdown::Write)?;
        }
        if self.server_ended && !self.tls.wants_write() && !self.told_client {
            self.told_client = true;
            self.client.shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let flags = |reads: bool, writes: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            flags
        };
        let sends = self.tls.wants_write();
        let takes = !self.client_ended && self.waiting.len() < WAITING_MAX;
        // A socket of which nothing is wanted would wake by its end for ever.
        let mut fds = Vec::new();
        for (socket, flags) in [
            (&self.client, flags(takes, sends)),
            (
                &self.server,
                flags(!self.server_ended && !sends, !self.waiting.is_empty()),
            ),
        ] {
            if !flags.is_empty() {
                fds.push(PollFd::new(socket, flags));
            }
        }
        poll(&mut fds, None)?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<()> {
        if !self.client_ended && self.waiting.len() < WAITING_MAX {
            match self.tls.read_tls(&mut self.client) {
                Ok(0) => self.client_ended = true,
                Ok(_) => {
                    let state = self
                        .tls
                        .process_new_packets()
                        .map_err(|e| io::Error::new(ErrorKind::InvalidData, e))?;
                    let (come, ended) = (state.plaintext_bytes_to_read(), state.peer_has_closed());
                    let old = self.waiting.len();
                    self.waiting.resize(old + come, 0);
                    self.tls.reader().read_exact(&mut self.waiting[old..])?;
                    self.client_ended |= ended;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        if !self.server_ended && !self.tls.wants_write() {
            let mut bytes = [0; 16 << 10];
            match self.server.read(&mut bytes) {
                Ok(0) => {
                    self.server_ended = true;
                    if self.says_end {
                        self.tls.send_close_notify();
                    }
                }
                Ok(come) => self.tls.writer().write_all(&bytes[..come])?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
