//! A log and its home, with brokers that run already: `TIDEWIRE_KAFKA=host:port,...` says where, at least three. Without
//! it nothing is tested. `TIDEWIRE_KAFKA_SECONDS` (2) is how long messages are appended while somebody breaks the
//! brokers, perhaps.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_kafka::{Reader, Settings as Home, Target};
use tidewire_log::{EmbeddedLog, Log, Run, Settings, Ticket};
use tidewire_replicate::{Bell, Phase, Replicator, Running, Settings as Carrying};

const PATIENCE: Duration = Duration::from_secs(240);

fn target(name: &str) -> Option<Target> {
    let Ok(brokers) = std::env::var("TIDEWIRE_KAFKA") else {
        println!("skipped: TIDEWIRE_KAFKA names no brokers");
        return None;
    };
    let topic = format!("{name}-{:08x}", fastrand::u32(..));
    println!("topic {topic}");
    Some(
        format!("kafka://{brokers}/{topic}")
            .parse()
            .expect("a target"),
    )
}

fn open(directory: &Path) -> Arc<EmbeddedLog> {
    let settings = Settings {
        backlog: Some(u64::MAX),
        ..Settings::default()
    };
    Arc::new(EmbeddedLog::start(directory, settings).expect("a log").0)
}

fn replicate(log: &Arc<EmbeddedLog>, target: &Target) -> Running {
    let bell = Bell::default();
    let home = tidewire_kafka::home(target, &Home::default(), bell.clone()).expect("a client");
    let replicator = Replicator::new(
        log.clone(),
        log.identity(),
        fastrand::u64(..),
        Carrying::default(),
    );
    Running::start(replicator, home, &**log, bell).expect("a thread")
}

/// Appends messages of a producer; their payload is their id.
fn append(log: &EmbeddedLog, producer: &str, ids: std::ops::RangeInclusive<u64>) -> Ticket {
    let stream = log.stream("s").expect("a stream");
    let mut frames = Vec::new();
    for id in ids.clone() {
        frames.extend_from_slice(&id.to_le_bytes());
        frames.extend_from_slice(&8u32.to_le_bytes());
        frames.extend_from_slice(&id.to_le_bytes());
    }
    let run = Run {
        stream,
        producer: log.producer(stream, producer).expect("a producer"),
        frames: &frames,
        count: ids.clone().count() as u32,
        last_id: *ids.end(),
        timestamp_us: 1_000_000,
    };
    log.append(run).expect("room")
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn at_home(log: &EmbeddedLog, ticket: Ticket, running: &Running) {
    wait("it does not come home", || {
        log.progress().replicated >= Some(ticket)
    });
    println!("{:?}", running.shown().status());
}

/// The ids at home, checked to be in order.
fn ids(target: &Target) -> u64 {
    let mut reader = Reader::open(target, &Home::default(), None).expect("a reader");
    let (mut next, mut position) = (1, 0);
    while let Some(found) = reader.next(false).expect("a record") {
        assert_eq!(
            (&*found.record.producer, found.record.first),
            ("p", position)
        );
        position += u64::from(found.record.count);
        for message in found.record.frames.chunks(20) {
            let id = u64::from_le_bytes(*message.first_chunk().expect("an id"));
            assert_eq!(id, next);
            next += 1;
        }
    }
    next - 1
}

#[test]
fn what_is_appended_comes_home_once_whatever_is_restarted() {
    let Some(target) = target("once") else { return };
    let place = tempfile::tempdir().expect("a directory");
    let mut last = 0;
    let lasts = std::env::var("TIDEWIRE_KAFKA_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(lasts.unwrap_or(2));
    while last == 0 || Instant::now() < until {
        let log = open(place.path());
        let running = replicate(&log, &target);
        let mut ticket = Ticket(0);
        for _ in 0..100 {
            ticket = append(&log, "p", last + 1..=last + 50);
            last += 50;
            std::thread::sleep(Duration::from_millis(5));
        }
        if fastrand::bool() {
            at_home(&log, ticket, &running);
        }
        drop(running);
        log.close();
    }
    let log = open(place.path());
    let running = replicate(&log, &target);
    wait("it does not come home", || {
        log.progress().replicates && log.progress().replicated.is_some()
    });
    println!("{:?}", running.shown().status());
    assert_eq!(ids(&target), last);
}

#[test]
fn a_home_of_another_log_is_left_alone_and_who_is_overtaken_carries_no_more() {
    let Some(target) = target("other") else {
        return;
    };
    let (first, other) = (
        tempfile::tempdir().expect("one"),
        tempfile::tempdir().expect("another"),
    );
    let log = open(first.path());
    let running = replicate(&log, &target);
    let ticket = append(&log, "p", 1..=10);
    at_home(&log, ticket, &running);

    let stranger = open(other.path());
    append(&stranger, "p", 1..=99);
    let refused = replicate(&stranger, &target);
    wait("it does not notice", || {
        let trouble = refused.shown().status().trouble;
        trouble.is_some_and(|why| why.contains("another log"))
    });
    assert!(!stranger.progress().replicates);
    // The owner was not disturbed.
    let ticket = append(&log, "p", 11..=20);
    at_home(&log, ticket, &running);
    assert_eq!(running.shown().status().failures, 0);
    drop(refused);

    // A second process with the same log takes over.
    let next = replicate(&log, &target);
    wait("it does not carry", || {
        next.shown().status().transactions > 0
    });
    append(&log, "p", 21..=30);
    wait("it is not over", || {
        running.shown().status().phase == Phase::Over
    });
    wait("it does not come home", || ids(&target) == 30);
}
