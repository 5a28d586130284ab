//! A log and its home, with brokers that run already: `TIDEWIRE_KAFKA=host:port,...` says where, at
//! least three. Without it nothing is tested. `TIDEWIRE_KAFKA_SECONDS` (2) is how long messages are
//! appended during which a person may break the brokers.

mod strange;

use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::client::DefaultClientContext;
use tidewire_kafka::{AtHome, Form, Reader, SNAPSHOT, Settings as Home, Target};
use tidewire_log::{Change, EmbeddedLog, Log, Run, Settings, Ticket};
use tidewire_replicate::{
    Bell, Ending, Member as Joining, Node, Owners, Phase, Replicator, Running,
    Settings as Carrying, Share, Whose,
};

const PATIENCE: Duration = Duration::from_secs(240);

fn target(name: &str) -> Option<Target> {
    let Ok(brokers) = std::env::var("TIDEWIRE_KAFKA") else {
        // Not by `println`, whose output a passing test does not show.
        let test = std::thread::current();
        let test = test.name().unwrap_or("a test");
        let told = writeln!(
            std::io::stderr(),
            "skipped {test}: TIDEWIRE_KAFKA names no brokers"
        );
        told.expect("a place to say so");
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
    replicate_as(Form::Run, log, target)
}

fn replicate_as(form: Form, log: &Arc<EmbeddedLog>, target: &Target) -> Running {
    let settings = Home {
        form,
        ..Home::default()
    };
    replicate_by(&settings, log, target)
}

fn replicate_by(settings: &Home, log: &Arc<EmbeddedLog>, target: &Target) -> Running {
    let (bell, form) = (Bell::default(), settings.form);
    let home = tidewire_kafka::home(target, settings, bell.clone()).expect("a client");
    let carrying = Carrying::default();
    let carrying = Carrying {
        record_bytes: form.record_bytes(carrying.record_bytes),
        ..carrying
    };
    let replicator = Replicator::new(log.clone(), log.identity(), fastrand::u64(..), carrying);
    Running::start(replicator, home, &**log, bell).expect("a thread")
}

/// Appends messages of a producer; their payload is their id.
fn append(log: &EmbeddedLog, producer: &str, ids: std::ops::RangeInclusive<u64>) -> Ticket {
    // Kafka removes what is older than a topic's retention, also if it has just come.
    append_at(now_us(), log, producer, ids)
}

/// Appends messages that were received then.
fn append_at(
    timestamp_us: u64,
    log: &EmbeddedLog,
    producer: &str,
    ids: std::ops::RangeInclusive<u64>,
) -> Ticket {
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
        timestamp_us,
    };
    log.append(run).expect("room")
}

fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_micros()).expect("before the year 500,000")
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What an administrator asked for.
fn done<F: Future>(asked: F) -> F::Output {
    let mut asked = std::pin::pin!(asked);
    let mut context = Context::from_waker(Waker::noop());
    let mut answer = None;
    wait("the brokers do not answer an administrator", || {
        if let Poll::Ready(done) = asked.as_mut().poll(&mut context) {
            answer = Some(done);
        }
        answer.is_some()
    });
    answer.expect("it is there")
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
fn records_of_one_message_and_of_many_are_one_home() {
    let Some(target) = target("forms") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let mut last = 0;
    for form in [Form::Run, Form::Message, Form::Run, Form::Message] {
        let log = open(place.path());
        let running = replicate_as(form, &log, &target);
        let ticket = append(&log, "p", last + 1..=last + 50);
        last += 50;
        at_home(&log, ticket, &running);
    }
    let mut reader = Reader::open(&target, &Home::default(), None).expect("a reader");
    let mut counts = Vec::new();
    while let Some(found) = reader.next(false).expect("a record") {
        counts.push(found.record.count);
    }
    let each = [&[50][..], &[1; 50]].concat();
    assert_eq!(counts, each.repeat(2));
    assert_eq!(ids(&target), last);
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
    // The coordinator answers before readers see what was committed.
    wait("readers do not see it", || ids(&target) == last);
}

#[test]
fn a_home_of_another_log_is_left_alone_and_an_overtaken_server_carries_no_more() {
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
    // Brokers that have just begun may ask for patience.
    let failures = running.shown().status().failures;

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
    assert_eq!(running.shown().status().failures, failures);
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

/// Cursors follow what is at home and never go before it, also from a log that is started anew;
/// what is gone goes there, too.
#[test]
fn cursors_of_readers_come_home() {
    let Some(target) = target("cursors") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let cursors = || {
        let held = tidewire_kafka::held(&target, Share::Whole, &Home::default());
        let held = held.expect("the marks").cursors.into_iter();
        let named = held.map(|((stream, name), position)| (format!("{stream}/{name}"), position));
        named.collect::<Vec<_>>()
    };
    let log = open(place.path());
    let running = replicate(&log, &target);
    at_home(&log, append(&log, "p", 1..=50), &running);
    log.set_cursor("s", "gone", 7).expect("room");
    log.set_cursor("s", "stays", 50).expect("room");
    let both = [("s/gone".to_owned(), 7), ("s/stays".to_owned(), 50)];
    wait("the cursors do not come home", || cursors() == both);
    let change = Change::DeleteCursor {
        stream: "s",
        cursor: "gone",
    };
    log.administer(change).expect("room");
    wait("it stays at home", || cursors() == both[1..]);
    drop(running);

    // Moved while nothing is carried.
    append(&log, "p", 51..=60);
    log.set_cursor("s", "stays", 60).expect("room");
    log.set_cursor("s", "new", 0).expect("room");
    log.close();
    drop(log);
    let log = open(place.path());
    let running = replicate(&log, &target);
    let both = [("s/new".to_owned(), 0), ("s/stays".to_owned(), 60)];
    wait("the cursors do not come home", || cursors() == both);
    let transactions = || running.shown().status().transactions;
    let before = transactions();
    at_home(&log, append(&log, "p", 61..=70), &running);
    assert!(transactions() > before);
    assert_eq!(cursors(), both);
    wait("readers do not see it", || ids(&target) == 70);
}

/// Partitions of the fleets here.
const PARTITIONS: u32 = 4;

/// A member of a fleet, which runs.
struct Member {
    log: Arc<EmbeddedLog>,
    owners: Owners,
    running: Running,
}

fn member(place: &Path, target: &Target, address: &str) -> Member {
    let log = open(place);
    let (bell, owners) = (Bell::default(), Owners::default());
    let settings = Home::default();
    let homes = tidewire_kafka::homes(target, &settings, bell.clone()).expect("a client");
    let membership = tidewire_kafka::membership(target, &settings, address, bell.clone());
    let joining = Joining {
        partitions: PARTITIONS,
        homes,
        membership: membership.expect("a client"),
        owners: owners.clone(),
        session: Box::new(|| fastrand::u64(..)),
    };
    let node = Node::new(log.clone(), log.identity(), Carrying::default(), joining);
    let running = Running::start_node(node, &*log, bell).expect("a thread");
    Member {
        log,
        owners,
        running,
    }
}

impl Member {
    fn has(&self) -> Vec<u32> {
        let all = 0..PARTITIONS;
        all.filter(|&partition| matches!(self.owners.of(partition), Whose::Held(_)))
            .collect()
    }

    /// Appends ten messages of the producer of a partition behind what it has, and waits until they are at home; false
    /// if the partition is not here, or not any more.
    fn append(&self, partition: u32) -> bool {
        let Whose::Held(hold) = self.owners.of(partition) else {
            return false;
        };
        let Some(guest) = hold.enter() else {
            return false;
        };
        let name = hold.tenure().name(&format!("p{partition}"));
        let stream = self.log.stream("s").expect("a stream");
        let producer = self.log.producer(stream, &name).expect("a producer");
        let mark = self.log.mark(producer).appended;
        let mark = mark.or_else(|| hold.mark("s", &format!("p{partition}")));
        let mark = mark.unwrap_or(0);
        let ticket = append(&self.log, &name, mark + 1..=mark + 10);
        let since = Instant::now();
        while hold.replicated() < Some(ticket) && hold.ending() != Ending::Over {
            assert!(
                since.elapsed() < PATIENCE,
                "partition {partition} does not come home"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(guest);
        hold.replicated() >= Some(ticket)
    }
}

/// The ids of a partition's producer at home, checked to be there once and in order.
fn ids_of(target: &Target, partition: u32) -> u64 {
    let target = Target {
        partition: partition as i32,
        partitions: None,
        ..target.clone()
    };
    let mut reader = Reader::open(&target, &Home::default(), None).expect("a reader");
    let mut next = 1;
    while let Some(found) = reader.next(false).expect("a record") {
        if found.record.producer.is_empty() {
            continue;
        }
        assert_eq!(*found.record.producer, *format!("p{partition}"));
        for message in found.record.frames.chunks(20) {
            let id = u64::from_le_bytes(*message.first_chunk().expect("an id"));
            assert_eq!(id, next, "partition {partition}");
            next += 1;
        }
    }
    next - 1
}

#[test]
fn a_fleet_shares_its_partitions_and_goes_on_without_a_member() {
    let Some(target) = target("fleet") else {
        return;
    };
    let target = Target {
        partitions: Some(PARTITIONS),
        ..target
    };
    let places = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let first = member(places[0].path(), &target, "a.example:7400");
    wait("one has all", || first.has().len() == PARTITIONS as usize);
    for partition in 0..PARTITIONS {
        assert!(first.append(partition));
    }

    // Another member joins: some partitions are handed over, and every member knows where they are.
    let second = member(places[1].path(), &target, "b.example:7400");
    wait("they share", || {
        second.has().len() == 2 && first.has().len() == 2
    });
    let moved = second.has();
    wait("the first one knows", || {
        let there = |at: &u32| matches!(first.owners.of(*at), Whose::At(place) if &*place == "b.example:7400");
        moved.iter().all(there)
    });
    for &partition in &moved {
        assert!(second.append(partition) && !first.append(partition));
    }
    println!("{:?}", first.running.shown().status().fleet);
    assert_eq!(
        second
            .running
            .shown()
            .status()
            .fleet
            .map(|it| it.left_tenures),
        Some(0)
    );

    // The member ends without a word, and its partitions go on where they were.
    let first_had = first.has();
    for &partition in &first_had {
        assert!(first.append(partition));
    }
    drop(first.running);
    first.log.close();
    wait("the other one has all", || {
        second.has().len() == PARTITIONS as usize
    });
    for &partition in &first_had {
        assert!(second.append(partition));
    }
    for partition in 0..PARTITIONS {
        let times = if moved.contains(&partition) { 2 } else { 3 };
        assert_eq!(ids_of(&target, partition), 10 * times);
    }
}

/// A snapshot counts by the word for it; pieces of others are in its way, and what was removed is found to be.
#[test]
fn a_snapshot_goes_home_and_comes_back() {
    let Some(target) = target("snapshot") else {
        return;
    };
    let home = Home {
        keeps_all: true,
        ..Home::default()
    };
    let directory = tempfile::tempdir().expect("a directory");
    let log = open(directory.path());
    let bell = Bell::default();
    let kafka = tidewire_kafka::home(&target, &home, bell.clone()).expect("a client");
    let replicator = Replicator::new(log.clone(), log.identity(), 7, Carrying::default());
    let notes = replicator.notes();
    let running = Running::start(replicator, kafka, &*log, bell).expect("a thread");
    for n in 0..20 {
        at_home(&log, append(&log, "p", 1 + 10 * n..=10 + 10 * n), &running);
    }
    let held = tidewire_kafka::held(&target, Share::Whole, &home).expect("the marks");
    assert!(held.notes.is_empty());

    let bytes: Vec<u8> = (0..1_300_000_u32).map(|n| n as u8).collect();
    let mut goes_on = || true;
    let mut send = |id, bytes: &[u8]| {
        let what = (id, log.identity(), 100);
        tidewire_kafka::send_snapshot(&target, &home, what, &mut &*bytes, &mut goes_on)
    };
    send(1, &bytes[..700_000]).expect("one that never counts");
    let sent = send(2, &bytes).expect("a snapshot");
    assert_eq!(
        (sent.pieces, sent.bytes, sent.position),
        (3, 1_300_000, 100)
    );
    notes.put(SNAPSHOT, &sent.encode());
    running.bell().ring();
    wait("the word does not come home", || {
        notes.at_home(SNAPSHOT).as_deref() == Some(&sent.encode()[..])
    });
    let held = tidewire_kafka::held(&target, Share::Whole, &home).expect("the marks");
    let word = held.notes.get(SNAPSHOT).expect("the word");
    let found = AtHome::decode(word).expect("of a snapshot");
    assert_eq!(found, sent);
    let fetch = |what: &AtHome| {
        let mut fetched = Vec::new();
        tidewire_kafka::fetch_snapshot(&target, &home, what, &mut fetched, &mut || true)
            .map(|()| fetched)
    };
    assert!(fetch(&found).expect("all pieces") == bytes);
    assert!(fetch(&AtHome { pieces: 4, ..found }).is_err());
    assert!(fetch(&AtHome { bytes: 1, ..found }).is_err());

    // Where a position is, also behind what was removed.
    let first = |from| {
        let mut reader = Reader::open(&target, &home, from).expect("a reader");
        let found = reader.next(false).expect("a record");
        found.map(|found| found.record.first)
    };
    for (position, expected) in [
        (0, Some(0)),
        (100, Some(100)),
        (195, Some(190)),
        (200, None),
    ] {
        let offset = Reader::find(&target, &home, position).expect("an offset");
        assert_eq!(first(Some(offset)), expected, "{position}");
    }
    let before = Reader::find(&target, &home, 100).expect("an offset");
    tidewire_kafka::forget(&target, &home, before, found.from).expect("removed");
    assert_eq!(first(None), Some(100));
    assert!(fetch(&found).expect("all pieces") == bytes);
    let offset = Reader::find(&target, &home, 0).expect("an offset");
    assert_eq!(first(Some(offset)), Some(100));
}

/// What brokers refuse has not come home, though the client has nothing left to send.
#[test]
fn a_snapshot_whose_pieces_are_refused_is_none() {
    let Some(target) = target("refused") else {
        return;
    };
    let home = Home {
        keeps_all: true,
        is_unsafe: true,
        ..Home::default()
    };
    let send = |bytes: &[u8]| {
        let what = (3, 4, 5);
        tidewire_kafka::send_snapshot(&target, &home, what, &mut &*bytes, &mut || true)
    };
    send(&[7; 2000]).expect("the topic is made");
    let mut config = rdkafka::ClientConfig::new();
    config.set("bootstrap.servers", target.brokers.join(","));
    let admin: AdminClient<DefaultClientContext> = config.create().expect("a client");
    let topic = target.snapshots().topic;
    let smaller =
        AlterConfig::new(ResourceSpecifier::Topic(&topic)).set("max.message.bytes", "500");
    let options = AdminOptions::new();
    let altered = done(admin.alter_configs([&smaller], &options));
    altered.expect("an answer").remove(0).expect("altered");
    wait("the brokers take pieces that are too large", || {
        send(&[7; 2000]).is_err()
    });
}

/// A topic that forgets records is no home of a store.
#[test]
fn a_topic_that_forgets_is_refused_where_all_is_needed() {
    let Some(target) = target("forgets") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let log = open(directory.path());
    let ticket = append(&log, "p", 1..=1);
    let running = replicate(&log, &target);
    at_home(&log, ticket, &running);
    drop(running);
    let home = Home {
        keeps_all: true,
        ..Home::default()
    };
    let bell = Bell::default();
    let kafka = tidewire_kafka::home(&target, &home, bell.clone()).expect("a client");
    let replicator = Replicator::new(log.clone(), log.identity(), 8, Carrying::default());
    let running = Running::start(replicator, kafka, &*log, bell).expect("a thread");
    wait("it is not refused", || {
        let trouble = running.shown().status().trouble;
        trouble.is_some_and(|why| why.contains("retention.ms"))
    });
}
