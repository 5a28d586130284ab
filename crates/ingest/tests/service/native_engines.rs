//! The native service on real loops, over the log on a real disk: produced on several connections,
//! read back, and found again after the log was opened anew.

#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::native::{Frame, frames, hello, messages, payload, produce, subscribe};
use tidewire::{Builder, EngineChoice, Listen, Running, StartError};
use tidewire_ingest::native::codec::{Begin, Hello, Level, Produce, Subscribe};
use tidewire_ingest::native::{IngestService, Settings};
use tidewire_log::EmbeddedLog;

const ENGINES: [EngineChoice; 3] = [
    EngineChoice::Threads,
    EngineChoice::Epoll,
    EngineChoice::Uring,
];

/// A server over the log in a directory.
struct Server {
    running: Running,
    service: Arc<IngestService>,
    log: Arc<EmbeddedLog>,
}

impl Server {
    fn start(engine: EngineChoice, directory: &Path) -> Option<Server> {
        let (log, _) = EmbeddedLog::start(directory, tidewire_log::Settings::default()).unwrap();
        let log = Arc::new(log);
        let settings = Settings::default();
        let limits = settings.limits();
        let service = Arc::new(IngestService::new(log.clone(), settings));
        let mut builder = Builder::new();
        builder.engine(engine).loops(2);
        let id = builder.service_with(service.clone(), limits);
        builder.listen(id, Listen::at("127.0.0.1:0"));
        match builder.start() {
            Ok(running) => Some(Server {
                running,
                service,
                log,
            }),
            Err(StartError::Engine { engine, reason }) => {
                println!("skipped: the {engine} engine does not work here: {reason}");
                None
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn addr(&self) -> SocketAddr {
        self.running.addrs()[0].tcp().unwrap()
    }

    fn stop(self) {
        self.running.stop(Duration::from_secs(30));
        self.log.close();
    }
}

/// Sends all of it, half-closes, and reads to the end.
fn exchange(addr: SocketAddr, bytes: Vec<u8>, half_close: bool) -> Vec<Frame> {
    let mut socket = TcpStream::connect(addr).unwrap();
    let timeout = Some(Duration::from_secs(60));
    socket.set_read_timeout(timeout).unwrap();
    let mut writer = socket.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes).unwrap();
        if half_close {
            writer.shutdown(Shutdown::Write).unwrap();
        }
    });
    let mut got = Vec::new();
    socket.read_to_end(&mut got).unwrap();
    writing.join().unwrap();
    frames(&got)
}

fn produced(
    addr: SocketAddr,
    producer: Produce<'_>,
    ids: std::ops::RangeInclusive<u64>,
) -> Vec<Frame> {
    let mut bytes = hello(Hello::Produce(producer));
    bytes.extend(messages(ids));
    exchange(addr, bytes, true)
}

fn read(addr: SocketAddr) -> Vec<(String, u64)> {
    let got = exchange(addr, hello(Hello::Subscribe(subscribe())), false);
    let mut all = Vec::new();
    for frame in &got {
        if let Frame::Batch {
            first,
            producer,
            messages,
        } = frame
        {
            assert_eq!(*first, all.len() as u64);
            for (id, text) in messages {
                assert_eq!(*text, payload(*id));
                all.push((producer.clone(), *id));
            }
        }
    }
    assert_eq!(got.last(), Some(&Frame::End(all.len() as u64)));
    all
}

#[test]
fn produced_read_back_and_found_again() {
    const N: u64 = 20_000;
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(server) = Server::start(engine, directory.path()) else {
            continue;
        };
        let addr = server.addr();
        let names = ["a", "b", "c", ""];
        let clients: Vec<_> = names
            .into_iter()
            .map(|name| {
                std::thread::spawn(move || {
                    let level = if name == "c" {
                        Level::Received
                    } else {
                        Level::Durable
                    };
                    let told = produced(
                        addr,
                        Produce {
                            level: Some(level),
                            ..produce(name)
                        },
                        1..=N,
                    );
                    assert_eq!(
                        told[0],
                        Frame::Welcome {
                            level,
                            last_id: None
                        }
                    );
                    assert_eq!(told.last(), Some(&Frame::Ack(N)), "{name}");
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        // Messages that were only received are written with the next group.
        assert_eq!(
            produced(addr, produce("last"), 1..=1).last(),
            Some(&Frame::Ack(1))
        );
        let all = read(addr);
        for name in names {
            let ids = all.iter().filter(|(n, _)| n == name).map(|(_, id)| *id);
            assert!(ids.eq(1..=N), "{engine:?} {name}");
        }
        assert_eq!(all.len() as u64, N * 4 + 1);
        let counters = server.service.counters();
        assert_eq!(counters.messages, N * 4 + 1);
        assert_eq!(counters.read_messages, N * 4 + 1);
        server.stop();

        let server = Server::start(engine, directory.path()).unwrap();
        assert_eq!(read(server.addr()), all);
        let told = produced(server.addr(), produce("a"), N - 5..=N + 5);
        let level = Level::Durable;
        assert_eq!(
            told[0],
            Frame::Welcome {
                level,
                last_id: Some(N)
            }
        );
        assert_eq!(told.last(), Some(&Frame::Ack(N + 5)));
        assert_eq!(server.service.counters().duplicates, 6);
        assert_eq!(read(server.addr()).len() as u64, N * 4 + 6);
        server.stop();
    }
}

#[test]
fn a_follower_gets_what_is_produced_meanwhile() {
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(server) = Server::start(engine, directory.path()) else {
            continue;
        };
        let addr = server.addr();
        let mut follower = TcpStream::connect(addr).unwrap();
        let timeout = Some(Duration::from_secs(60));
        follower.set_read_timeout(timeout).unwrap();
        let follow = Subscribe {
            begin: Begin::Tail,
            follow: true,
            ..subscribe()
        };
        follower
            .write_all(&hello(Hello::Subscribe(follow)))
            .unwrap();
        let mut got = Vec::new();
        // The tail is where it is when the hello is answered.
        while frames(&got).is_empty() {
            let mut piece = [0; 256];
            let n = follower.read(&mut piece).unwrap();
            assert!(n > 0, "ended before the welcome");
            got.extend_from_slice(&piece[..n]);
        }
        let producing = std::thread::spawn(move || {
            for round in 0..50 {
                let ids = 1 + round * 10..=10 + round * 10;
                let told = produced(addr, produce("a"), ids);
                assert_eq!(told.last(), Some(&Frame::Ack(10 + round * 10)));
            }
        });
        let mut ids = Vec::new();
        while ids.len() < 500 {
            let mut piece = [0; 4096];
            let n = follower.read(&mut piece).unwrap();
            assert!(n > 0, "ended after {ids:?}");
            got.extend_from_slice(&piece[..n]);
            ids.clear();
            for frame in frames(&got) {
                if let Frame::Batch { messages, .. } = frame {
                    ids.extend(messages.into_iter().map(|m| m.0));
                }
            }
        }
        assert!(ids.into_iter().eq(1..=500));
        producing.join().unwrap();
        drop(follower);
        server.stop();
    }
}

/// Connections of one producer fence each other, on loops that run at the same time; each goes on
/// where its welcome says. However they meet, every id is stored once and in order.
#[test]
fn a_producer_connected_from_everywhere_at_once() {
    const N: u64 = 3000;
    for engine in ENGINES {
        let directory = tempfile::tempdir().unwrap();
        let Some(server) = Server::start(engine, directory.path()) else {
            continue;
        };
        let addr = server.addr();
        let rivals: Vec<_> = (0..6)
            .map(|_| std::thread::spawn(move || rival(addr, N)))
            .collect();
        let sessions: u64 = rivals.into_iter().map(|r| r.join().unwrap()).sum();
        let all = read(addr);
        assert!(
            all.iter().map(|(_, id)| *id).eq(1..=N),
            "{engine:?} after {sessions} sessions"
        );
        let counters = server.service.counters();
        println!("{engine:?}: {counters}");
        assert!(counters.producers >= 6);
        server.stop();
    }
}

/// Connects until all of `n` messages are acknowledged as durable, sending a few more each time.
/// How many sessions it took.
fn rival(addr: SocketAddr, n: u64) -> u64 {
    for sessions in 1..10_000 {
        let mut socket = TcpStream::connect(addr).unwrap();
        let timeout = Some(Duration::from_secs(60));
        socket.set_read_timeout(timeout).unwrap();
        socket
            .write_all(&hello(Hello::Produce(produce("a"))))
            .unwrap();
        let mut got = Vec::new();
        let last = loop {
            match frames(&got).first() {
                Some(Frame::Welcome { last_id, .. }) => break last_id.unwrap_or(0),
                // Fenced before it was welcomed.
                Some(_) => break n + 1,
                None => {}
            }
            let mut piece = [0; 1000];
            let len = socket.read(&mut piece).unwrap();
            assert!(len > 0, "closed without a word");
            got.extend_from_slice(&piece[..len]);
        };
        if last == n {
            return sessions;
        }
        // The producer may be fenced meanwhile, and the connection reset.
        for from in (last + 1..=n.min(last + 100)).step_by(10) {
            if socket.write_all(&messages(from..=n.min(from + 9))).is_err() {
                break;
            }
        }
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut got);
    }
    panic!("it never got through");
}
