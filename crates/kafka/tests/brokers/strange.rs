//! Kafka as other people run it: clocks that were ahead, topics that others make, change and delete, records and transactions of other
//! programs, and passwords.

use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::*;

const MINUTE_US: u64 = 60_000_000;

fn config(target: &Target) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", target.brokers.join(","));
    config.set("allow.auto.create.topics", "false");
    config
}

fn admin(target: &Target) -> AdminClient<DefaultClientContext> {
    config(target).create().expect("a client")
}

/// Sets one setting of a topic, and the others to their defaults.
fn alter(target: &Target, topic: &str, settings: &[(&str, &str)]) {
    let mut change = AlterConfig::new(ResourceSpecifier::Topic(topic));
    for (name, value) in settings {
        change = change.set(name, value);
    }
    let admin = admin(target);
    let altered = done(admin.alter_configs([&change], &AdminOptions::new()));
    altered.expect("an answer").remove(0).expect("altered");
}

/// What the topics of a home have to have beside what is altered.
const SAFE: [(&str, &str); 2] = [
    ("min.insync.replicas", "2"),
    ("max.message.bytes", "5242880"),
];

/// Waits until nothing is carried, for a reason that says this.
fn is_refused(running: &Running, says: &str) {
    let mut last = None;
    wait(&format!("it is not refused with {says:?}"), || {
        let trouble = running.shown().status().trouble;
        if trouble != last {
            println!("{trouble:?}");
            last.clone_from(&trouble);
        }
        trouble.is_some_and(|why| why.contains(says))
    });
}

/// Waits until the log itself remembers that so much is at home.
fn is_remembered(log: &EmbeddedLog, position: u64) {
    wait("the log does not remember it", || {
        log.cursor("s", "@home") == Some(position)
    });
}

/// The times of the records of a home, in milliseconds; `None` for records without one.
fn times(target: &Target) -> Vec<Option<i64>> {
    let mut config = config(target);
    let config = config
        .set("group.id", "none")
        .set("enable.partition.eof", "true");
    let consumer: BaseConsumer = config.create().expect("a client");
    let mut places = TopicPartitionList::new();
    let placed = places.add_partition_offset(&target.topic, 0, Offset::Beginning);
    placed.expect("a place");
    consumer.assign(&places).expect("assigned");
    let mut times = Vec::new();
    loop {
        match consumer.poll(PATIENCE).expect("a record, or the end") {
            Ok(record) => times.push(record.timestamp().to_millis().filter(|time| *time >= 0)),
            Err(_) => return times,
        }
    }
}

#[test]
fn what_was_received_by_a_clock_that_was_ahead_comes_home() {
    let Some(target) = target("ahead") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let running = replicate(&log, &target);
    let now_us = now_us();
    append_at(now_us, &log, "p", 1..=10);
    append_at(now_us + 120 * MINUTE_US, &log, "p", 11..=20);
    let ticket = append_at(now_us + 1, &log, "p", 21..=30);
    at_home(&log, ticket, &running);
    assert_eq!(ids(&target), 30);
    // The time of these records is in their headers.
    let mut reader = Reader::open(&target, &Home::default(), None).expect("a reader");
    let mut received_us = Vec::new();
    while let Some(found) = reader.next(false).expect("a record") {
        received_us.push(found.record.timestamp_us);
    }
    // In the log time does not go back: what comes later has the time of what was ahead.
    let ahead_us = now_us + 120 * MINUTE_US;
    assert_eq!(received_us, [now_us, ahead_us, ahead_us]);
    let times = times(&target);
    assert_eq!(times.len(), 3);
    let late_ms = (now_us / 1000) as i64 + 60_000;
    assert!(
        times
            .iter()
            .all(|time| time.is_some_and(|time| time < late_ms)),
        "{times:?}"
    );
}

/// The brokers alone may know that: by their clock the records are too old.
#[test]
fn what_brokers_refuse_for_its_time_comes_home_without_one() {
    let Some(target) = target("refused-times") else {
        return;
    };
    let [one, other] = SAFE;
    make(&target, &target.topic, "delete");
    let before = ("message.timestamp.before.max.ms", "600000");
    alter(&target, &target.topic, &[one, other, before]);
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let ticket = append_at(now_us() - 60 * MINUTE_US, &log, "p", 1..=10);
    let running = replicate(&log, &target);
    at_home(&log, ticket, &running);
    assert!(
        running.shown().status().failures > 0,
        "no broker refused it"
    );
    assert_eq!(ids(&target), 10);
    assert_eq!(times(&target), [None]);
}

#[test]
fn marks_that_go_by_their_age_are_refused_and_so_are_marks_that_have_gone() {
    let Some(target) = target("emptied") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let running = replicate(&log, &target);
    at_home(&log, append(&log, "p", 1..=30), &running);
    is_remembered(&log, 30);
    drop(running);
    let [one, other] = SAFE;
    let with = |policy| [one, other, ("cleanup.policy", policy)];
    alter(&target, &target.marks(), &with("compact,delete"));
    let running = replicate(&log, &target);
    is_refused(
        &running,
        "its cleanup.policy is compact,delete, compact is needed",
    );
    drop(running);

    // The marks are removed, as retention by age would have done.
    let mut all = TopicPartitionList::new();
    let marks = target.marks();
    all.add_partition_offset(&marks, 0, Offset::End)
        .expect("a place");
    let admin = admin(&target);
    wait("the marks are not removed", || {
        let removed = done(admin.delete_records(&all, &AdminOptions::new()));
        removed.is_ok_and(|places| places.elements().iter().all(|place| place.error().is_ok()))
    });
    alter(&target, &target.marks(), &with("compact"));
    let running = replicate(&log, &target);
    append(&log, "p", 31..=40);
    is_refused(&running, "@home");
    assert_eq!(ids(&target), 30);
}

/// Deletes a topic, and makes it anew.
fn remake(target: &Target, topic: &str, policy: &str) {
    let deleted = done(admin(target).delete_topics(&[topic], &AdminOptions::new()));
    deleted.expect("an answer").remove(0).expect("deleted");
    make(target, topic, policy);
}

/// Makes a topic as it must be.
fn make(target: &Target, topic: &str, policy: &str) {
    let admin = admin(target);
    let anew = NewTopic::new(topic, 1, TopicReplication::Fixed(3)).set("cleanup.policy", policy);
    let anew = SAFE
        .iter()
        .fold(anew, |anew, (name, value)| anew.set(name, value));
    wait("it is not made", || {
        let made = done(admin.create_topics([&anew], &AdminOptions::new()));
        let made = made.expect("an answer").remove(0);
        // A server may have been quicker.
        made.is_ok() || matches!(made, Err((_, RDKafkaErrorCode::TopicAlreadyExists)))
    });
}

#[test]
fn nothing_is_promised_once_a_topic_was_deleted_and_made_anew() {
    for marks in [false, true] {
        let Some(target) = target("anew") else {
            return;
        };
        let (topic, policy) = match marks {
            true => (target.marks(), "compact"),
            false => (target.topic.clone(), "delete"),
        };
        let place = tempfile::tempdir().expect("a directory");
        let log = open(place.path());
        let running = replicate(&log, &target);
        for first in [1, 11, 21] {
            at_home(&log, append(&log, "p", first..=first + 9), &running);
        }
        is_remembered(&log, 30);
        remake(&target, &topic, policy);
        let ticket = append(&log, "p", 31..=40);
        is_refused(&running, "made anew");
        assert!(log.progress().replicated < Some(ticket));
        drop(running);
        // The next process does not lose them either.
        let running = replicate(&log, &target);
        is_refused(&running, "made anew");
        assert!(log.progress().replicated < Some(ticket));
    }
}

#[test]
fn nothing_is_promised_once_a_topic_was_made_unsafe() {
    let Some(target) = target("unsafe") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let settings = Home {
        check_every: Duration::ZERO,
        ..Home::default()
    };
    let running = replicate_by(&settings, &log, &target);
    at_home(&log, append(&log, "p", 1..=10), &running);
    let [_, other] = SAFE;
    alter(
        &target,
        &target.topic,
        &[other, ("min.insync.replicas", "1")],
    );
    let mut last = 10;
    wait("it goes on promising", || {
        append(&log, "p", last + 1..=last + 1);
        last += 1;
        let trouble = running.shown().status().trouble;
        trouble.is_some_and(|why| why.contains("its min.insync.replicas is 1"))
    });
    alter(&target, &target.topic, &SAFE);
    at_home(&log, append(&log, "p", last + 1..=last + 1), &running);
}

/// A transaction of another program that wrote to a topic and does not end.
fn begun(target: &Target) -> BaseProducer {
    let mut config = config(target);
    let config = config.set("transactional.id", format!("other-{}", target.topic));
    let config = config.set("transaction.timeout.ms", "600000");
    let producer: BaseProducer = config.create().expect("a client");
    producer.init_transactions(PATIENCE).expect("a coordinator");
    producer.begin_transaction().expect("begun");
    let record = BaseRecord::to(&target.topic)
        .partition(0)
        .key("k")
        .payload("v");
    producer.send(record).expect("room");
    producer.flush(PATIENCE).expect("written");
    producer
}

#[test]
fn what_a_transaction_of_another_program_hides_is_not_acknowledged() {
    let Some(target) = target("hidden") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let running = replicate(&log, &target);
    at_home(&log, append(&log, "p", 1..=10), &running);
    let other = begun(&target);
    let ticket = append(&log, "p", 11..=20);
    // The error comes when it was tried for long enough.
    is_refused(&running, "has not answered");
    assert!(log.progress().replicated < Some(ticket));
    drop(running);
    let running = replicate(&log, &target);
    is_refused(&running, "another program has a transaction open");
    assert!(log.progress().replicated < Some(ticket));
    other.abort_transaction(PATIENCE).expect("it ends");
    at_home(&log, ticket, &running);
    let mut reader = Reader::open(&target, &Home::default(), None).expect("a reader");
    let mut count = 0;
    while let Some(found) = reader.next(false).expect("a record") {
        count += found.record.count;
    }
    assert_eq!(count, 20);
}

/// The topic's end was asked for before the marks were read. What the owner wrote meanwhile was in the marks and behind that end, so the topic
/// counted as made anew, and a follower could not be promoted for as long as the owner went on.
#[test]
fn a_home_is_read_while_its_owner_writes() {
    let Some(target) = target("written") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let running = replicate(&log, &target);
    // So many marks that reading them takes longer than some transactions.
    for number in 1..=90_000 {
        let ticket = append(&log, &format!("producer {number}"), 1..=1);
        if number % 1000 == 0 {
            at_home(&log, ticket, &running);
        }
    }
    at_home(&log, append(&log, "p", 1..=10), &running);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut id = 11;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                append(&log, "p", id..=id);
                id += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let held: Vec<_> = (0..20)
            .map(|_| tidewire_kafka::held(&target, Share::Whole, &Home::default()))
            .collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        for held in held {
            assert!(held.expect("the marks fit the topic").has_records);
        }
    });
}

#[test]
fn records_of_another_program_among_the_marks_stop_nothing() {
    let Some(target) = target("among") else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let running = replicate(&log, &target);
    at_home(&log, append(&log, "p", 1..=10), &running);
    drop(running);
    let producer: BaseProducer = config(&target).create().expect("a client");
    let marks = target.marks();
    for key in [&b"hello"[..], b"\xff\xfe", b"place"] {
        let record = BaseRecord::to(&marks)
            .partition(0)
            .key(key)
            .payload("hello");
        producer.send(record).expect("room");
    }
    producer.flush(PATIENCE).expect("written");
    let running = replicate(&log, &target);
    at_home(&log, append(&log, "p", 11..=20), &running);
    assert_eq!(ids(&target), 20);
}

/// Brokers that ask for a password: `TIDEWIRE_KAFKA_PASSWORD=host:port,...`, where user `tide` has the password `right`.
#[test]
fn a_wrong_password_is_called_one() {
    let Some(mut target) = target("password") else {
        return;
    };
    let Ok(brokers) = std::env::var("TIDEWIRE_KAFKA_PASSWORD") else {
        return;
    };
    target.brokers = brokers.split(',').map(str::to_owned).collect();
    let settings = |password: &str| Home {
        client: [
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "tide"),
            ("sasl.password", password),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..Home::default()
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let ticket = append(&log, "p", 1..=10);
    let running = replicate_by(&settings("hunter2"), &log, &target);
    is_refused(&running, "Authentication failed");
    let trouble = running.shown().status().trouble;
    assert!(!trouble.is_some_and(|why| why.contains("hunter2")));
    drop(running);
    let running = replicate_by(&settings("right"), &log, &target);
    at_home(&log, ticket, &running);
}

/// Copies what is committed in a topic to another one, but for marks that version 0.2.0 did not write.
fn copy_as_of_0_2_0(target: &Target, from: &str, to: &str) {
    let mut config = config(target);
    let config = config
        .set("group.id", "none")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed");
    let consumer: BaseConsumer = config.create().expect("a client");
    let producer: BaseProducer = self::config(target).create().expect("a client");
    let mut places = TopicPartitionList::new();
    let placed = places.add_partition_offset(from, 0, Offset::Beginning);
    placed.expect("a place");
    consumer.assign(&places).expect("assigned");
    while let Ok(found) = consumer.poll(PATIENCE).expect("a record, or the end") {
        let key = found.key().unwrap_or_default();
        if key.starts_with(b"note\0") {
            continue;
        }
        let mut copy = BaseRecord::to(to).partition(0).key(key);
        if let Some(value) = found.payload() {
            copy = copy.payload(value);
        }
        if let Some(headers) = found.headers() {
            copy = copy.headers(headers.detach());
        }
        producer.send(copy).expect("room");
    }
    producer.flush(PATIENCE).expect("written");
}

/// The home has records and marks as they are now, with times, and no notes.
#[test]
fn a_home_of_version_0_2_0_is_gone_on_with() {
    let (Some(target), Some(old)) = (target("newer"), target("older")) else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let log = open(place.path());
    let running = replicate(&log, &target);
    for first in [1, 11, 21] {
        at_home(&log, append(&log, "p", first..=first + 9), &running);
    }
    is_remembered(&log, 30);
    drop(running);
    make(&old, &old.topic, "delete");
    make(&old, &old.marks(), "compact");
    copy_as_of_0_2_0(&old, &target.topic, &old.topic);
    copy_as_of_0_2_0(&old, &target.marks(), &old.marks());
    let running = replicate(&log, &old);
    at_home(&log, append(&log, "p", 31..=40), &running);
    assert_eq!(running.shown().status().messages, 10);
    assert_eq!(ids(&old), 40);
}
