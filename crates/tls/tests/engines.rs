//! TLS over real sockets, on every engine, against rustls's own stream and openssl.
#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

mod common;
#[path = "../../tidewire/tests/shared/every_engine.rs"]
mod every_engine;
#[path = "../../tidewire/tests/shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Authority, Habit, Talk};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, RootCertStore,
    SignatureScheme, StreamOwned,
};
use tidewire::{Builder, Closed, Counters, Dial, Layered, Running};
use tidewire_tls::{Certificates, Client, Server, rustls};

const NAME: &str = "it.example";
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `f` with an echo server on every engine that works here.
fn on_every_engine(server: impl Fn() -> Server, f: impl Fn(SocketAddr, &Talk, &Running)) {
    of_habit_on_every_engine(Habit::Echo, server, f);
}

fn of_habit_on_every_engine(
    habit: Habit,
    server: impl Fn() -> Server,
    f: impl Fn(SocketAddr, &Talk, &Running),
) {
    let talk = RefCell::new(Talk::new(habit));
    let build = |builder: &mut Builder| {
        talk.replace(Talk::new(habit));
        let tls = server().build().unwrap();
        builder.serve("127.0.0.1:0", Layered::new(tls, talk.borrow().clone()));
    };
    every_engine::on_every_engine(build, |running| {
        f(running.addrs()[0].tcp().unwrap(), &talk.borrow(), &running);
        running.stop(Duration::from_secs(10));
    });
}

fn until(running: &Running, done: impl Fn(&Counters) -> bool) {
    let start = Instant::now();
    while !done(&running.counters()) {
        assert!(start.elapsed() < PATIENCE, "{}", running.counters());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn client(authority: &Authority) -> Arc<ClientConfig> {
    let store: RootCertStore = authority.store();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(store)
        .with_no_client_auth();
    Arc::new(config)
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn connect(addr: SocketAddr, config: &Arc<ClientConfig>) -> Stream {
    let name = ServerName::try_from(NAME).unwrap();
    let socket = TcpStream::connect(addr).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), socket)
}

fn exchange(stream: &mut Stream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes);
}

/// Up to the farewell.
fn end(mut stream: Stream) {
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    assert_eq!(stream.read(&mut [0; 16]).expect("a clean end"), 0);
}

#[test]
fn rustls_streams_are_served() {
    let authority = Authority::new();
    let config = client(&authority);
    on_every_engine(
        || Server::new(authority.certificate(NAME)),
        |addr, _, running| {
            let mut streams: Vec<Stream> = (0..5).map(|_| connect(addr, &config)).collect();
            for round in 0..10u8 {
                for stream in &mut streams {
                    let bytes: Vec<u8> = (0..50_000).map(|i| (i % 251) as u8 ^ round).collect();
                    exchange(stream, &bytes);
                }
            }
            streams.into_iter().for_each(end);
            until(running, |c| c.closed_for(Closed::Finished) == 5);
        },
    );
}

/// A stream that ends without TLS's farewell may have been cut short by an
/// attacker.
#[test]
fn an_end_without_a_farewell_is_not_the_peers_word() {
    let authority = Authority::new();
    let config = client(&authority);
    on_every_engine(
        || Server::new(authority.certificate(NAME)),
        |addr, talk, running| {
            let mut stream = connect(addr, &config);
            exchange(&mut stream, b"hello");
            stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
            until(running, |c| c.closed_for(Closed::ByProtocol("")) == 1);
            assert_eq!(
                talk.log.get().closed,
                ["the stream ended without TLS's farewell"]
            );
        },
    );
}

/// A request, and right behind it the end of the client's sending, with TLS's farewell and without: the request is answered. What
/// the service answers later is the service's affair: this one answers at once.
#[test]
fn what_comes_with_the_end_is_answered() {
    const CLIENTS: u64 = 30;
    let authority = Authority::new();
    let config = client(&authority);
    for farewell in [true, false] {
        on_every_engine(
            || Server::new(authority.certificate(NAME)),
            |addr, talk, running| {
                for _ in 0..CLIENTS {
                    let mut stream = connect(addr, &config);
                    exchange(&mut stream, b"hello");
                    stream.conn.writer().write_all(b"one more").unwrap();
                    if farewell {
                        stream.conn.send_close_notify();
                    }
                    // All records by one call, and the end behind them.
                    let mut records = Vec::new();
                    while stream.conn.wants_write() {
                        stream.conn.write_tls(&mut records).unwrap();
                    }
                    stream.sock.write_all(&records).unwrap();
                    stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
                    let mut back = Vec::new();
                    let end = stream.read_to_end(&mut back);
                    assert_eq!(back, b"one more", "{end:?}, farewell: {farewell}");
                }
                until(running, |c| c.closed_total() == CLIENTS);
                let why = match farewell {
                    true => "finished",
                    false => "the stream ended without TLS's farewell",
                };
                assert_eq!(talk.log.get().closed, vec![why; CLIENTS as usize]);
            },
        );
    }
}

/// A request and a farewell in one flight, with the end of the connection behind them and without: what was answered has left
/// before the service, which is told of the farewell, aborts.
#[test]
fn an_abort_at_a_farewell_sends_what_was_answered() {
    const CLIENTS: u64 = 30;
    let authority = Authority::new();
    let config = client(&authority);
    for finishes in [true, false] {
        of_habit_on_every_engine(
            Habit::Offended,
            || Server::new(authority.certificate(NAME)),
            |addr, _, running| {
                for _ in 0..CLIENTS {
                    let mut stream = connect(addr, &config);
                    exchange(&mut stream, b"hello");
                    stream.conn.writer().write_all(b"one more").unwrap();
                    stream.conn.send_close_notify();
                    let mut records = Vec::new();
                    while stream.conn.wants_write() {
                        stream.conn.write_tls(&mut records).unwrap();
                    }
                    stream.sock.write_all(&records).unwrap();
                    if finishes {
                        // The server may have aborted already.
                        let _ = stream.sock.shutdown(std::net::Shutdown::Write);
                    }
                    let mut back = Vec::new();
                    let end = stream.read_to_end(&mut back);
                    assert_eq!(back, b"one more", "{end:?}, finishes: {finishes}");
                }
                until(running, |c| c.closed_for(Closed::Aborted) == CLIENTS);
            },
        );
    }
}

/// Makes something else of a good record.
type Breaks = fn(&mut Vec<u8>);

/// Ways in which the last record of a flight is no record of this connection, made of a good one.
const FAULTS: [(&str, Breaks); 4] = [
    ("one bit is wrong", |record| {
        *record.last_mut().unwrap() ^= 1
    }),
    ("no such type of record", |record| record[0] = 99),
    ("longer than a record may be", |record| record[3] = 0xff),
    ("an alert in the clear", |record| {
        *record = vec![21, 3, 3, 0, 2, 2, 40];
    }),
];

/// Each message as a record.
fn records_of(writer: &mut dyn FnMut(&[u8], &mut Vec<u8>), messages: &[&[u8]]) -> Vec<Vec<u8>> {
    let record = |message: &&[u8]| {
        let mut record = Vec::new();
        writer(message, &mut record);
        record
    };
    messages.iter().map(record).collect()
}

/// These messages, and a broken record right behind them.
fn flight(stream: &mut Stream, messages: &[&[u8]], breaks: Breaks) -> Vec<u8> {
    let mut write = |message: &[u8], record: &mut Vec<u8>| {
        stream.conn.writer().write_all(message).unwrap();
        while stream.conn.wants_write() {
            stream.conn.write_tls(record).unwrap();
        }
    };
    let mut records = records_of(&mut write, messages);
    let mut broken = records_of(&mut write, &[b"nothing to be read"]).remove(0);
    breaks(&mut broken);
    records.push(broken);
    records.concat()
}

/// All that can be read, and what is wrong with what comes behind it. A stream of rustls says what is wrong with what it has
/// received before it gives what came whole.
fn all_before_a_fault(mut stream: Stream) -> (Vec<u8>, Result<(), rustls::Error>) {
    let mut all = Vec::new();
    loop {
        let received = stream.conn.read_tls(&mut stream.sock).unwrap();
        let processed = stream.conn.process_new_packets();
        let _ = stream.conn.reader().read_to_end(&mut all);
        match processed {
            Ok(_) if received > 0 => {}
            Ok(_) => return (all, Ok(())),
            Err(e) => return (all, Err(e)),
        }
    }
}

fn client_of(
    authority: &Authority,
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(authority.store())
        .with_no_client_auth();
    Arc::new(config)
}

const VERSIONS: [&rustls::SupportedProtocolVersion; 2] =
    [&rustls::version::TLS12, &rustls::version::TLS13];

/// Requests and a broken record in one flight: what came before the fault is served, and answered before the alert.
#[test]
fn what_comes_before_a_broken_record_is_answered() {
    let authority = Authority::new();
    let configs = VERSIONS.map(|version| client_of(&authority, version));
    on_every_engine(
        || Server::new(authority.certificate(NAME)),
        |addr, _, running| {
            let mut closed = 0;
            for (config, version) in configs.iter().zip(VERSIONS) {
                for (fault, breaks) in FAULTS {
                    let mut stream = connect(addr, config);
                    exchange(&mut stream, b"hello");
                    let flight = flight(&mut stream, &[b"one ", b"more"], breaks);
                    stream.sock.write_all(&flight).unwrap();
                    let (back, end) = all_before_a_fault(stream);
                    assert_eq!(back, b"one more", "{fault}, {:?}: {end:?}", version.version);
                    let told = matches!(end, Err(rustls::Error::AlertReceived(_)));
                    assert!(told || fault.starts_with("an alert"), "{fault}: {end:?}");
                    closed += 1;
                    until(running, |c| c.closed_total() == closed);
                }
            }
        },
    );
}

/// An answer that is longer than what a connection takes at once, and the broken record behind its request.
#[test]
fn a_long_answer_leaves_before_the_alert() {
    const LEN: usize = 8 << 20;
    let authority = Authority::new();
    let config = client(&authority);
    let build = |builder: &mut Builder| {
        let tls = Server::new(authority.certificate(NAME)).build().unwrap();
        let answers = tidewire::on_input(|input, link| {
            input.consume(input.len());
            link.write(&vec![7; LEN]);
            tidewire::Next::More
        });
        builder.serve("127.0.0.1:0", Layered::new(tls, answers));
    };
    every_engine::on_every_engine(build, |running| {
        for (fault, breaks) in FAULTS {
            let mut stream = connect(running.addrs()[0].tcp().unwrap(), &config);
            stream.conn.complete_io(&mut stream.sock).unwrap();
            let flight = flight(&mut stream, &[b"go on"], breaks);
            stream.sock.write_all(&flight).unwrap();
            let (back, end) = all_before_a_fault(stream);
            assert_eq!(back.len(), LEN, "{fault}: {end:?}");
        }
        running.stop(Duration::from_secs(10));
    });
}

/// The other way round: a client reads what its server had sent before the fault, on loops and on a socket of its own.
#[test]
fn a_client_reads_what_comes_before_a_broken_record() {
    let authority = Authority::new();
    let config = authority.server_config(NAME);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = is_over.clone();
    let serve = std::thread::spawn(move || {
        loop {
            let (mut socket, _) = listener.accept().unwrap();
            if ends.load(SeqCst) {
                return;
            }
            let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
            tls.complete_io(&mut socket).unwrap();
            let mut write = |message: &[u8], record: &mut Vec<u8>| {
                tls.writer().write_all(message).unwrap();
                while tls.wants_write() {
                    tls.write_tls(record).unwrap();
                }
            };
            let mut records = records_of(&mut write, &[b"some ", b"news", b"lost"]);
            *records[2].last_mut().unwrap() ^= 1;
            socket.write_all(&records.concat()).unwrap();
            // Until the client has seen that.
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    let tls = || Client::new(&authority.roots()).server_name(NAME).unwrap();
    let dials = RefCell::new(None);
    let build = |builder: &mut Builder| {
        let talk = Talk::new(Habit::Echo);
        let service = builder.service(Layered::new(tls().build().unwrap(), talk.clone()));
        dials.replace(Some((talk, service)));
    };
    every_engine::on_every_engine(build, |running| {
        let (talk, service) = dials.take().expect("it was built");
        assert!(running.dial(service, Dial::to(addr)).is_ok());
        until(&running, |c| c.closed_total() == 1);
        assert_eq!(talk.log.get().echoed, b"some news".len());
        running.stop(Duration::from_secs(10));
    });
    let socket = TcpStream::connect(addr).unwrap();
    let mut stream = tls()
        .build()
        .unwrap()
        .connect(socket, NAME, PATIENCE)
        .unwrap();
    let mut got = Vec::new();
    let end = stream.read_to_end(&mut got).unwrap_err();
    assert_eq!(
        (&got[..], end.kind()),
        (&b"some news"[..], std::io::ErrorKind::InvalidData)
    );
    drop(stream);
    is_over.store(true, SeqCst);
    drop(TcpStream::connect(addr).unwrap());
    serve.join().unwrap();
}

/// What has come before a reset is received.
#[test]
fn what_comes_with_a_reset_is_received() {
    let authority = Authority::new();
    let config = client(&authority);
    on_every_engine(
        || Server::new(authority.certificate(NAME)),
        |addr, talk, running| {
            for n in 1..=10 {
                let mut stream = connect(addr, &config);
                exchange(&mut stream, b"hello");
                stream.write_all(b"one more").unwrap();
                let socket = socket2::SockRef::from(&stream.sock);
                socket.set_linger(Some(Duration::ZERO)).unwrap();
                drop(stream);
                until(running, |c| c.closed_total() == n);
                assert_eq!(talk.log.get().echoed, n as usize * 13);
            }
        },
    );
}

#[test]
fn sessions_are_resumed_unless_told_otherwise() {
    let authority = Authority::new();
    for on in [true, false] {
        on_every_engine(
            || Server::new(authority.certificate(NAME)).resumption(on),
            |addr, _, _| {
                let config = client(&authority);
                let kinds = [(); 2].map(|()| {
                    let mut stream = connect(addr, &config);
                    exchange(&mut stream, b"hello");
                    let kind = stream.conn.handshake_kind();
                    end(stream);
                    kind
                });
                let second = if on {
                    HandshakeKind::Resumed
                } else {
                    HandshakeKind::Full
                };
                assert_eq!(kinds, [Some(HandshakeKind::Full), Some(second)]);
            },
        );
    }
}

#[test]
fn certificates_are_replaced_without_a_restart() {
    let authority = Authority::new();
    let config = client(&authority);
    let certificates = Certificates::from(authority.certificate(NAME));
    on_every_engine(
        || Server::new(&certificates).resumption(false),
        |addr, _, _| {
            let shown = |stream: &Stream| stream.conn.peer_certificates().unwrap()[0].to_vec();
            let mut before = connect(addr, &config);
            exchange(&mut before, b"before");
            certificates.replace(authority.certificate(NAME));
            let mut after = connect(addr, &config);
            exchange(&mut after, b"after");
            assert_ne!(shown(&before), shown(&after));
            exchange(&mut before, b"still there");
            end(before);
            end(after);
        },
    );
}

/// A service that is connected to and one that connects, of the same loops.
#[test]
fn services_know_each_other_on_every_engine() {
    let authority = Authority::new();
    let shown = authority.certificate("me.example");
    let ends = RefCell::new(None);
    let build = |builder: &mut Builder| {
        let (served, dials) = (Talk::new(Habit::Echo), Talk::says(*b"hello"));
        let tls = Server::new(authority.certificate(NAME))
            .require_client_certificates(&authority.roots())
            .alpn(["b", "c"]);
        let tls = tls.build().unwrap();
        builder.serve("127.0.0.1:0", Layered::new(tls, served.clone()));
        let tls = Client::new(&authority.roots()).server_name(NAME).unwrap();
        let tls = tls.certificate(&shown).alpn(["a", "c"]).build().unwrap();
        let service = builder.service(Layered::new(tls, dials.clone()));
        ends.replace(Some((served, dials, service)));
    };
    every_engine::on_every_engine(build, |running| {
        let (served, dials, service) = ends.take().expect("it was built");
        let dial = Dial::to(running.addrs()[0].clone());
        assert!(running.dial(service, dial).is_ok());
        until(&running, |c| c.closed_total() == 2);
        assert_eq!(dials.log.get().got, b"hello");
        common::know_each_other(&served.log.get(), &dials.log.get(), (NAME, b"c"));
        running.stop(Duration::from_secs(10));
    });
}

#[test]
fn openssl_is_served() {
    if Command::new("openssl").arg("version").output().is_err() {
        return eprintln!("skipped: there is no openssl here");
    }
    let authority = Authority::new();
    let file = std::env::temp_dir().join(format!("tidewire-tls-{}.pem", std::process::id()));
    std::fs::write(&file, authority.pem()).unwrap();
    on_every_engine(
        || Server::new(authority.certificate(NAME)).alpn(["echo"]),
        |addr, talk, running| {
            for version in ["-tls1_2", "-tls1_3"] {
                let mut child = Command::new("openssl")
                    .args(["s_client", "-quiet", "-verify_return_error", version])
                    .args([
                        "-servername",
                        NAME,
                        "-verify_hostname",
                        NAME,
                        "-alpn",
                        "echo",
                    ])
                    .args(["-connect", &addr.to_string(), "-CAfile"])
                    .arg(&file)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    .spawn()
                    .unwrap();
                let mut stdin = child.stdin.take().unwrap();
                let mut stdout = BufReader::new(child.stdout.take().unwrap());
                for n in 0..20 {
                    let line = format!("hello {n} {}\n", "x".repeat(n * 100));
                    stdin.write_all(line.as_bytes()).unwrap();
                    let mut back = String::new();
                    stdout.read_line(&mut back).unwrap();
                    assert_eq!(back, line);
                }
                child.kill().unwrap();
                child.wait().unwrap();
            }
            until(running, |c| c.open == 0);
            for peer in &talk.log.get().peers {
                assert_eq!(peer.identity().server_name.as_deref(), Some(NAME));
                assert_eq!(peer.identity().alpn.as_deref(), Some(&b"echo"[..]));
            }
        },
    );
    std::fs::remove_file(file).unwrap();
}

/// Takes every certificate: the example makes its own.
#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn the_example_serves_and_stops_on_a_signal() {
    let Some(example) = example::Serving::start("tls_echo", &["127.0.0.1:0"]) else {
        return;
    };
    let at = example.at.split(' ').next().unwrap().parse().unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
        .with_no_client_auth();
    let mut stream = connect(at, &Arc::new(config));
    exchange(&mut stream, b"hello");
    drop(stream);
    example.stop().unwrap();
}
