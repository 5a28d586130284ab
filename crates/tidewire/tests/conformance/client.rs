//! The other end: plain blocking sockets that give up instead of hanging.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use socket2::SockRef;

/// Longest wait for anything; a case that meets it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback address that no other case uses, with port 0: for cases that need a port of it to stay
/// free. On the usual address it could become some other case's at any time.
pub(crate) fn lonely() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [high, low] = NEXT.fetch_add(1, Relaxed).to_be_bytes();
    let by_process = 1 + (std::process::id() % 250) as u8;
    ([127, by_process, high, low.max(1)], 0).into()
}

/// A blocking connection to the server under test.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn connect(to: SocketAddr) -> Client {
        Client::try_connect(to).expect("the server accepts")
    }

    pub(crate) fn try_connect(to: SocketAddr) -> io::Result<Client> {
        Client::adopt(TcpStream::connect_timeout(&to, PATIENCE)?)
    }

    /// Fails unless the server resets the connection, perhaps before this end knows that it has one.
    pub(crate) fn connect_to_be_reset(to: SocketAddr) {
        match Client::try_connect(to) {
            Ok(mut client) => client.expect_reset(),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        }
    }

    pub(crate) fn adopt(stream: TcpStream) -> io::Result<Client> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server takes input");
    }

    /// Whether the connection still takes them.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// Exactly `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Vec<u8> {
        let mut got = vec![0; n];
        self.0.read_exact(&mut got).expect("the server answers");
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
        self.0.read_to_end(&mut got).expect("an orderly end");
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
            match self.0.read(&mut buffer) {
                Ok(0) => panic!("an orderly end instead of a reset"),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return,
                Err(e) => panic!("{e} instead of a reset"),
            }
        }
    }

    /// Ends this side's sending.
    pub(crate) fn finish(&self) {
        self.0.shutdown(Shutdown::Write).expect("still connected");
    }

    /// Cuts the connection.
    pub(crate) fn reset(self) {
        SockRef::from(&self.0)
            .set_linger(Some(Duration::ZERO))
            .expect("a socket option");
    }

    pub(crate) fn second(&self) -> Client {
        Client(self.0.try_clone().expect("a descriptor"))
    }
}
