//! Limits of key-value clients with which no client could be served.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{PATIENCE, Running, addr, run, stderr};

#[test]
fn limits_that_would_serve_no_client_are_refused() {
    for (flag, value) in [
        ("--kv-query-buffer", "0"),
        ("--kv-query-buffer", "100000"),
        ("--kv-query-buffer", "4GiB"),
        ("--kv-client-output", "1"),
        ("--kv-client-output", "16383"),
        ("--kv-subscriber-output", "16383"),
    ] {
        let output = run(&[
            "serve",
            "kv/resp",
            "--listen",
            "kv/resp=127.0.0.1:0",
            flag,
            value,
        ]);
        let why = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{flag} {value}: {why}");
        assert!(why.contains(flag), "{flag} {value}: {why}");
    }
}

/// As in Redis.
#[test]
fn an_output_limit_of_0_is_none() {
    let flags = ["--kv-client-output", "0", "--kv-subscriber-output", "0"];
    let mut server = Running::start(
        &[
            &["serve", "kv/resp", "--listen", "kv/resp=127.0.0.1:0"],
            &flags[..],
        ]
        .concat(),
    );
    let at = addr(&server.line());
    let mut client = TcpStream::connect(at).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"SUBSCRIBE c\r\n").unwrap();
    let expected = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
    let mut heard = [0; 30];
    client.read_exact(&mut heard[..expected.len()]).unwrap();
    assert_eq!(heard[..expected.len()], expected[..]);
    let mut other = TcpStream::connect(at).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    other.write_all(b"PUBLISH c x\r\n").unwrap();
    other.read_exact(&mut heard[..4]).unwrap();
    assert_eq!(&heard[..4], b":1\r\n");
    let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n";
    client.read_exact(&mut heard[..message.len()]).unwrap();
    assert_eq!(heard[..message.len()], message[..]);
}
