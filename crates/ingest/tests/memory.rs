//! Large messages cost their own size once, however they arrive. The only test of its process,
//! because it looks at the memory of the process.

#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]
#![cfg(target_os = "linux")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::time::Duration;

use common::{acknowledged, messages, server};
use tidewire::{Builder, EngineChoice, Listen, StartError};
use tidewire_ingest::classic::{Classic, Mode, PAYLOAD_MAX};

/// Has glibc's allocator map what is large, each time. By itself it learns from the first large block that is freed to take the
/// next ones from its heaps instead, where one that grows is copied and leaves a hole that stays resident: 67 MB of messages
/// were 88 to 130 MB then, by the order in which threads had come and gone.
const MAPPED: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");

/// Runs the test in a process whose allocator does so from its start on; whether this is that process.
fn is_mapped(test: &str) -> bool {
    if std::env::var_os(MAPPED.0).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let run = Command::new(program)
        .args(["--exact", test, "--nocapture"])
        .env(MAPPED.0, MAPPED.1)
        .output()
        .unwrap();
    let (out, err) = (&run.stdout, &run.stderr);
    print!("{}", String::from_utf8_lossy(out));
    eprint!("{}", String::from_utf8_lossy(err));
    assert!(run.status.success(), "{}", run.status);
    assert!(
        String::from_utf8_lossy(out).contains("1 passed"),
        "no test is called {test}"
    );
    false
}

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
    if !is_mapped("a_large_message_is_held_once") {
        return;
    }
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
