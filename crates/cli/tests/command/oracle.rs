//! The oracle: producers against a server that is killed with SIGKILL at random moments and started
//! again. Every message acknowledged as durable is there once, in order, with the right bytes.
//!
//! SIGKILL leaves the page cache as it is, so this says nothing about power losses: the simulated
//! disk of the log's own tests does that part.
//!
//! `TIDEWIRE_ROUNDS=n` kills n times instead of a few, `TIDEWIRE_SEED=s` repeats the choices of a
//! run (not its timing).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use crate::common::{PATIENCE, Running, addr, stderr};
use fastrand::Rng;
use rustix::process::Signal;
use tidewire_ingest::client::{
    Amount, Begin, Error, Persistence, Producer, Producing, Reader, Subscribing,
};

/// Kills in `cargo test`.
const ROUNDS: u64 = 4;
const PRODUCERS: u64 = 5;
const STREAMS: u64 = 2;

#[test]
fn what_was_acknowledged_survives_any_number_of_kills() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let seed = number("TIDEWIRE_SEED").unwrap_or_else(|| fastrand::u64(..));
    let rounds = number("TIDEWIRE_ROUNDS").unwrap_or(ROUNDS);
    println!("TIDEWIRE_SEED={seed} TIDEWIRE_ROUNDS={rounds}");
    let mut random = Rng::with_seed(seed);
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let data = data.to_str().unwrap();
    let mut server = Server::start(data, "0", &mut random);
    let producers = (0..PRODUCERS).map(|number| Sender::start(&server.to, number, random.u64(..)));
    let producers = producers.collect::<Vec<_>>();
    let mut found = (0..STREAMS).map(Found::new).collect::<Vec<_>>();

    for round in 0..rounds {
        thread::sleep(Duration::from_millis(random.u64(0..300)));
        let to = server.kill();
        // Everything acknowledged before this moment was acknowledged by the server that is dead.
        let acknowledged = producers.iter().map(Sender::settled).collect::<Vec<_>>();
        if random.u8(0..3) == 0 {
            // Killed while it opens its log.
            let opening = Server::spawn(data, &to, &mut random);
            thread::sleep(Duration::from_millis(random.u64(0..30)));
            opening.signal(Signal::KILL);
            opening.end();
        }
        server = Server::start(data, &to, &mut random);
        for found in &mut found {
            found.read_on(&server.to);
        }
        for (sender, acknowledged) in producers.iter().zip(acknowledged) {
            let last = found[sender.stream()].last(&sender.name);
            assert!(
                last >= acknowledged,
                "round {round}: {} has {acknowledged} acknowledged, the log ends at {last}",
                sender.name
            );
        }
    }

    let sent = producers
        .into_iter()
        .map(Sender::finish)
        .collect::<Vec<_>>();
    for found in &mut found {
        found.read_on(&server.to);
    }
    for (stream, name, sent) in sent {
        assert_eq!(found[stream].last(&name), sent, "{name}");
        assert!(sent > 0, "{name} has sent nothing");
    }
    server.stop();
}

struct Server {
    running: Running,
    to: String,
}

impl Server {
    fn spawn(data: &str, at: &str, random: &mut Rng) -> Running {
        let engine = random.choice(["threads", "epoll", "auto"]).unwrap();
        let (listen, sync) = (format!("ingest={at}"), ["sync", "interval:5ms"]);
        let sync = random.choice(sync).unwrap();
        Running::start(&[
            "serve",
            "ingest",
            "--listen",
            &listen,
            "--data",
            data,
            "--engine",
            engine,
            "--workers",
            "1",
            "--sync",
            sync,
            "--segment",
            "1MiB",
            "--log-payload",
            "64KiB",
        ])
    }

    /// Starts it and waits until it serves.
    fn start(data: &str, at: &str, random: &mut Rng) -> Server {
        let mut running = Server::spawn(data, at, random);
        let line = running.line();
        assert!(
            line.starts_with("listening "),
            "{line:?} {}",
            stderr(&running.end())
        );
        Server {
            to: addr(&line).to_string(),
            running,
        }
    }

    fn kill(self) -> String {
        self.running.signal(Signal::KILL);
        self.running.end();
        self.to
    }

    fn stop(self) {
        self.running.signal(Signal::TERM);
        let output = self.running.end();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
}

/// A producer that sends as fast as it is let, on a thread, until it is told to finish.
struct Sender {
    name: String,
    number: u64,
    producer: std::sync::Arc<Producer>,
    enough: std::sync::Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<u64, Error>>,
}

impl Sender {
    fn start(to: &str, number: u64, seed: u64) -> Sender {
        let name = format!("producer {number}");
        let producing = Producing {
            stream: stream_name(number % STREAMS),
            producer: name.clone(),
            // Small, so that what is on its way at a kill is a part of what was sent.
            buffer: Amount {
                messages: 2000,
                bytes: 1 << 20,
            },
            ..Producing::default()
        };
        let persistence = Persistence {
            longest: Duration::from_millis(100),
            within: PATIENCE,
            ..Persistence::default()
        };
        let producer = Producer::connect(to, producing, persistence).unwrap();
        let producer = std::sync::Arc::new(producer);
        let enough = std::sync::Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (producer, enough, name) = (producer.clone(), enough.clone(), name.clone());
            move || {
                let mut random = Rng::with_seed(seed);
                let mut last = 0;
                while !enough.load(Relaxed) {
                    let id = producer.send(&payload(&name, last + 1))?;
                    assert_eq!(id, last + 1, "{name}");
                    last = id;
                    if random.u8(..) < 8 {
                        thread::sleep(Duration::from_millis(random.u64(0..20)));
                    }
                }
                Ok(last)
            }
        });
        Sender {
            name,
            number,
            producer,
            enough,
            thread,
        }
    }

    fn stream(&self) -> usize {
        (self.number % STREAMS) as usize
    }

    fn settled(&self) -> u64 {
        self.producer.status().settled.unwrap_or(0)
    }

    /// Has everything sent acknowledged; answers the stream, the name and the last id.
    fn finish(self) -> (usize, String, u64) {
        self.enough.store(true, Relaxed);
        let stream = self.stream();
        let last = self
            .thread
            .join()
            .unwrap()
            .unwrap_or_else(|e| panic!("{}: {e}", self.name));
        self.producer
            .flush_within(PATIENCE)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name));
        (stream, self.name, last)
    }
}

fn stream_name(number: u64) -> String {
    format!("stream {number}")
}

/// What the message of this id says: of many lengths, none too, and none like another.
fn payload(producer: &str, id: u64) -> Vec<u8> {
    let len = match id % 16 {
        0 => 0,
        15 => 3000,
        other => other * 9,
    };
    let text = format!("{producer} {id} ");
    text.bytes().cycle().take(len as usize).collect()
}

/// What was found in a stream so far.
struct Found {
    stream: String,
    next: u64,
    last: BTreeMap<String, u64>,
}

impl Found {
    fn new(number: u64) -> Found {
        Found {
            stream: stream_name(number),
            next: 0,
            last: BTreeMap::new(),
        }
    }

    fn last(&self, producer: &str) -> u64 {
        self.last.get(producer).copied().unwrap_or(0)
    }

    /// Reads from where the last time ended to the tail.
    fn read_on(&mut self, to: &str) {
        let subscribing = Subscribing {
            stream: self.stream.clone(),
            begin: Begin::Position(self.next),
            ..Subscribing::default()
        };
        let reader = Reader::connect(to, subscribing, Persistence::default()).unwrap();
        for record in reader {
            let record = record.unwrap();
            assert_eq!(record.position, self.next, "{}", self.stream);
            self.next += 1;
            let producer = String::from_utf8(record.producer.to_vec()).unwrap();
            let last = self.last.entry(producer.clone()).or_default();
            assert_eq!(
                record.id,
                *last + 1,
                "{producer}, position {}",
                record.position
            );
            *last = record.id;
            assert_eq!(
                record.payload,
                payload(&producer, record.id),
                "{producer} {}",
                record.id
            );
        }
    }
}
