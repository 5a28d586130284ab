//! The client with brokers within this process, which are away now and then.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use tidewire_kafka::mock::Brokers;
use tidewire_kafka::{AtHome, Settings, Target, Unavailable, fetch_snapshot};

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

/// Its brokers come back when it was asked so often whether it goes on.
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
