//! Many clients that ask for much and then read a byte now and then: they are cut and counted, memory stays bounded, and
//! others are served meanwhile. Over real sockets, on each engine.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Running, addr, engines, resident, stderr};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;
use tidewire_ingest::native::codec::{Begin, Hello, Level, Produce, Subscribe};

/// How many read so.
const READERS: usize = 20;
/// What each asks for: more than the kernels keep of a connection.
const MUCH: usize = 8 << 20;

/// The first asks for [`MUCH`], without waiting for any of it, the second is called before each byte that is read. Whether
/// the connection is still there.
type Ask = [fn(&mut TcpStream) -> bool; 2];
/// Another client's request, answered.
type Good = fn(&mut TcpStream);

/// A client for which the kernel keeps little unread data.
fn narrow(to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8192).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_nonblocking(true).unwrap();
    socket
}

fn patient(to: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// Sends a question; what comes back is this.
fn asks(socket: &mut TcpStream, question: &[u8], answer: &[u8]) {
    socket.write_all(question).unwrap();
    let mut said = vec![0; answer.len()];
    socket.read_exact(&mut said).unwrap();
    assert!(said == answer, "{}", String::from_utf8_lossy(&said));
}

/// Whether it is still connected; reads a byte. What came before a reset could be read for long.
fn reads_a_byte(socket: &mut TcpStream) -> bool {
    if socket.take_error().unwrap().is_some() {
        return false;
    }
    match socket.read(&mut [0]) {
        Ok(n) => n == 1,
        Err(e) => e.kind() == ErrorKind::WouldBlock,
    }
}

/// `held` is what the server may keep of each reader's output.
fn are_cut(service: &str, held: usize, before: Good, [ask, go_on]: Ask, good: Good) {
    for engine in engines() {
        let listen = format!("{service}=0");
        let args = ["serve", service, "--listen", &listen, "--engine", engine];
        let data = tempfile::tempdir().unwrap();
        let more = [
            "--write-stall",
            "1s",
            "--data",
            data.path().to_str().unwrap(),
        ];
        let mut server = Running::start(&[&args[..], &more].concat());
        let line = server.line();
        assert!(line.starts_with("listening "), "{}", stderr(&server.end()));
        let to = addr(&line);
        let mut other = patient(to);
        before(&mut other);
        let empty = resident(server.pid());
        let mut readers: Vec<_> = (0..READERS).map(|_| narrow(to)).collect();
        assert!(readers.iter_mut().all(ask), "{engine}: cut at once");
        let begin = Instant::now();
        while !readers.is_empty() {
            let left = readers.len();
            assert!(begin.elapsed() < PATIENCE, "{engine}: {left} are not cut");
            readers.retain_mut(|reader| go_on(reader) && reads_a_byte(reader));
            good(&mut other);
            std::thread::sleep(Duration::from_millis(50));
        }
        let grown = resident(server.pid()).saturating_sub(empty);
        let most = READERS * held + (32 << 20);
        assert!(grown < most, "{engine}: {grown} bytes more");
        drop(other);
        server.signal(Signal::TERM);
        let output = server.end();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{engine}: {said}");
        let counted = format!("closed_stalled={READERS}");
        assert!(said.contains(&counted), "{engine}: {said}");
    }
}

#[test]
fn of_http_are_cut() {
    are_cut(
        "http",
        1 << 20,
        |_| (),
        [
            |socket| {
                let request = format!("GET /bytes/{MUCH} HTTP/1.1\r\nHost: h\r\n\r\n");
                socket.write(request.as_bytes()).is_ok()
            },
            |_| true,
        ],
        |other| {
            asks(
                other,
                b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
                b"HTTP/1.1 200 ",
            );
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                other.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
        },
    );
}

#[test]
fn of_values_are_cut() {
    // A reply is built whole.
    are_cut(
        "kv/resp",
        MUCH + (1 << 20),
        |other| {
            let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${MUCH}\r\n");
            let set = [head.as_bytes(), &vec![b'x'; MUCH], b"\r\n"].concat();
            asks(other, &set, b"+OK\r\n");
        },
        [|socket| socket.write(b"GET k\r\n").is_ok(), |_| true],
        |other| asks(other, b"PING\r\n", b"+PONG\r\n"),
    );
}

/// Sends as much as is taken, up to a MiB.
fn floods(socket: &mut TcpStream) -> bool {
    for _ in 0..16 {
        if let Err(e) = socket.write(&[b'x'; 1 << 16]) {
            return e.kind() == ErrorKind::WouldBlock;
        }
    }
    true
}

#[test]
fn of_what_they_have_sent_themselves_are_cut() {
    are_cut(
        "echo",
        1 << 20,
        |_| (),
        [floods, floods],
        |other| asks(other, b"x", b"x"),
    );
}

#[test]
fn of_small_values_are_cut() {
    /// This number of answers of 257 bytes is 6 MiB; the kernels keep the requests for them.
    const READS: usize = 24_000;
    fn read_often(socket: &mut TcpStream) -> bool {
        // A request that is torn would be no request.
        socket.set_nonblocking(false).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        let asked = socket.write_all(&b"\x01\0\x02\x01k".repeat(READS)).is_ok();
        socket.set_nonblocking(true).unwrap();
        asked
    }
    are_cut(
        "kv/binary",
        1 << 20,
        |other| {
            let value = [&b"\xff"[..], &[b'x'; 255]].concat();
            let write = [b"\x02\x01\x02\x01k", &value[..]].concat();
            asks(other, &write, &[b"\x03", &value[..]].concat());
        },
        [read_often, |_| true],
        |other| asks(other, b"\x01\0\x02\x01m", b"\x03\0"),
    );
}

fn says_hello(socket: &mut TcpStream, hello: Hello<'_>) -> bool {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes).unwrap();
    socket.write_all(&bytes).is_ok()
}

fn produces(socket: &mut TcpStream) {
    let produce = Produce {
        level: Some(Level::Received),
        sparse: false,
        adopt: false,
        window_messages: 0,
        window_bytes: 0,
        first_id: 1,
        stream: "",
        producer: "",
        token: "",
    };
    assert!(says_hello(socket, Hello::Produce(produce)));
}

/// The next frame's kind and body (docs/formats/protocol.md, Frames).
fn frame(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 8];
    socket.read_exact(&mut head).unwrap();
    let length = u32::from_le_bytes(head[4..].try_into().unwrap());
    let mut body = vec![0; length as usize];
    socket.read_exact(&mut body).unwrap();
    (head[0], body)
}

/// Only where that is asked for: without `--write-stall` they may be slow.
#[test]
fn of_a_stream_are_cut() {
    const MESSAGES: u64 = 64;
    are_cut(
        "ingest",
        4 << 20,
        |other| {
            produces(other);
            assert_eq!(frame(other).0, 1, "the welcome");
            let payload = vec![b'x'; MUCH / MESSAGES as usize];
            for id in 1..=MESSAGES {
                let size = payload.len() as u32;
                let head = [&id.to_le_bytes()[..], &size.to_le_bytes()].concat();
                other.write_all(&head).unwrap();
                other.write_all(&payload).unwrap();
            }
            loop {
                let (kind, body) = frame(other);
                assert_eq!(kind, 2, "{}", String::from_utf8_lossy(&body));
                if body[..8] == MESSAGES.to_le_bytes() {
                    return;
                }
            }
        },
        [
            |socket| {
                let subscribe = Subscribe {
                    begin: Begin::Position(0),
                    follow: true,
                    may_be_absent: false,
                    credit: 1 << 40,
                    stream: "",
                    cursor: "",
                    token: "",
                };
                says_hello(socket, Hello::Subscribe(subscribe))
            },
            |_| true,
        ],
        |other| {
            let mut next = patient(other.peer_addr().unwrap());
            produces(&mut next);
            assert_eq!(frame(&mut next).0, 1, "the welcome");
        },
    );
}
