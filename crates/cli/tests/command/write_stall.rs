//! `--write-stall`: a client that takes nothing of what it is sent is cut, counted and logged;
//! clients beside it are served on. Over real sockets, on each engine.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, Running, addr, stderr, with_engines_at_once};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;

/// A server of this service whose clients may take nothing for a second; and where it listens.
fn serve(engine: &str, service: &str) -> (Running, SocketAddr) {
    let listen = format!("{service}=0");
    let mut server = Running::start(&[
        "serve",
        service,
        "--listen",
        &listen,
        "--engine",
        engine,
        "--write-stall",
        "1s",
        "--log-format",
        "logfmt",
    ]);
    let line = server.line();
    assert!(line.starts_with("listening "), "{}", stderr(&server.end()));
    (server, addr(&line))
}

/// A client for which the kernel keeps little unread data.
fn narrow(to: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 8192).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    patient(socket.into())
}

fn patient(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn is_reset(e: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(e.kind(), ConnectionReset | BrokenPipe)
}

/// Ends the server: one connection has stalled, and the log names this one.
fn one_has_stalled(server: Running, stuck: SocketAddr, engine: &str) {
    server.signal(Signal::TERM);
    let output = server.end();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("closed_stalled=1"), "{engine}: {said}");
    let named = format!("peer={stuck} ");
    let cut = |line: &&str| line.contains("its output lost") && line.contains(&named);
    let line = said.lines().find(cut);
    let line = line.unwrap_or_else(|| panic!("{engine}: no line about {stuck}: {said}"));
    assert!(line.contains("level=warn"), "{line}");
}

#[test]
fn a_subscriber_that_takes_nothing_is_cut() {
    let message = [b"PUBLISH a ", &[b'x'; 60_000][..], b"\r\n"].concat();
    with_engines_at_once(|engine| {
        let (server, to) = serve(engine, "kv/resp");
        let mut stuck = narrow(to);
        stuck.write_all(b"SUBSCRIBE a\r\n").unwrap();
        let mut subscribed = [0; 26];
        stuck.read_exact(&mut subscribed).unwrap();
        let mut publisher = patient(TcpStream::connect(to).unwrap());
        let mut publish = |message: &[u8]| {
            publisher.write_all(message).unwrap();
            let mut heard_by = [0; 4];
            publisher.read_exact(&mut heard_by).unwrap();
            heard_by
        };
        // More than the kernel keeps of it, and less than a subscriber may have queued.
        for _ in 0..200 {
            assert_eq!(&publish(&message), b":1\r\n", "{engine}");
        }
        let begin = Instant::now();
        while &publish(b"PUBLISH a x\r\n") != b":0\r\n" {
            assert!(begin.elapsed() < PATIENCE, "{engine}: it is not cut");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut rest = Vec::new();
        let end = stuck.read_to_end(&mut rest);
        assert!(end.is_err_and(|e| is_reset(&e)), "{engine}: no reset");
        one_has_stalled(server, stuck.local_addr().unwrap(), engine);
    });
}
