//! Servers that do one thing wrong: each is found out, with status 2 and the fault's name.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{run, server, stderr};

/// Loads a server that handles each connection like this; what the load says of it.
fn said(load: &[&str], each: impl Fn(TcpStream) + Send + Sync + Clone + 'static) -> String {
    let addr = server(move |socket| {
        let each = each.clone();
        each(socket);
    });
    let addr = addr.to_string();
    let more = ["--addr", &addr, "--stall", "500ms", "--no-pin"];
    let output = run(&[&["bench"], load, &more].concat());
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{load:?}: {said}");
    said
}

/// Reads to the end, so that a close does not become a reset that overtakes what was sent.
fn drain(mut socket: TcpStream) {
    let mut bytes = [0; 4096];
    while matches!(socket.read(&mut bytes), Ok(1..)) {}
}

const ECHO: [&str; 5] = ["echo", "--size", "64", "--count", "1k"];

/// Echoes 64 bytes at a time; `reply` makes what is sent for message `n`, with the one before at hand.
fn echoing(
    reply: impl Fn(u64, &[u8], &[u8]) -> Vec<u8> + Send + Sync + Clone + 'static,
) -> impl Fn(TcpStream) + Send + Sync + Clone + 'static {
    move |mut socket| {
        let (mut message, mut before) = ([0; 64], [0; 64]);
        for n in 0.. {
            if socket.read_exact(&mut message).is_err()
                || socket.write_all(&reply(n, &message, &before)).is_err()
            {
                break;
            }
            before = message;
        }
        drain(socket);
    }
}

#[test]
fn a_short_reply_has_its_name_whatever_follows() {
    for pipeline in ["1", "4"] {
        let load = [&ECHO[..], &["--pipeline", pipeline]].concat();
        let short = echoing(|n, message, _| message[..if n == 10 { 50 } else { 64 }].to_vec());
        let said = said(&load, short);
        assert!(said.contains("short reply"), "{said}");
    }
}

#[test]
fn a_flipped_byte_has_its_name() {
    let flipped = echoing(|n, message, _| {
        let mut message = message.to_vec();
        message[33] ^= u8::from(n == 10) << 5;
        message
    });
    let said = said(&ECHO, flipped);
    assert!(
        said.contains("flipped byte") && said.contains("byte 33 of 64"),
        "{said}"
    );
}

#[test]
fn a_duplicated_reply_has_its_name() {
    for pipeline in ["1", "4"] {
        let load = [&ECHO[..], &["--pipeline", pipeline]].concat();
        let twice = echoing(|n, message, _| message.repeat(if n == 10 { 2 } else { 1 }));
        let said = said(&load, twice);
        assert!(said.contains("duplicated reply"), "{said}");
    }
}

#[test]
fn a_lost_reply_has_its_name() {
    let load = [&ECHO[..], &["--pipeline", "4"]].concat();
    let lost = echoing(|n, message, _| match n {
        10 => Vec::new(),
        _ => message.to_vec(),
    });
    let said = said(&load, lost);
    assert!(said.contains("lost reply"), "{said}");
}

#[test]
fn a_reply_before_the_request_has_its_name_in_every_protocol() {
    // The second reply comes together with the first, so before anything else can be asked.
    let kv = [
        "kv",
        "--no-fill",
        "--keys",
        "10",
        "--count",
        "10",
        "--reads",
        "0",
    ];
    let http = ["http", "--count", "10"];
    let reply: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    for (load, reply) in [(&kv[..], &b"+OK\r\n"[..]), (&http, reply)] {
        let said = said(load, move |mut socket| {
            let _ = socket.read(&mut [0; 4096]);
            let _ = socket.write_all(&reply.repeat(2));
            drain(socket);
        });
        assert!(
            said.contains("reply before the request"),
            "{load:?}: {said}"
        );
    }
    for load in [&ECHO[..], &["connect", "--count", "10"]] {
        let more = echoing(|_, message, _| [message, b"a message that nobody sent"].concat());
        let said = said(load, more);
        assert!(
            said.contains("reply before the request"),
            "{load:?}: {said}"
        );
    }
    let said = said(&["discard", "--count", "1m"], |mut socket| {
        let _ = socket.write_all(b"hello");
        drain(socket);
    });
    assert!(said.contains("reply before the request"), "{said}");
}

#[test]
fn a_close_in_the_middle_has_its_name() {
    let kv = ["kv", "--no-fill", "--keys", "10", "--count", "10"];
    for load in [
        &ECHO[..],
        &kv,
        &["ack", "--count", "10"],
        &["http", "--count", "10"],
    ] {
        let said = said(load, |mut socket| {
            let mut bytes = [0; 7];
            let _ = socket.read_exact(&mut bytes);
        });
        assert!(said.contains("close in the middle"), "{load:?}: {said}");
    }
}

#[test]
fn no_reply_has_its_name() {
    let said = said(&ECHO, drain);
    assert!(said.contains("no reply"), "{said}");
}

/// Acknowledges each 17-byte message alone; `acks` says which are acknowledged after number `n` came.
fn acknowledging(
    acks: impl Fn(u64) -> Vec<u64> + Send + Sync + Clone + 'static,
) -> impl Fn(TcpStream) + Send + Sync + Clone + 'static {
    move |mut socket| {
        let mut message = [0; 17];
        for n in 0.. {
            if socket.read_exact(&mut message).is_err() {
                return;
            }
            for id in acks(n) {
                let ack = [&id.to_ne_bytes()[..], &0u32.to_le_bytes()].concat();
                if socket.write_all(&ack).is_err() {
                    return drain(socket);
                }
            }
        }
    }
}

const ACK: [&str; 7] = ["ack", "--mode", "sync", "--count", "100", "--batch", "10"];

#[test]
fn a_lost_acknowledgement_has_its_name() {
    let said = said(
        &ACK,
        acknowledging(|n| if n == 7 { vec![] } else { vec![n] }),
    );
    assert!(said.contains("lost acknowledgement"), "{said}");
    assert!(said.contains("message 7 was next"), "{said}");
}

#[test]
fn a_duplicated_acknowledgement_has_its_name() {
    let said = said(
        &ACK,
        acknowledging(|n| if n == 7 { vec![7, 7] } else { vec![n] }),
    );
    assert!(said.contains("duplicated acknowledgement"), "{said}");
}

#[test]
fn a_reordered_acknowledgement_has_its_name() {
    let swapped = acknowledging(|n| match n {
        7 => vec![],
        8 => vec![8, 7],
        n => vec![n],
    });
    let said = said(&ACK, swapped);
    assert!(said.contains("reordered acknowledgement"), "{said}");
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_has_its_name() {
    let said = said(
        &ACK,
        acknowledging(|n| if n == 7 { vec![500] } else { vec![n] }),
    );
    assert!(said.contains("reply before the request"), "{said}");
}

#[test]
fn a_flipped_byte_in_a_value_has_its_name() {
    let load = [
        "kv",
        "--no-fill",
        "--keys",
        "1",
        "--count",
        "10",
        "--reads",
        "0",
    ];
    let said = said(&load, |mut socket| {
        let mut bytes = [0; 4096];
        let _ = socket.read(&mut bytes);
        let _ = socket.write_all(b"+OJ\r\n");
        drain(socket);
    });
    assert!(said.contains("flipped byte"), "{said}");
}
