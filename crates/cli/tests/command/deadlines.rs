//! Deadlines that are said of one service: over real sockets, on each engine.

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::common::{PATIENCE, Running, addr, engines, run, stderr};

/// One request, answered whole.
fn ask(http: &mut TcpStream) {
    http.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"Hello, World!") {
        let mut byte = [0];
        http.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
}

#[test]
fn one_service_s_deadline_leaves_the_others_alone() {
    for engine in engines() {
        let args = ["serve", "echo", "http", "--engine", engine];
        let listen = ["--listen", "echo=0", "--listen", "http=0"];
        let said = ["--idle", "1h", "--idle", "echo=100ms"];
        let mut server = Running::start(&[&args[..], &listen, &said].concat());
        let connect = |line: &str| {
            let socket = TcpStream::connect(addr(line)).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (mut echo, mut http) = (connect(&server.line()), connect(&server.line()));
        ask(&mut http);
        assert_eq!(echo.read(&mut [0]).unwrap(), 0, "{engine}: idle");
        drop(echo);
        // This connection has been quiet for as long, or longer.
        ask(&mut http);
        drop(http);
        server.signal(Signal::TERM);
        let log = stderr(&server.end());
        assert!(log.contains("closed_idle=1"), "{engine}: {log}");
    }
}

#[test]
fn deadlines_that_cannot_be_meant_are_refused() {
    for (said, word) in [
        (["--lifetime", "all=1h"], "without all="),
        (["--idle", "ingest=5s"], "--tcp-keepalive"),
        (["--first-byte", "kv=1s"], "kv is not served here"),
        (["--write-stall", "gopher=1s"], "gopher"),
    ] {
        let args = ["serve", "echo", "ingest", "--listen", "echo=0"];
        let output = run(&[&args[..], &said].concat());
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said:?}: {why}");
        assert!(why.contains(word), "{said:?}: {why}");
    }
}
