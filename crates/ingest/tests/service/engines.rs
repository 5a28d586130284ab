//! On the real engines, with plain sockets as clients: every message is acknowledged in a valid
//! chain, whatever the client does before it goes.

#![allow(
    clippy::disallowed_methods,
    reason = "the clients are threads with plain sockets"
)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::common::{Server, acknowledged, messages, server};
use tidewire::{Builder, Closed, EngineChoice, Limits, Listen, Running, StartError};
use tidewire_ingest::classic::{AckPolicy, Classic, Mode};

/// Longest wait for anything before a test fails.
const PATIENCE: Duration = Duration::from_secs(30);
const NEVER: Duration = Duration::from_secs(3600);

fn modes() -> [Classic; 5] {
    Mode::ALL.map(Classic::preset)
}

/// Limits whose times no test reaches by accident.
fn patient(classic: &Classic) -> Limits {
    Limits {
        idle: Some(PATIENCE * 2),
        ..classic.limits()
    }
}

/// One service on one engine.
struct Bench {
    classic: Classic,
    server: Server,
    running: Running,
}

/// Runs `test` on each engine that this machine has.
fn each_engine(classic: Classic, limits: Limits, test: impl Fn(Bench)) {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let mut builder = Builder::new();
        builder.engine(engine);
        let server = server(classic);
        let id = builder.service_with(server.clone(), limits.clone());
        builder.listen(id, Listen::at("127.0.0.1:0"));
        match builder.start() {
            Ok(running) => test(Bench {
                classic,
                server,
                running,
            }),
            Err(StartError::Engine { engine, reason }) => {
                println!("skipped: the {engine} engine does not work here: {reason}");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

impl Bench {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.running.addrs()[0]).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Everything that comes until the server closes, as a number of messages.
    fn acknowledged_until_the_end(&self, mut stream: TcpStream) -> u64 {
        let mut acks = Vec::new();
        stream.read_to_end(&mut acks).unwrap();
        acknowledged(&self.classic, &acks)
    }

    fn wait_for_messages(&self, n: u64) {
        let started = Instant::now();
        while self.server.counters().messages < n {
            assert!(started.elapsed() < PATIENCE, "{}", self.server.counters());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_half_close_gets_every_acknowledgement() {
    for classic in modes() {
        each_engine(classic, patient(&classic), |bench| {
            let stream = messages(&classic, (0..20_000).map(|i| i % 7));
            let mut clients = Vec::new();
            for piece in [1 << 20, 1448, 4096, 17] {
                let mut client = bench.connect();
                for piece in stream.chunks(piece) {
                    client.write_all(piece).unwrap();
                }
                client.shutdown(Shutdown::Write).unwrap();
                clients.push(client);
            }
            for client in clients {
                assert_eq!(bench.acknowledged_until_the_end(client), 20_000);
            }
            let counters = bench.running.stop(PATIENCE);
            assert_eq!(counters.closed_for(Closed::Finished), 4, "{counters}");
            assert_eq!(bench.server.counters().messages, 80_000);
            assert_eq!(bench.server.sink().stored().messages, 80_000);
        });
    }
}

#[test]
fn a_graceful_stop_gets_every_acknowledgement() {
    let pending = [
        AckPolicy::Every { interval: NEVER },
        AckPolicy::EveryChunks {
            n: u32::MAX,
            or_idle: NEVER,
        },
        AckPolicy::EachChunk,
    ];
    for policy in pending {
        let classic = Classic {
            policy,
            ..Classic::preset(Mode::Async)
        };
        each_engine(classic, patient(&classic), |bench| {
            let mut client = bench.connect();
            // The last message is not whole.
            let stream = messages(&classic, [5; 1001]);
            client.write_all(&stream[..stream.len() - 1]).unwrap();
            bench.wait_for_messages(1000);
            std::thread::scope(|s| {
                let Bench { running, .. } = bench;
                let stopped = s.spawn(move || running.stop(PATIENCE));
                let mut acks = Vec::new();
                client.read_to_end(&mut acks).unwrap();
                assert_eq!(acknowledged(&classic, &acks), 1000);
                drop(client);
                let counters = stopped.join().unwrap();
                assert_eq!(counters.closed_for(Closed::Stopped), 1, "{counters}");
            });
        });
    }
}

#[test]
fn silence_gets_every_acknowledgement() {
    let classic = Classic {
        policy: AckPolicy::Every { interval: NEVER },
        ..Classic::preset(Mode::Throttled)
    };
    let limits = Limits {
        idle: Some(Duration::from_millis(100)),
        ..classic.limits()
    };
    each_engine(classic, limits, |bench| {
        let mut client = bench.connect();
        client.write_all(&messages(&classic, [5; 100])).unwrap();
        assert_eq!(bench.acknowledged_until_the_end(client), 100);
        let counters = bench.running.stop(PATIENCE);
        assert_eq!(counters.closed_for(Closed::Idle), 1, "{counters}");
    });
}

#[test]
fn acknowledgements_come_while_the_client_keeps_its_side_open() {
    for classic in modes() {
        each_engine(classic, patient(&classic), |bench| {
            let mut client = bench.connect();
            let stream = messages(&classic, [5; 500]);
            let (mut acks, mut sent) = (Vec::new(), 0);
            for upto in [1, 2, 50, 51, 500] {
                client.write_all(&stream[sent * 17..upto * 17]).unwrap();
                sent = upto;
                while acknowledged(&classic, &acks) < upto as u64 {
                    let mut some = [0; 4096];
                    let n = client.read(&mut some).unwrap();
                    assert!(n > 0, "closed after {} bytes", acks.len());
                    acks.extend_from_slice(&some[..n]);
                }
            }
        });
    }
}

#[test]
fn a_client_that_reads_last_does_not_stop_cumulative_acknowledgements() {
    for mode in [Mode::Throttled, Mode::Sync, Mode::Async] {
        let classic = Classic::preset(mode);
        each_engine(classic, patient(&classic), |bench| {
            let mut client = bench.connect();
            let stream = messages(&classic, std::iter::repeat_n(5, 400_000));
            for piece in stream.chunks(170) {
                client.write_all(piece).unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(bench.acknowledged_until_the_end(client), 400_000);
        });
    }
}

#[test]
fn replies_are_paced_by_the_client_that_reads_them() {
    let classic = Classic::preset(Mode::RequestReply);
    each_engine(classic, patient(&classic), |bench| {
        // Far more replies than the output and the sockets on the way can hold.
        const MESSAGES: usize = 3_000_000;
        let client = bench.connect();
        let mut writer = client.try_clone().unwrap();
        std::thread::scope(|s| {
            s.spawn(move || {
                let stream = messages(&classic, std::iter::repeat_n(0, MESSAGES));
                writer.write_all(&stream).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            // Wait until reading is held back, which is when the writer cannot go on.
            let started = Instant::now();
            while bench.running.counters().output_pauses == 0 {
                assert!(started.elapsed() < PATIENCE, "never held back");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(bench.server.counters().messages < MESSAGES as u64);
            assert_eq!(bench.acknowledged_until_the_end(client), MESSAGES as u64);
        });
    });
}

#[test]
fn a_payload_above_the_limit_ends_the_connection_after_what_was_owed() {
    for mut classic in modes() {
        classic.payload_max = 100_000;
        each_engine(classic, patient(&classic), |bench| {
            let mut client = bench.connect();
            let mut stream = messages(&classic, [5, 100_000, 5]);
            stream.extend(messages(&classic, [100_001]));
            // The server closes while this is still being sent: it takes it all the same.
            stream.resize(stream.len() + 1_000_000, 0);
            client.write_all(&stream).unwrap();
            assert_eq!(bench.acknowledged_until_the_end(client), 3);
            let counters = bench.running.stop(PATIENCE);
            assert_eq!(
                counters.closed_for(Closed::ByProtocol("payload too large")),
                1
            );
            assert_eq!(bench.server.counters().oversized, 1);
        });
    }
}

#[test]
fn a_stranger_that_announces_4_gib_is_sent_away() {
    let classic = Classic::preset(Mode::Sync);
    each_engine(classic, patient(&classic), |bench| {
        let mut client = bench.connect();
        client.write_all(&[0xff; 12]).unwrap();
        let mut byte = [0];
        assert_eq!(client.read(&mut byte).unwrap(), 0);
    });
}

#[test]
fn a_client_that_vanishes_harms_no_other() {
    for classic in modes() {
        each_engine(classic, patient(&classic), |bench| {
            for round in 0..20 {
                let mut client = bench.connect();
                let stream = messages(&classic, vec![5; 500]);
                client.write_all(&stream[..stream.len() - round]).unwrap();
                // Unread acknowledgements make this close a reset.
                drop(client);
            }
            let mut client = bench.connect();
            client.write_all(&messages(&classic, [5; 10])).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(bench.acknowledged_until_the_end(client), 10);
        });
    }
}

#[test]
fn nothing_comes_back_for_half_a_message() {
    let classic = Classic::preset(Mode::RequestReply);
    each_engine(classic, patient(&classic), |bench| {
        let mut client = bench.connect();
        let stream = messages(&classic, [5]);
        client.write_all(&stream[..16]).unwrap();
        client
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let mut ack = [0; 8];
        let early = client.read(&mut ack).unwrap_err().kind();
        assert!(matches!(early, ErrorKind::WouldBlock | ErrorKind::TimedOut));
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(&stream[16..]).unwrap();
        client.read_exact(&mut ack).unwrap();
        assert_eq!(ack, 0u64.to_ne_bytes());
    });
}
