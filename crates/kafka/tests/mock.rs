//! The client with brokers within this process, which are away now and then.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tidewire_kafka::mock::Brokers;
use tidewire_kafka::{AtHome, Reader, Settings, Target, Unavailable, fetch_snapshot};
use tidewire_replicate::Share;

const PIECES: u64 = 3;
const PIECE: &[u8] = b"a piece of a snapshot";

/// Puts the pieces of a snapshot there, as many as that is said to have or fewer.
fn pieces(target: &Target, count: u64) -> AtHome {
    let own = target.snapshots();
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", own.brokers.join(","))
        .create()
        .expect("a producer");
    for number in 0..count {
        let key = [7_u64.to_le_bytes(), number.to_le_bytes()].concat();
        let record = BaseRecord::to(&own.topic)
            .partition(0)
            .key(&key)
            .payload(PIECE);
        producer.send(record).expect("room");
    }
    producer
        .flush(Duration::from_secs(60))
        .expect("they are taken");
    AtHome {
        id: 7,
        log: 1,
        position: 10,
        from: 0,
        pieces: PIECES,
        bytes: PIECES * PIECE.len() as u64,
    }
}

/// The brokers come back when the caller was asked so often whether to go on.
#[test]
fn a_snapshot_is_fetched_though_the_brokers_are_away_for_a_moment() {
    let (brokers, target) = Brokers::start("away").expect("brokers");
    let at = pieces(&target, PIECES);
    brokers.reach(false).expect("they are away");
    let mut asked = 0;
    let mut goes_on = || {
        asked += 1;
        if asked == 15 {
            brokers.reach(true).expect("they are back");
        }
        true
    };
    let mut found = Vec::new();
    fetch_snapshot(&target, &Settings::default(), &at, &mut found, &mut goes_on)
        .expect("all of it");
    assert_eq!(found, PIECE.repeat(PIECES as usize));
    assert!(asked >= 15, "the brokers were not missed");
}

#[test]
fn a_snapshot_of_which_a_piece_is_missing_is_of_no_use() {
    let (_brokers, target) = Brokers::start("missing").expect("brokers");
    let at = pieces(&target, PIECES - 1);
    let fetched = fetch_snapshot(
        &target,
        &Settings::default(),
        &at,
        &mut std::io::sink(),
        &mut || true,
    );
    assert!(
        matches!(fetched, Err(Unavailable::Broken(_))),
        "{fetched:?}"
    );
}

/// A message of a log, and its marks.
fn message(target: &Target) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", target.brokers.join(","))
        .create()
        .expect("a producer");
    let headers = [
        ("tidewire", "2"),
        ("tidewire-producer", ""),
        ("tidewire-position", "0"),
        ("tidewire-id", "1"),
        ("tidewire-received-us", "1"),
    ];
    let all = OwnedHeaders::new();
    let headers = headers.into_iter().fold(all, |all, (key, value)| {
        let value = Some(value);
        all.insert(Header { key, value })
    });
    let message = BaseRecord::to(&target.topic)
        .partition(0)
        .key("s")
        .payload("hello")
        .headers(headers);
    // A foreign record stands before it.
    let other = BaseRecord::<str, str>::to(&target.topic).partition(0);
    producer.send(other.payload("stray")).expect("room");
    producer.send(message).expect("room");
    let value = [&[1][..], &1_u64.to_le_bytes(), &0_u64.to_le_bytes()].concat();
    let marks = target.marks();
    for key in ["owner", "stream\0s"] {
        let mark = BaseRecord::to(&marks).partition(0).key(key).payload(&value);
        producer.send(mark).expect("room");
    }
    producer
        .flush(Duration::from_secs(60))
        .expect("they are taken");
}

/// An operator restores a log after losing a machine, which may have run a broker, too.
#[test]
fn a_home_is_read_though_some_brokers_are_not_reached() {
    let (_brokers, mut target) = Brokers::start("some").expect("brokers");
    message(&target);
    // No broker listens there.
    target
        .brokers
        .extend((1..6).map(|port| format!("127.0.0.1:{port}")));
    let settings = Settings::default();
    for _ in 0..5 {
        let held = tidewire_kafka::held(&target, Share::Whole, &settings).expect("marks");
        assert_eq!(held.streams.get("s").map(|place| place.next), Some(1));
        let mut reader = Reader::open(&target, &settings, None).expect("a reader");
        let found = reader.next(false).expect("a record").expect("one");
        assert_eq!(&*found.record.stream, "s");
        assert_eq!(reader.next(false).expect("the end"), None);
        assert_eq!(reader.passed().map(|(count, _)| count), Some(1));
    }
}
