//! TLS echo: a layer around a protocol that knows nothing of it.
//!
//! rustls does no input or output of its own either: it turns records into plaintext and back. So
//! `Tls<P>` is a protocol like any other, around an unchanged `P`, and runs on every engine.
//!
//! ```text
//! cargo run --example tls_echo
//! openssl s_client -connect 127.0.0.1:PORT
//! ```

mod common;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use tidewire::{
    Closed, ConnId, Conns, Cx, Inner, Input, Limits, LoopHandle, Next, Peer, Protocol, Refusal,
    Service, Turn,
};

/// Sends back what it gets. The same as in the example without TLS.
struct Echo;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

struct EchoService;

impl Service for EchoService {
    type Conn = Echo;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
        Ok(Echo)
    }
}

/// The layer: records outside, plaintext inside.
struct Tls<P: Protocol> {
    tls: ServerConnection,
    inner: Inner<P>,
    /// The peer has said that it sends no more.
    farewell: bool,
}

impl<P: Protocol> Tls<P> {
    /// Moves what can move: plaintext in, plaintext out, records out. What cannot is bounded: the
    /// inner protocol's output by its marks, plaintext not yet wanted by rustls.
    fn pump(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.inner.is_opened() && !self.tls.is_handshaking() {
            self.inner.open(cx);
        }
        loop {
            let moved = self.plaintext_in(cx) | self.plaintext_out(cx);
            self.records_out(cx);
            if !moved {
                break;
            }
        }
        if self.inner.is_done() || self.inner.is_done_writing() {
            self.tls.send_close_notify();
            self.records_out(cx);
        }
        self.inner.yield_to(cx);
    }

    fn plaintext_in(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let mut plain = [0; 4096];
        if !self.inner.wants_input() {
            return false;
        }
        match self.tls.reader().read(&mut plain) {
            Ok(0) if !self.farewell => {
                self.farewell = true;
                self.inner.peer_finished(cx);
                true
            }
            Ok(n) => {
                self.inner.received(&plain[..n], cx);
                n > 0
            }
            // Nothing there now.
            Err(_) => false,
        }
    }

    fn plaintext_out(&mut self, cx: &mut Cx<'_, Self>) -> bool {
        let tls = &mut self.tls;
        let took = self.inner.take_output(cx, |_, plain| {
            // Less than all when rustls has enough: its records go out first.
            tls.writer().write(plain).unwrap_or(0)
        });
        took > 0
    }

    fn records_out(&mut self, cx: &mut Cx<'_, Self>) {
        while self.tls.wants_write() {
            let mut out = Outwards(cx);
            if self.tls.write_tls(&mut out).is_err() {
                break;
            }
        }
    }

    /// Reads records; false if they are not TLS.
    fn records_in(&mut self, input: &mut Input<'_>) -> Result<(), rustls::Error> {
        let mut bytes = input.bytes();
        let all = bytes.len();
        // Refuses when enough plaintext waits inside.
        let _ = self.tls.read_tls(&mut bytes);
        input.consume(all - bytes.len());
        self.tls.process_new_packets().map(drop)
    }
}

/// Lets rustls write to a link.
struct Outwards<'a, 'b, P: Protocol>(&'a mut Cx<'b, P>);

impl<P: Protocol> Write for Outwards<'_, '_, P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.link.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<P: Protocol> Protocol for Tls<P> {
    type Local = P::Local;
    type Message = P::Message;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        while !input.is_empty() && (!self.inner.is_opened() || self.inner.wants_input()) {
            if self.records_in(input).is_err() {
                self.records_out(cx); // the alert
                cx.link.finish_because("not TLS, or broken");
                return Next::More;
            }
            self.pump(cx);
        }
        self.inner.next()
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.pump(cx);
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.pump(cx);
        if !self.farewell && !self.inner.is_done() {
            // Somebody may have cut the stream short: the end is not the peer's word.
            cx.link.abort_because("ended without a TLS farewell");
        }
    }

    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        self.inner.hung_up(cx);
        self.pump(cx);
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        self.inner.expired(cx);
        self.pump(cx);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.inner.is_opened() {
            return cx.link.finish();
        }
        self.inner.idle(cx);
        self.pump(cx);
    }

    fn posted(&mut self, message: P::Message, cx: &mut Cx<'_, Self>) {
        self.inner.posted(message, cx);
        self.pump(cx);
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.inner.is_opened() {
            return cx.link.finish();
        }
        self.inner.draining(cx);
        self.pump(cx);
    }

    fn undelivered(&mut self, to: ConnId, message: P::Message, cx: &mut Cx<'_, Self>) {
        self.inner.undelivered(to, message, cx);
        self.pump(cx);
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        self.inner.closed(why, turn);
    }
}

/// Puts TLS around every connection of a service.
struct Secured<S> {
    service: S,
    config: Arc<ServerConfig>,
    limits: Arc<Limits>,
}

impl<S: Service> Service for Secured<S> {
    type Conn = Tls<S::Conn>;

    fn on_loop(
        &self,
        at: LoopHandle<<S::Conn as Protocol>::Message>,
    ) -> <S::Conn as Protocol>::Local {
        self.service.on_loop(at)
    }

    fn loop_ended(&self, local: <S::Conn as Protocol>::Local) {
        self.service.loop_ended(local);
    }

    fn accept(
        &self,
        from: &Peer,
        local: &mut <S::Conn as Protocol>::Local,
    ) -> Result<Tls<S::Conn>, Refusal> {
        let protocol = self.service.accept(from, local)?;
        let tls = ServerConnection::new(self.config.clone());
        Ok(Tls {
            tls: tls.map_err(|_| Refusal::ByService("TLS is misconfigured"))?,
            inner: Inner::new(protocol, self.limits.clone()),
            farewell: false,
        })
    }

    fn woken(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, Tls<S::Conn>>) {
        all.each(local, |layer, cx| layer.pump(cx));
    }
}

fn main() {
    let args = common::args();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]);
    let made = made.expect("a self-signed certificate");
    let cert = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key)
        .expect("the key fits the certificate");
    let service = Secured {
        service: EchoService,
        config: Arc::new(config),
        limits: Arc::default(),
    };
    let (running, _) = common::start(&args, service);
    if args.self_test {
        let mut roots = RootCertStore::empty();
        roots.add(cert).expect("a certificate");
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        self_test(running.addrs()[0].tcp().expect("TCP"), Arc::new(config));
    }
    common::end(&args, running);
}

/// Sends more than fits any buffer on the way before it reads, and checks that all comes back, with
/// a farewell at the end.
fn self_test(addr: std::net::SocketAddr, config: Arc<ClientConfig>) {
    let name = ServerName::try_from("localhost").expect("a name");
    let client = ClientConnection::new(config, name).expect("a client");
    let socket = TcpStream::connect(addr).expect("connect");
    let mut stream = StreamOwned::new(client, socket);
    stream.write_all(b"hello").expect("write");
    let mut back = [0; 5];
    stream.read_exact(&mut back).expect("read");
    assert_eq!(&back, b"hello");

    for round in 0..20u8 {
        let sent: Vec<u8> = (0..100_000).map(|i| (i % 251) as u8 ^ round).collect();
        stream.write_all(&sent).expect("write");
        let mut back = vec![0; sent.len()];
        stream.read_exact(&mut back).expect("read");
        assert!(
            back == sent,
            "round {round}: another echo than what was sent"
        );
    }
    stream.conn.send_close_notify();
    stream.flush().expect("flush");
    // Clean only if the server says farewell too.
    assert_eq!(stream.read(&mut back).expect("a clean end"), 0);
}
