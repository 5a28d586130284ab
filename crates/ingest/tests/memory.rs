//! Large messages cost their own size once, however they arrive. The only test of its process,
//! because it looks at the memory of the process.

#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::{acknowledged, messages, server};
use tidewire::{Builder, EngineChoice, Listen, StartError};
use tidewire_ingest::classic::{Classic, Mode, PAYLOAD_MAX};

/// Has the most memory counted from now on.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// The most memory that this process has had resident, in bytes.
fn resident_peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn a_large_message_is_held_once() {
    const CLIENTS: usize = 4;
    let classic = Classic::preset(Mode::Sync);
    let stream = messages(&classic, [PAYLOAD_MAX as usize, 5]);
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let mut builder = Builder::new();
        builder.engine(engine);
        let service = builder.service_with(server(classic), classic.limits());
        builder.listen(service, Listen::at("127.0.0.1:0"));
        let running = match builder.start() {
            Ok(running) => running,
            Err(StartError::Engine { engine, reason }) => {
                println!("skipped: the {engine} engine does not work here: {reason}");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        forget_peak();
        let before = resident_peak();
        let mut clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| TcpStream::connect(&running.addrs()[0]).unwrap())
            .collect();
        // All of them are in the middle of their messages at the same time.
        for piece in stream.chunks(100_000) {
            for client in &mut clients {
                client.write_all(piece).unwrap();
            }
        }
        for mut client in clients {
            client.shutdown(Shutdown::Write).unwrap();
            client
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            let mut acks = Vec::new();
            client.read_to_end(&mut acks).unwrap();
            assert_eq!(acknowledged(&classic, &acks), 2);
        }
        let grown = resident_peak() - before;
        let held = CLIENTS * stream.len();
        println!(
            "{}: {} KiB for {} KiB",
            running.engine(),
            grown >> 10,
            held >> 10
        );
        assert!(
            grown < held + (8 << 20),
            "{running:?}: {grown} bytes for {held}"
        );
        running.stop(Duration::from_secs(10));
    }
}
