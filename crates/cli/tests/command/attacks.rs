//! Many hostile clients in front of every service at once, in handshakes, headers of proxies, heads and frames, over
//! real sockets, on each engine: it survives, its memory stays where it was, what happened is counted, and others are served meanwhile.
//!
//! Long form: `TIDEWIRE_CROWD=1000 cargo test -p tidewire-cli --test command attacks::`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::pki::Files;
use crate::common::tls_client::{ask, config, secure, socket};
use crate::common::{PATIENCE, Running, addr, engines, resident, stderr, with_engines_at_once};
use rustix::process::Signal;
use tidewire_tls::rustls::ClientConfig;

/// Hostile clients at once.
fn crowd() -> usize {
    let asked = std::env::var("TIDEWIRE_CROWD").ok();
    asked.map_or(100, |n| n.parse().expect("a number"))
}

/// One service, and what it is asked and answers.
#[derive(Clone, Copy)]
struct Served {
    service: &'static str,
    question: &'static [u8],
    answer: &'static [u8],
}

const SERVICES: [Served; 6] = [
    Served {
        service: "echo",
        question: b"hello",
        answer: b"hello",
    },
    Served {
        service: "ack/sync",
        question: b"\x07\0\0\0\0\0\0\0\x01\0\0\0x",
        answer: b"\x07\0\0\0\0\0\0\0\0\0\0\0",
    },
    Served {
        service: "kv/resp",
        question: b"PING\r\n",
        answer: b"+PONG\r\n",
    },
    Served {
        service: "kv/binary",
        question: b"\x01\x00\x02\x01k",
        answer: b"\x03\0",
    },
    Served {
        service: "http",
        question: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        answer: b"HTTP/1.1 200 OK\r\n",
    },
    // A whole hello at level received, and the kind of the welcome.
    Served {
        service: "ingest",
        question: b"TIDE\x01\x01\x1b\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        answer: b"\x01",
    },
];

struct Server {
    running: Running,
    lines: Vec<String>,
    before: usize,
    _data: tempfile::TempDir,
}

impl Server {
    /// One that serves all of them, as many lines as that is.
    fn start(engine: &str, more: &[&str]) -> Server {
        let data = tempfile::tempdir().unwrap();
        let listen = SERVICES.map(|of| format!("{}=0", of.service));
        let mut args = vec![
            "serve",
            "--engine",
            engine,
            "--workers",
            "2",
            "--segment",
            "8MiB",
        ];
        args.extend(["--data", data.path().to_str().unwrap()]);
        args.extend(SERVICES.iter().map(|of| of.service));
        listen.iter().for_each(|at| args.extend(["--listen", at]));
        args.extend(more);
        let mut running = Running::start(&args);
        let lines: Vec<String> = SERVICES.iter().map(|_| running.line()).collect();
        if lines.iter().any(String::is_empty) {
            panic!("{lines:?}: {}", stderr(&running.end()));
        }
        let before = resident(running.pid());
        Server {
            running,
            lines,
            before,
            _data: data,
        }
    }

    fn at(&self, served: &Served) -> SocketAddr {
        let (name, mode) = served
            .service
            .split_once('/')
            .unwrap_or((served.service, ""));
        let is = |line: &&String| {
            let right = mode.is_empty() || line.contains(&format!(" mode={mode} "));
            line.contains(&format!("service={name} ")) && right
        };
        addr(self.lines.iter().find(is).expect(served.service))
    }

    /// Memory has not grown beyond this for each of a crowd.
    fn has_grown_by_less_than(&self, each: usize, what: &str) {
        let grown = resident(self.running.pid()).saturating_sub(self.before);
        let most = (32 << 20) + crowd() * each;
        assert!(
            grown < most,
            "{what}: memory has grown by {grown}, {most} at the most"
        );
    }

    /// What it has logged, up to its end.
    fn stop(self) -> String {
        self.running.signal(Signal::TERM);
        let output = self.running.end();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stderr(&output)
    }
}

/// Half a handshake, garbage, a hello that drips, and one that asks to begin again: none of them keeps others out.
#[test]
fn floods_of_handshakes() {
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    // The beginning of a hello: a record of 508 bytes.
    let half = b"\x16\x03\x01\x01\xfc\x01\x00\x01\xf8\x03\x03";
    with_engines_at_once(|engine| {
        let more = [&["--handshake", "3"], &files.serve()[..]].concat();
        let server = Server::start(engine, &more);
        for served in &SERVICES {
            let to = server.at(served);
            let mut open = Vec::new();
            for n in 0..crowd() {
                let mut hostile = socket(to);
                let says: &[u8] = match n % 4 {
                    0 => b"",
                    1 => half,
                    2 => b"\x16\x03\x01\x40\x01garbage",
                    _ => b"\x15\x03\x03\x00\x02\x02\x28",
                };
                let _ = hostile.write_all(says);
                open.push(hostile);
                if n % 20 == 0 {
                    let mut good = secure(socket(to), &client);
                    ask(&mut good, served.question, served.answer).unwrap();
                }
            }
            server.has_grown_by_less_than(64 << 10, &format!("{engine} {}", served.service));
            // All are cut, sooner or later, while others are served.
            for mut hostile in open {
                let mut rest = Vec::new();
                let _ = hostile.read_to_end(&mut rest);
                assert!(rest.first().is_none_or(|kind| *kind == 0x15), "{rest:?}");
            }
            let mut good = secure(socket(to), &client);
            ask(&mut good, served.question, served.answer).unwrap();
        }
        let said = server.stop();
        assert!(said.contains("the_TLS_handshake_took_too_long="), "{said}");
        assert!(said.contains("a TLS handshake failed"), "{said}");
    });
}

/// TLS 1.2 lets either side ask for another handshake, which costs the server far more than its client. It is refused.
#[test]
fn no_client_begins_a_handshake_again() {
    let files = Files::new();
    let server = Server::start("auto", &files.serve());
    let echo = server.at(&SERVICES[0]).to_string();
    let asked = Command::new("openssl")
        .args([
            "s_client",
            "-tls1_2",
            "-connect",
            &echo,
            "-CAfile",
            files.authority(),
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut asked) = asked else {
        println!("skipped: there is no openssl");
        server.stop();
        return;
    };
    // A line with only an R is a command: renegotiate.
    let mut stdin = asked.stdin.take().unwrap();
    stdin.write_all(b"hello\n").unwrap();
    let mut out = asked.stdout.take().unwrap();
    let mut said = Vec::new();
    while !said.windows(5).any(|w| w == b"hello") {
        let mut bytes = [0; 4096];
        let n = out.read(&mut bytes).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&bytes[..n]);
    }
    stdin.write_all(b"R\n").unwrap();
    drop(stdin);
    let _ = out.read_to_end(&mut said);
    let output = asked.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said).into_owned() + &stderr(&output);
    assert!(said.contains("RENEGOTIATING"), "{said}");
    assert!(
        said.contains("renegotiation"),
        "it is refused in a word of TLS: {said}"
    );
    SERVICES[0].serves_over(&server, &files);
    server.stop();
}

impl Served {
    fn serves_over(&self, server: &Server, files: &Files) {
        let mut good = secure(socket(server.at(self)), &config(&files.issuer.pem(), None));
        ask(&mut good, self.question, self.answer).unwrap();
    }
}

/// Headers of proxies that come a byte at a time, in front of every service.
#[test]
fn headers_of_proxies_that_drip() {
    let header = b"PROXY TCP4 192.0.2.7 192.0.2.1 5000 80\r\n";
    for engine in engines() {
        let more = ["--proxy-from", "127.0.0.0/8", "--handshake", "1", "--open"];
        let server = Server::start(engine, &more);
        let mut dripping = Vec::new();
        for served in &SERVICES {
            let to = server.at(served);
            dripping.extend((0..crowd() / 4).map(|_| socket(to)));
        }
        let begin = Instant::now();
        for n in 0.. {
            dripping.retain_mut(|client| client.write_all(&header[n % 30..][..1]).is_ok());
            if dripping.is_empty() {
                break;
            }
            assert!(begin.elapsed() < PATIENCE, "{} are left", dripping.len());
            let served = &SERVICES[n % SERVICES.len()];
            let question = [&header[..], served.question].concat();
            ask(&mut socket(server.at(served)), &question, served.answer).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        server.has_grown_by_less_than(16 << 10, engine);
        let said = server.stop();
        assert!(
            said.contains("the_PROXY_protocol_header_took_too_long="),
            "{said}"
        );
    }
}

/// What is larger than a service takes, said in every way that it can be said.
fn oversized(service: &str) -> Vec<Vec<u8>> {
    let http = |head: &str, filler: &str| {
        let mut request = format!("{head} HTTP/1.1\r\nHost: here\r\n").into_bytes();
        request.extend(filler.bytes().cycle().take(1 << 20));
        request
    };
    match service {
        // Echo has no frames.
        "echo" => vec![],
        // An identifier, and a size of 4 GiB.
        "ack/sync" => vec![b"\x07\0\0\0\0\0\0\0\xff\xff\xff\xff".to_vec()],
        "kv/resp" => vec![
            b"*1\r\n$999999999999\r\n".to_vec(),
            b"*999999999\r\n".to_vec(),
            vec![b'x'; 1 << 20],
        ],
        "kv/binary" => vec![b"\x02\xff\xff".to_vec()],
        "http" => vec![
            http("GET /", "X-Long: it goes on"),
            http("GET /", "X: y\r\n"),
            http(&format!("GET /{}", "a".repeat(1 << 17)), "X: y\r\n"),
            b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 999999999999\r\n\r\n".to_vec(),
            b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"
                .to_vec(),
        ],
        // A hello of 64 KiB, and behind a whole one a frame of 4 GiB.
        "ingest" => vec![
            b"TIDE\x01\x01\xff\xff".to_vec(),
            [SERVICES[5].question, b"\x02\0\0\0\xff\xff\xff\xff"].concat(),
        ],
        other => unreachable!("{other}"),
    }
}

/// Sends as much of it as the other side takes at once.
fn push(stream: &mut impl Write, mut bytes: &[u8]) {
    while let Ok(n @ 1..) = stream.write(bytes) {
        bytes = &bytes[n..];
        if bytes.is_empty() {
            return;
        }
    }
}

/// Heads and frames that are larger than allowed: each connection ends, what it has announced is not set aside for it,
/// and others are served.
#[test]
fn oversized_headers_and_frames() {
    let files = Files::new();
    let client = config(&files.issuer.pem(), None);
    for (engine, tls) in variants() {
        let more: Vec<&str> = tls
            .then(|| files.serve())
            .iter()
            .flatten()
            .copied()
            .collect();
        let client = tls.then_some(&client);
        let server = Server::start(engine, &more);
        for served in &SERVICES {
            let to = server.at(served);
            let what = format!("{engine}, tls {tls}, {}", served.service);
            let mut open = Vec::new();
            for frame in oversized(served.service) {
                for n in 0..crowd() / 4 {
                    let says: [&[u8]; 2] = [&frame, &[b'0'; 100_000]];
                    open.push(hostile(client, socket(to), &says));
                    if n % 20 == 0 {
                        served.is_served(&server, client);
                    }
                }
            }
            server.has_grown_by_less_than(2 * footprint(engine, tls), &what);
            for mut hostile in open {
                hostile.set_nonblocking(false).unwrap();
                // In order or by a reset, but not by this side's patience.
                if let Err(e) = std::io::copy(&mut hostile, &mut std::io::sink()) {
                    assert_ne!(e.kind(), std::io::ErrorKind::WouldBlock, "{what}");
                }
            }
            served.is_served(&server, client);
        }
        let said = server.stop();
        assert!(said.contains("payload too large"), "{said}");
        assert!(said.contains("too_large="), "{said}");
        assert!(!said.contains("too_large=0"), "{said}");
    }
}

/// What a connection may have cost that has sent all it can, while it is there and, in an allocator's pages, after it.
///
/// On a loop: what a frame that is not finished may have (16 KiB of a head, 64 KiB of an inline command), and twice that
/// where a vector grows. On a thread of its own: a receive buffer (64 KiB), its stack as far as it was used (32 KiB), and of
/// the allocator, where a thread has pages of its own for each size that it asks for, four of 64 KiB. TLS adds its
/// buffers: a record in, one out, and what was not yet read, 16 KiB each, and as much for a handshake.
fn footprint(engine: &str, tls: bool) -> usize {
    let connection = match engine {
        "threads" => (64 + 32 + 4 * 64) << 10,
        _ => 2 * (64 << 10),
    };
    connection + if tls { 4 * (16 << 10) } else { 0 }
}

/// Each engine, in the clear and behind TLS.
fn variants() -> impl Iterator<Item = (&'static str, bool)> {
    let engines = engines().into_iter();
    engines.flat_map(|engine| [(engine, false), (engine, true)])
}

/// Has said as much of all this as the other side takes at once, behind TLS if there is a client for it, and does not wait
/// any more.
fn hostile(client: Option<&Arc<ClientConfig>>, mut socket: TcpStream, says: &[&[u8]]) -> TcpStream {
    let Some(client) = client else {
        socket.set_nonblocking(true).unwrap();
        says.iter().for_each(|bytes| push(&mut socket, bytes));
        return socket;
    };
    let mut hostile = secure(socket, client);
    hostile.conn.complete_io(&mut hostile.sock).unwrap();
    hostile.sock.set_nonblocking(true).unwrap();
    says.iter().for_each(|bytes| push(&mut hostile, bytes));
    hostile.sock
}

fn ask_as(client: Option<&Arc<ClientConfig>>, to: SocketAddr, question: &[u8], answer: &[u8]) {
    match client {
        None => ask(&mut socket(to), question, answer).unwrap(),
        Some(client) => ask(&mut secure(socket(to), client), question, answer).unwrap(),
    }
}

impl Served {
    fn is_served(&self, server: &Server, client: Option<&Arc<ClientConfig>>) {
        ask_as(client, server.at(self), self.question, self.answer);
    }
}
