//! A thousand clients of every service that say a byte now and then and never finish a request: they
//! are cut, others are served meanwhile, and memory stays where it was.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Running, addr, resident, stderr};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tidewire_ingest::client::{Persistence, Producer, Producing};

/// As many as are meant, if the descriptors of this process allow it.
fn crowd() -> usize {
    let limit = getrlimit(Resource::Nofile).maximum;
    let both = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::Nofile, both).unwrap();
    let room = limit.unwrap_or(u64::MAX).saturating_sub(200) / 4;
    1000.min(usize::try_from(room).unwrap_or(usize::MAX))
}

/// Checks that another client is served meanwhile.
type Good<'a> = &'a dyn Fn(SocketAddr);

/// A whole request, and its answer.
fn asks(question: &'static [u8], answer: &'static [u8]) -> impl Fn(SocketAddr) {
    move |at| {
        let mut socket = connect(at);
        socket.write_all(question).unwrap();
        let mut said = vec![0; answer.len()];
        socket.read_exact(&mut said).unwrap();
        assert!(said == answer, "{said:?}");
    }
}

fn connect(at: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_nodelay(true).unwrap();
    socket
}

/// `endless` is the beginning of a request; `late` counts, in what the server says at its end, the
/// clients that were too slow.
fn drip(listen: &str, more: &[&str], endless: &[u8], good: Good<'_>, late: &str) {
    let service = listen.split_once('=').unwrap().0;
    let args = [
        &["serve", service, "--listen", listen, "--whole-request", "1"],
        more,
    ];
    let mut server = Running::start(&args.concat());
    let line = server.line();
    assert!(line.starts_with("listening "), "{}", stderr(&server.end()));
    let at: SocketAddr = addr(&line);
    let many = crowd();
    let mut dripping: Vec<TcpStream> = Vec::new();
    for _ in 0..many {
        let mut socket = connect(at);
        socket.write_all(endless).unwrap();
        dripping.push(socket);
    }
    let before = resident(server.pid());
    let start = Instant::now();
    let mut served = 0;
    while !dripping.is_empty() {
        assert!(start.elapsed() < PATIENCE, "{} are left", dripping.len());
        // Sending fails when the server has cut it.
        dripping.retain_mut(|socket| socket.write_all(b"0").is_ok());
        good(at);
        served += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(served > 0);
    let grown = resident(server.pid()).saturating_sub(before);
    assert!(grown < 32 << 20, "{listen}: memory has grown by {grown}");
    server.signal(Signal::TERM);
    let output = server.end();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let late = format!("{late}={many}");
    assert!(said.contains(&late), "{listen}: not {late}: {said}");
}

const CUT: &str = "closed_request_late";

#[test]
fn key_value() {
    let endless = b"*2\r\n$3\r\nGET\r\n$1000\r\n";
    drip(
        "kv/resp=0",
        &[],
        endless,
        &asks(b"PING\r\n", b"+PONG\r\n"),
        CUT,
    );
    let read = b"\x01\x00\x02\x01k";
    drip(
        "kv/binary=0",
        &[],
        b"\x01\x01\x00\xff",
        &asks(read, b"\x03\0"),
        CUT,
    );
}

#[test]
fn classic_acknowledgements() {
    // An id, and a size of 64 KiB; then one of a byte.
    let endless = b"\x07\0\0\0\0\0\0\0\0\0\x01\0";
    let whole = b"\x07\0\0\0\0\0\0\0\x01\0\0\0x";
    let good = asks(whole, b"\x07\0\0\0\0\0\0\0");
    drip("ack/sync=0", &[], endless, &good, CUT);
}

#[test]
fn http() {
    let endless = b"GET / HTTP/1.1\r\nHost: here\r\nX-Slow: ";
    let good = asks(
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
    );
    drip("http=0", &[], endless, &good, "too_slow");
}

#[test]
fn ingest() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().to_str().unwrap();
    let good = |at: SocketAddr| {
        let producing = Producing::default();
        let producer = Producer::connect(at.to_string(), producing, Persistence::once()).unwrap();
        producer.send(b"hello").unwrap();
        producer.flush().unwrap();
    };
    // A hello of a KiB.
    drip(
        "ingest=0",
        &["--data", data],
        b"TIDE\x01\x01\x00\x04",
        &good,
        CUT,
    );
}
