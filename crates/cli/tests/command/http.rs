//! `serve http`: what it says, and to which clients.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{Running, addr, engines, stderr};
use rustix::process::Signal;

/// Words of a command line.
fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn it_is_announced_serves_and_counts() {
    for engine in engines() {
        let args = format!("serve http --listen http=0 --engine {engine}");
        let mut serving = Running::start(&words(&args));
        let line = serving.line();
        assert!(line.starts_with("listening service=http addr="), "{line}");
        let mut client = TcpStream::connect(addr(&line)).unwrap();
        let asked = "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET /burn?us=10&on=pool HTTP/1.1\r\nHost: h\r\n\
                     Connection: close\r\n\r\n";
        client.write_all(asked.as_bytes()).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        assert!(
            said.contains("\r\n\r\nHello, World!HTTP/1.1 200 OK"),
            "{said}"
        );
        assert!(said.ends_with("\r\n\r\nburnt\n"), "{said}");
        serving.signal(Signal::TERM);
        let ended = serving.end();
        let log = stderr(&ended);
        assert_eq!(ended.status.code(), Some(0), "{log}");
        assert!(log.contains("requests=2 replies_2xx=2"), "{log}");
    }
}

#[test]
fn beyond_loopback_it_is_warned_of() {
    let mut serving = Running::start(&words("serve http --listen http=0.0.0.0:0"));
    serving.line();
    serving.signal(Signal::TERM);
    let log = stderr(&serving.end());
    assert!(log.contains("--open=http confirms that"), "{log}");
}
