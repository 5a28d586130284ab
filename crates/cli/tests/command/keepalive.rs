//! Clients whose host has vanished: the kernel asks after them. What it has been told is read from
//! its list of sockets; no test waits for a probe.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::handover::resp;
use crate::common::{PATIENCE, Running, addr, engines};

/// What the kernel waits for on a socket.
#[derive(Debug, PartialEq)]
enum Timer {
    None,
    /// To ask the peer, in so many seconds at the most.
    Keepalive(u64),
    /// Something else, which is about to pass.
    Other,
}

/// The timer of the server's end of a client's connection (proc_net_tcp: `tr`, and `tm->when` in hundredths).
fn timer(client: &TcpStream) -> Timer {
    let of = |port: u16| format!(":{port:04X}");
    let (ours, theirs) = (
        of(client.peer_addr().unwrap().port()),
        of(client.local_addr().unwrap().port()),
    );
    let list = fs::read_to_string("/proc/net/tcp").unwrap();
    let words = list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[1].ends_with(&ours) && words[2].ends_with(&theirs)).then_some(words)
    });
    let words = words.expect("the server's end");
    match words[5].split_once(':').unwrap() {
        ("00", _) => Timer::None,
        ("02", when) => Timer::Keepalive(u64::from_str_radix(when, 16).unwrap().div_ceil(100)),
        _ => Timer::Other,
    }
}

/// What is left when acknowledgements have been sent.
fn settled(client: &TcpStream) -> Timer {
    let begin = Instant::now();
    loop {
        match timer(client) {
            Timer::Other => assert!(begin.elapsed() < PATIENCE, "it never settles"),
            timer => return timer,
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn connected(more: &[&str]) -> (Running, TcpStream) {
    let args = ["serve", "echo", "--listen", "echo=0", "--workers", "1"];
    let mut server = Running::start(&[&args[..], more].concat());
    let mut client = TcpStream::connect(addr(&server.line())).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    // Accepted, and in use.
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    (server, client)
}

#[test]
fn keepalive_is_on_unless_it_is_turned_off() {
    for engine in engines() {
        let with = |more: &[&str]| {
            let (_server, client) = connected(&[&["--engine", engine], more].concat());
            settled(&client)
        };
        // The default is Redis's. What the kernel says is what is left of it.
        let Timer::Keepalive(left) = with(&[]) else {
            panic!("{engine}: nobody asks");
        };
        assert!((200..=300).contains(&left), "{engine}: {left}");
        let Timer::Keepalive(left) = with(&["--tcp-keepalive", "2h"]) else {
            panic!("{engine}: nobody asks");
        };
        assert!((7000..=7200).contains(&left), "{engine}: {left}");
        assert_eq!(with(&["--tcp-keepalive", "0"]), Timer::None, "{engine}");
    }
}

/// Clients of Redis's protocol are told what the kernel was told.
#[test]
fn config_get_tells_what_is_in_force() {
    for (more, told) in [
        (&[][..], "300"),
        (&["--tcp-keepalive", "60"], "60"),
        (&["--tcp-keepalive", "0"], "0"),
    ] {
        let args = ["serve", "kv/resp", "--listen", "kv/resp=0"];
        let mut server = Running::start(&[&args[..], more].concat());
        let answer = format!(
            "*2\r\n$13\r\ntcp-keepalive\r\n${}\r\n{told}\r\n",
            told.len()
        );
        resp(
            addr(&server.line()),
            "CONFIG GET tcp-keepalive\r\n",
            &answer,
        );
    }
}
