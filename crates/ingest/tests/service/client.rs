//! The blocking clients against the real service, over a log in memory.

#![allow(clippy::disallowed_methods, reason = "blocking clients run on no loop")]

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tidewire::{Builder, EngineChoice, Limits, Listen, Running};
use tidewire_ingest::client::{
    Amount, Begin, Broken, Error, Level, Persistence, Producer, Producing, Reader, Subscribing,
};
use tidewire_ingest::native::codec::{Hello, Read, Reason};
use tidewire_ingest::native::{Fleet, IngestService, Settings};
use tidewire_ingest::testing::SteppedLog;
use tidewire_log::Policy;

/// Far more than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

struct Server {
    running: Option<Running>,
    addr: SocketAddr,
}

impl Server {
    fn start(log: &SteppedLog, settings: Settings) -> Server {
        Server::at("127.0.0.1:0".parse().unwrap(), log, settings)
    }

    fn at(addr: SocketAddr, log: &SteppedLog, settings: Settings) -> Server {
        let limits = Limits {
            linger: Duration::from_millis(200),
            ..settings.limits()
        };
        let service = IngestService::new(Arc::new(log.clone()), settings);
        let mut builder = Builder::new();
        builder.engine(EngineChoice::Epoll).loops(1);
        let id = builder.service_with(service, limits);
        builder.listen(id, Listen::at(addr));
        let running = builder.start().unwrap();
        let addr = running.addrs()[0].tcp().unwrap();
        Server {
            running: Some(running),
            addr,
        }
    }

    fn producer(&self, producing: Producing) -> Result<Producer, Error> {
        Producer::connect(self.addr.to_string(), producing, quick())
    }

    fn reader(&self, subscribing: Subscribing) -> Result<Reader, Error> {
        Reader::connect(self.addr.to_string(), subscribing, quick())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop(Duration::from_millis(500));
        }
    }
}

fn quick() -> Persistence {
    Persistence {
        within: PATIENCE,
        first: Duration::from_millis(5),
        longest: Duration::from_millis(50),
        ..Persistence::default()
    }
}

fn named(name: &str) -> Producing {
    Producing {
        producer: name.into(),
        ..Producing::default()
    }
}

fn payloads(log: &SteppedLog) -> Vec<Vec<u8>> {
    let records = log.records("default");
    records.into_iter().map(|record| record.payload).collect()
}

fn reason(error: &Error) -> Option<Reason> {
    match error.broken() {
        Some(Broken::Refused { reason, .. }) => Some(*reason),
        _ => None,
    }
}

#[test]
fn what_is_flushed_is_stored_once_in_order_and_read_back() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let producer = server.producer(named("p")).unwrap();
    let wanted: Vec<Vec<u8>> = (0..5000u32)
        .map(|n| vec![n as u8; n as usize % 300])
        .collect();
    for (payload, id) in wanted.iter().zip(1..) {
        assert_eq!(producer.send(payload).unwrap(), id);
    }
    assert_eq!(producer.send_each(&wanted).unwrap(), 5000);
    producer.flush().unwrap();
    let status = producer.status();
    assert_eq!(
        (status.settled, status.acknowledged),
        (Some(10_000), 10_000)
    );
    assert_eq!(status.unacknowledged, Amount::default());
    producer.close().unwrap();

    let both = [&wanted[..], &wanted[..]].concat();
    assert!(payloads(&log) == both);
    let mut reader = server.reader(Subscribing::default()).unwrap();
    let mut position = 0;
    while let Some(record) = reader.read().unwrap() {
        assert_eq!((record.position, record.id), (position, position + 1));
        assert_eq!(record.producer, "p");
        assert_eq!(record.payload, both[position as usize]);
        position += 1;
    }
    assert_eq!(position, 10_000);
}

/// These messages once lay there until something else was sent.
#[test]
fn what_stands_before_a_message_that_is_too_large_is_sent() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let producer = server.producer(named("p")).unwrap();
    let most = producer.granted().payload_max as usize;
    let payloads_sent = [vec![1; 10], vec![2; most + 1]];
    let refused = producer.send_each(&payloads_sent);
    assert!(
        matches!(refused, Err(Error::TooLarge { .. })),
        "{refused:?}"
    );
    producer.flush_within(PATIENCE).unwrap();
    assert_eq!(payloads(&log), [vec![1; 10]]);
}

#[test]
fn a_small_buffer_and_window_hold_senders_back_and_lose_nothing() {
    let log = SteppedLog::new().auto();
    let settings = Settings {
        window_messages: 7,
        window_bytes: 500,
        ..Settings::default()
    };
    let server = Server::start(&log, settings);
    let producing = Producing {
        buffer: Amount {
            messages: 20,
            bytes: 1000,
        },
        ..named("p")
    };
    let producer = server.producer(producing).unwrap();
    let wanted: Vec<Vec<u8>> = (0..2000u32)
        .map(|n| vec![n as u8; if n % 100 == 0 { 3000 } else { n as usize % 50 }])
        .collect();
    producer.send_each(&wanted).unwrap();
    producer.close().unwrap();
    assert!(payloads(&log) == wanted);
}

#[test]
fn a_new_session_goes_on_after_the_mark() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let first = server.producer(named("p")).unwrap();
    assert_eq!(first.send(b"one").unwrap(), 1);
    first.close().unwrap();
    let second = server.producer(named("p")).unwrap();
    assert_eq!(second.status().settled, Some(1));
    assert_eq!(second.send(b"two").unwrap(), 2);
    second.close().unwrap();
    assert_eq!(payloads(&log), [b"one", b"two"]);
}

#[test]
fn it_comes_back_after_a_restart_and_nothing_is_stored_twice() {
    let log = SteppedLog::new().auto();
    let mut server = Server::start(&log, Settings::default());
    let addr = server.addr;
    let producer = Arc::new(server.producer(named("p")).unwrap());
    let sending = producer.clone();
    let wanted: Vec<Vec<u8>> = (0..60_000u32).map(|n| n.to_le_bytes().to_vec()).collect();
    let all = wanted.clone();
    let sender = thread::spawn(move || {
        for (n, payload) in all.iter().enumerate() {
            sending.send(payload).unwrap();
            if n % 1000 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
        }
    });
    for _ in 0..4 {
        thread::sleep(Duration::from_millis(20));
        drop(server);
        server = Server::at(addr, &log, Settings::default());
    }
    sender.join().unwrap();
    producer.flush_within(PATIENCE).unwrap();
    assert!(producer.status().connections >= 2);
    assert!(payloads(&log) == wanted);
}

#[test]
fn what_a_crash_took_at_level_durable_is_sent_again() {
    let log = SteppedLog::new();
    let server = Server::start(&log, Settings::default());
    let addr = server.addr;
    let producer = server.producer(named("p")).unwrap();
    for n in 0..10u8 {
        producer.send(&[n]).unwrap();
    }
    assert!(matches!(
        producer.flush_within(Duration::from_millis(20)),
        Err(Error::TimedOut(_))
    ));
    let after = log.crash().auto();
    drop(server);
    let _server = Server::at(addr, &after, Settings::default());
    producer.flush_within(PATIENCE).unwrap();
    let want: Vec<Vec<u8>> = (0..10).map(|n| vec![n]).collect();
    assert_eq!(payloads(&after), want);
}

#[test]
fn at_level_received_what_a_crash_took_is_a_gap_and_sending_goes_on() {
    let log = SteppedLog::new();
    let server = Server::start(&log, Settings::default());
    let addr = server.addr;
    let producing = Producing {
        level: Level::Received,
        ..named("p")
    };
    let producer = server.producer(producing).unwrap();
    producer.send_each([b"1", b"2"]).unwrap();
    producer.flush_within(PATIENCE).unwrap();
    let after = log.crash().auto();
    drop(server);
    let _server = Server::at(addr, &after, Settings::default());
    assert_eq!(producer.send(b"3").unwrap(), 3);
    producer.flush_within(PATIENCE).unwrap();
    assert_eq!(payloads(&after), [b"3"]);
}

#[test]
fn the_newer_of_two_sessions_wins_and_the_older_learns_of_it() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let older = server.producer(named("p")).unwrap();
    older.send(b"old").unwrap();
    older.flush().unwrap();
    let newer = server.producer(named("p")).unwrap();
    newer.send(b"new").unwrap();
    newer.flush().unwrap();
    // Whenever it learns of it, it does not fight back.
    let error = loop {
        if let Err(error) = older.send(b"late").and_then(|_| older.flush()) {
            break error;
        }
    };
    assert_eq!(reason(&error), Some(Reason::Fenced), "{error}");
    newer.send(b"newer").unwrap();
    newer.close().unwrap();
    assert_eq!(
        payloads(&log),
        [b"old".to_vec(), b"new".to_vec(), b"newer".to_vec()]
    );
}

/// Stands between a client and the server, and delivers the first hello only when told to.
struct Late {
    front: TcpListener,
    server: SocketAddr,
}

impl Late {
    /// Takes a hello, and ends the connection.
    fn keep(&self) -> Vec<u8> {
        let (mut client, _) = self.front.accept().unwrap();
        let mut hello = Vec::new();
        while !matches!(Hello::decode(&hello), Ok(Read::Whole(..))) {
            let mut piece = [0; 100];
            let n = client.read(&mut piece).unwrap();
            assert!(n > 0, "no whole hello");
            hello.extend_from_slice(&piece[..n]);
        }
        hello
    }

    /// Lets a connection through.
    fn pass(&self) {
        let (client, _) = self.front.accept().unwrap();
        let server = TcpStream::connect(self.server).unwrap();
        let ways = [
            (client.try_clone().unwrap(), server.try_clone().unwrap()),
            (server, client),
        ];
        for (mut from, mut to) in ways {
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    }

    /// Has the server read a hello, and answer it.
    fn deliver(&self, hello: &[u8]) -> TcpStream {
        let mut server = TcpStream::connect(self.server).unwrap();
        server.write_all(hello).unwrap();
        server.read_exact(&mut [0; 8]).unwrap();
        server
    }
}

/// A hello may be read long after its client has given the connection up and come by another one.
#[test]
fn a_hello_that_is_read_late_does_not_end_the_session_of_its_own_client() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let late = Late {
        front: TcpListener::bind("127.0.0.1:0").unwrap(),
        server: server.addr,
    };
    let front = late.front.local_addr().unwrap().to_string();
    let (say, told) = mpsc::channel();
    let (done, delivered) = mpsc::channel();
    let between = thread::spawn(move || {
        let hello = late.keep();
        late.pass();
        told.recv().unwrap();
        let first = late.deliver(&hello);
        done.send(()).unwrap();
        late.pass();
        // Once only: the next one to come is another client.
        told.recv().unwrap();
        let second = late.deliver(&hello);
        done.send(()).unwrap();
        (first, second)
    });
    let persistence = Persistence {
        at_first: true,
        ..quick()
    };
    let producer = Producer::connect(front, named("p"), persistence).unwrap();
    for payload in [b"1", b"2"] {
        producer.send(payload).unwrap();
        producer.flush_within(PATIENCE).unwrap();
        say.send(()).unwrap();
        delivered.recv_timeout(PATIENCE).unwrap();
    }
    let error = loop {
        if let Err(error) = producer.send(b"3").and_then(|_| producer.flush()) {
            break error;
        }
    };
    assert_eq!(reason(&error), Some(Reason::Fenced), "{error}");
    assert_eq!(payloads(&log), [b"1", b"2"]);
    between.join().unwrap();
}

#[test]
fn a_full_disk_is_waited_for() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let producer = server.producer(named("p")).unwrap();
    producer.send(b"1").unwrap();
    producer.flush().unwrap();
    log.disk_full(true);
    let wanted: Vec<Vec<u8>> = (2..500u32).map(|n| n.to_string().into_bytes()).collect();
    producer.send_each(&wanted).unwrap();
    let error = producer.flush_within(Duration::from_millis(50));
    assert!(matches!(error, Err(Error::TimedOut(_))));
    let trouble = producer.status().trouble.unwrap();
    assert!(trouble.contains("disk full"), "{trouble}");
    log.disk_full(false);
    producer.flush_within(PATIENCE).unwrap();
    assert_eq!(producer.status().trouble, None);
    assert!(payloads(&log)[1..] == wanted);
}

#[test]
fn what_cannot_go_on_is_said() {
    let log = SteppedLog::new().auto().payloads(100);
    let server = Server::start(&log, Settings::default());
    let producer = server.producer(named("p")).unwrap();
    let error = producer.send(&[0; 101]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::TooLarge {
                len: 101,
                most: 100,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(producer.send(&[0; 100]).unwrap(), 1);
    producer.flush().unwrap();
    producer.abandon();
    assert!(
        producer
            .send(b"x")
            .unwrap_err()
            .to_string()
            .contains("given up")
    );

    let other = SteppedLog::new().auto().policy_of(Policy::Os);
    let lesser = Server::start(&other, Settings::default());
    let error = lesser.producer(named("p")).unwrap_err();
    assert!(
        matches!(error.broken(), Some(Broken::Level { .. })),
        "{error}"
    );
    let producing = Producing {
        accept_lower: true,
        ..named("p")
    };
    assert_eq!(lesser.producer(producing).unwrap().level(), Level::Received);

    let failing = SteppedLog::new();
    let server = Server::start(&failing, Settings::default());
    let producer = server.producer(named("p")).unwrap();
    producer.send(b"x").unwrap();
    failing.fail("the disk is on fire");
    let error = producer.flush_within(PATIENCE).unwrap_err();
    assert_eq!(reason(&error), Some(Reason::LogFailed), "{error}");

    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().to_string();
    drop(free);
    let error = Producer::connect(&nobody, named("p"), quick()).unwrap_err();
    assert!(error.to_string().contains(&nobody), "{error}");
    let error = Producer::connect("here", named("p"), quick()).unwrap_err();
    assert!(matches!(error, Error::Address { .. }), "{error}");
    let error = Producer::connect(&nobody, named(&"p".repeat(256)), quick()).unwrap_err();
    assert!(error.to_string().contains("256 bytes"), "{error}");
}

#[test]
fn an_attempt_that_fails_long_enough_is_given_up() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let persistence = Persistence {
        attempts: 3,
        ..quick()
    };
    let producer = Producer::connect(server.addr.to_string(), named("p"), persistence).unwrap();
    drop(server);
    producer.send(b"x").unwrap();
    let error = producer.flush_within(PATIENCE).unwrap_err();
    assert!(
        matches!(error, Error::GaveUp { attempts: 3, .. }),
        "{error}"
    );
}

#[test]
fn a_reader_follows_through_a_restart() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let addr = server.addr;
    let producer = server.producer(named("p")).unwrap();
    producer.send_each([b"1", b"2"]).unwrap();
    producer.flush().unwrap();
    let subscribing = Subscribing {
        begin: Begin::Position(1),
        follow: true,
        credit: 1,
        ..Subscribing::default()
    };
    let mut reader = server.reader(subscribing).unwrap();
    assert_eq!(reader.read().unwrap().unwrap().payload, "2");
    producer.send(b"3").unwrap();
    assert_eq!(reader.read().unwrap().unwrap().payload, "3");
    drop(server);
    let _server = Server::at(addr, &log, Settings::default());
    producer.send(b"4").unwrap();
    let record = reader.read().unwrap().unwrap();
    assert_eq!((record.position, &record.payload[..]), (3, &b"4"[..]));
}

#[test]
fn a_cursor_is_gone_on_from() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let producer = server.producer(named("p")).unwrap();
    producer.send_each([b"1", b"2", b"3"]).unwrap();
    producer.close().unwrap();
    let subscribing = Subscribing {
        begin: Begin::Cursor,
        cursor: "billing".into(),
        ..Subscribing::default()
    };
    let mut reader = server.reader(subscribing.clone()).unwrap();
    assert_eq!(reader.read().unwrap().unwrap().payload, "1");
    reader.commit_cursor(reader.place()).unwrap();
    reader.close().unwrap();
    let mut reader = server.reader(subscribing).unwrap();
    assert_eq!(reader.read().unwrap().unwrap().payload, "2");
    assert_eq!(reader.place(), 2);
}

#[test]
fn a_forgotten_producer_goes_on_only_if_that_is_accepted() {
    let log = SteppedLog::new().auto();
    let server = Server::start(&log, Settings::default());
    let first = server.producer(named("p")).unwrap();
    assert_eq!(first.send(b"one").unwrap(), 1);
    first.close().unwrap();
    log.forget("p");
    let error = server.producer(named("p")).unwrap_err();
    assert!(matches!(error.broken(), Some(Broken::Forgotten)), "{error}");
    let accepting = Producing {
        accept_duplicates: true,
        ..named("p")
    };
    let second = server.producer(accepting).unwrap();
    assert_eq!(second.send(b"one").unwrap(), 1);
    second.close().unwrap();
    assert_eq!(payloads(&log), [b"one", b"one"]);
}

/// Addresses without a listener.
fn free_addrs<const N: usize>() -> [SocketAddr; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}

fn member(nodes: [SocketAddr; 2], own: usize) -> Settings {
    let nodes = nodes.map(|node| node.to_string());
    Settings {
        fleet: Fleet::new(nodes, own),
        ..Settings::default()
    }
}

#[test]
fn a_producer_of_another_server_goes_there_and_finds_it_again() {
    let addrs = free_addrs();
    let logs = [SteppedLog::new().auto(), SteppedLog::new().auto()];
    let one = Server::at(addrs[0], &logs[0], member(addrs, 0));
    let other = Server::at(addrs[1], &logs[1], member(addrs, 1));
    assert_eq!(Fleet::place("web-7", 2), 1);
    let producer = one.producer(named("web-7")).unwrap();
    producer.send(b"a").unwrap();
    producer.flush().unwrap();
    // The producer loses the connection there, is sent there again by the first server, and nothing
    // is stored twice.
    drop(other);
    producer.send(b"b").unwrap();
    let other = Server::at(addrs[1], &logs[1], member(addrs, 1));
    producer.flush().unwrap();
    // A server that has been named is found without the first one too.
    drop((one, other));
    producer.send(b"c").unwrap();
    let other = Server::at(addrs[1], &logs[1], member(addrs, 1));
    producer.flush().unwrap();
    drop(other);
    assert_eq!(payloads(&logs[1]), [b"a", b"b", b"c"]);
    assert!(payloads(&logs[0]).is_empty());
}

#[test]
fn messages_without_a_producer_are_taken_by_every_server() {
    let addrs = free_addrs();
    for own in 0..2 {
        let log = SteppedLog::new().auto();
        let server = Server::at(addrs[own], &log, member(addrs, own));
        let producer = server.producer(Producing::default()).unwrap();
        producer.send(b"a").unwrap();
        producer.flush().unwrap();
        assert_eq!(payloads(&log), [b"a"]);
    }
}

/// Two servers send every client to each other.
#[test]
fn a_circle_of_servers_is_left() {
    let addrs = free_addrs();
    let log = SteppedLog::new().auto();
    let turned = [addrs[1], addrs[0]];
    assert_eq!(Fleet::place("web-7", 2), 1);
    let one = Server::at(addrs[0], &log, member(addrs, 0));
    let _other = Server::at(addrs[1], &log, member(turned, 0));
    let error = one.producer(named("web-7")).unwrap_err();
    assert_eq!(reason(&error), Some(Reason::Moved), "{error}");
    assert!(error.broken().unwrap().moved().is_some());
    assert!(payloads(&log).is_empty());
}
