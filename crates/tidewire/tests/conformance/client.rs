//! The other end: a blocking connection that gives up instead of hanging, by a real socket or on a
//! simulated network.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use socket2::{Domain, SockRef, Type};
use tidewire::Endpoint;
use tidewire::sim::PlainId;

use crate::stream::Stream;
use crate::world;

/// Longest wait for anything; a case that meets it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address that no other case uses, with port 0: for cases that need a port of it to
/// stay free. On the usual address it could become some other case's at any time. In a simulated
/// world, one with a port that no other client of the case uses.
pub(crate) fn lonely() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    if world::is_simulated() {
        return ([127, 0, 0, 1], world::unused_port()).into();
    }
    let [high, low] = NEXT.fetch_add(1, Relaxed).to_be_bytes();
    let by_process = 1 + (std::process::id() % 250) as u8;
    ([127, by_process, high, low.max(1)], 0).into()
}

/// A blocking connection to the server under test.
pub(crate) struct Client(Socket);

enum Socket {
    Real(TcpStream),
    Unix(UnixStream),
    Simulated(Stream),
}

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Client {
        Client::try_connect(to).expect("the server accepts")
    }

    pub(crate) fn try_connect(to: SocketAddr) -> io::Result<Client> {
        Client::try_connect_within(to, PATIENCE)
    }

    pub(crate) fn try_connect_within(to: SocketAddr, most: Duration) -> io::Result<Client> {
        match world::is_simulated() {
            true => Ok(Client(Socket::Simulated(Stream::connect(
                None,
                &to.into(),
                most,
            )?))),
            false => Client::adopt(TcpStream::connect_timeout(&to, most)?),
        }
    }

    /// With an address of its own, of this machine.
    pub(crate) fn try_connect_from(from: SocketAddr, to: SocketAddr) -> io::Result<Client> {
        if world::is_simulated() {
            let from = SocketAddr::from((from.ip(), world::unused_port())).into();
            let stream = Stream::connect(Some(from), &to.into(), PATIENCE)?;
            return Ok(Client(Socket::Simulated(stream)));
        }
        let socket = socket2::Socket::new(Domain::for_address(to), Type::STREAM, None)?;
        socket.bind(&from.into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        Client::adopt(TcpStream::from(socket))
    }

    /// By a Unix socket.
    pub(crate) fn connect_unix(to: &Endpoint) -> Client {
        Client::try_connect_unix(to).expect("the server accepts")
    }

    pub(crate) fn try_connect_unix(to: &Endpoint) -> io::Result<Client> {
        if world::is_simulated() {
            return Ok(Client(Socket::Simulated(Stream::connect(
                None, to, PATIENCE,
            )?)));
        }
        let stream = match to {
            Endpoint::Unix(path) => UnixStream::connect(path)?,
            Endpoint::Abstract(name) => {
                UnixStream::connect_addr(&UnixAddr::from_abstract_name(name)?)?
            }
            other => panic!("{other} is no Unix socket"),
        };
        Ok(Client::adopt_unix(stream))
    }

    pub(crate) fn adopt_unix(stream: UnixStream) -> Client {
        let mut client = Client(Socket::Unix(stream));
        client.patience(PATIENCE);
        client
    }

    /// A client that a simulated listener has accepted.
    pub(crate) fn accepted(peer: PlainId) -> Client {
        Client(Socket::Simulated(Stream::of(peer)))
    }

    /// Fails unless the server resets the connection, perhaps before this end knows that it has one.
    pub(crate) fn connect_to_be_reset(to: SocketAddr) {
        match Client::try_connect(to) {
            Ok(mut client) => client.expect_reset(),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    pub(crate) fn adopt(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        let mut client = Client(Socket::Real(stream));
        client.patience(PATIENCE);
        Ok(client)
    }

    /// The socket, in cases that are about real ones.
    pub(crate) fn socket(&self) -> &TcpStream {
        match &self.0 {
            Socket::Real(stream) => stream,
            Socket::Unix(_) | Socket::Simulated(_) => panic!("the case is about a real socket"),
        }
    }

    /// How long reads and writes wait from now on.
    pub(crate) fn patience(&mut self, most: Duration) {
        match &mut self.0 {
            Socket::Real(stream) => {
                stream.set_nonblocking(most.is_zero()).expect("an option");
                if !most.is_zero() {
                    stream.set_read_timeout(Some(most)).expect("an option");
                    stream.set_write_timeout(Some(most)).expect("an option");
                }
            }
            Socket::Unix(stream) => {
                stream.set_nonblocking(most.is_zero()).expect("an option");
                if !most.is_zero() {
                    stream.set_read_timeout(Some(most)).expect("an option");
                    stream.set_write_timeout(Some(most)).expect("an option");
                }
            }
            Socket::Simulated(stream) => stream.patience = most,
        }
    }

    /// A small receive buffer of the kernel's.
    pub(crate) fn small_buffer(&self, bytes: usize) {
        if let Socket::Real(stream) = &self.0 {
            let set = SockRef::from(stream).set_recv_buffer_size(bytes);
            set.expect("an option");
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.write_all(bytes).expect("the server takes input");
    }

    /// Whether the connection still takes them.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.write_all(bytes).is_ok()
    }

    /// Exactly `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Vec<u8> {
        let mut got = vec![0; n];
        self.read_exact(&mut got).expect("the server answers");
        got
    }

    /// Fails unless the next bytes are these.
    pub(crate) fn expect(&mut self, bytes: &[u8]) {
        let got = self.take(bytes.len());
        assert!(
            got == bytes,
            "got {:?} instead of {:?}",
            String::from_utf8_lossy(&got),
            String::from_utf8_lossy(bytes)
        );
    }

    /// Everything up to the end of the stream.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut got = Vec::new();
        self.read_to_end(&mut got).expect("an orderly end");
        got
    }

    /// Fails unless the stream ends here, in order.
    pub(crate) fn expect_end(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{} bytes too many", rest.len());
    }

    /// Fails unless the server resets the connection; what comes before that is dropped.
    pub(crate) fn expect_reset(&mut self) {
        let mut buffer = [0; 4096];
        loop {
            match self.read(&mut buffer) {
                Ok(0) => panic!("an orderly end instead of a reset"),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return,
                Err(e) => panic!("{e} instead of a reset"),
            }
        }
    }

    /// Ends this side's sending.
    pub(crate) fn finish(&self) {
        match &self.0 {
            Socket::Real(stream) => stream.shutdown(Shutdown::Write).expect("still connected"),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Write).expect("still connected"),
            Socket::Simulated(stream) => stream.finish(),
        }
    }

    /// Ends this side's sending, if it still can.
    pub(crate) fn try_finish(&self) {
        match &self.0 {
            Socket::Real(stream) => drop(stream.shutdown(Shutdown::Write)),
            Socket::Unix(stream) => drop(stream.shutdown(Shutdown::Write)),
            Socket::Simulated(stream) => stream.finish(),
        }
    }

    /// Cuts the connection.
    pub(crate) fn reset(self) {
        match self.0 {
            Socket::Real(stream) => SockRef::from(&stream)
                .set_linger(Some(Duration::ZERO))
                .expect("a socket option"),
            Socket::Unix(_) => panic!("a Unix socket knows no reset"),
            Socket::Simulated(stream) => stream.reset(),
        }
    }

    pub(crate) fn second(&self) -> Client {
        Client(match &self.0 {
            Socket::Real(stream) => Socket::Real(stream.try_clone().expect("a descriptor")),
            Socket::Unix(stream) => Socket::Unix(stream.try_clone().expect("a descriptor")),
            Socket::Simulated(stream) => Socket::Simulated(stream.clone()),
        })
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Socket::Real(stream) => stream.read(into),
            Socket::Unix(stream) => stream.read(into),
            Socket::Simulated(stream) => stream.read(into),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Socket::Real(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
            Socket::Simulated(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
