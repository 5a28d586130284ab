//! On the real engines: an echo leaves in one piece where it arrived in one, and a half-close
//! loses nothing.

#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use tidewire::{Builder, EngineChoice, Listen, Running, StartError};
use tidewire_echo::{Discard, Echo};

/// Longest wait for anything before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Echo and discard on `engine`; `None` where the machine has no such engine.
fn start(engine: EngineChoice) -> Option<Running> {
    let mut builder = Builder::new();
    builder.engine(engine);
    let echo = builder.service(Echo);
    let discard = builder.service(Discard);
    builder.listen(echo, Listen::at("127.0.0.1:0"));
    builder.listen(discard, Listen::at("127.0.0.1:0"));
    match builder.start() {
        Ok(running) => Some(running),
        Err(StartError::Engine { engine, reason }) => {
            println!("skipped: the {engine} engine does not work here: {reason}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn each_engine(test: impl Fn(&Running)) {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        if let Some(running) = start(engine) {
            test(&running);
            running.stop(PATIENCE);
        }
    }
}

fn connect(running: &Running, listener: usize) -> TcpStream {
    let stream = TcpStream::connect(&running.addrs()[listener]).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn a_message_written_at_once_is_read_at_once() {
    each_engine(|running| {
        let mut stream = connect(running, 0);
        let mut back = [0; 8192];
        for (round, &len) in [1, 6, 512, 4096].iter().cycle().take(400).enumerate() {
            let message = vec![round as u8; len];
            stream.write_all(&message).unwrap();
            assert_eq!(stream.read(&mut back).unwrap(), len, "{running:?}");
            assert_eq!(back[..len], message);
        }
    });
}

#[test]
fn what_was_sent_before_a_half_close_comes_back() {
    each_engine(|running| {
        let mut stream = connect(running, 0);
        let message: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
        stream.write_all(&message).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == message, "{running:?}: {} bytes back", back.len());
    });
}

#[test]
fn discard_takes_everything_and_closes_after_the_peer() {
    each_engine(|running| {
        let mut stream = connect(running, 1);
        stream.write_all(&vec![1; 10 << 20]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert_eq!(back, b"");
        assert_eq!(running.counters().bytes_in, 10 << 20);
    });
}
