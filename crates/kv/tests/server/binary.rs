//! The small binary protocol as its clients use it, on the simulated network.

use std::sync::Arc;
use std::time::Duration;

use crate::worked::{Worked, worked};
use tidewire::Closed;
use tidewire::sim::chunking::{self, Collected, Feed};
use tidewire_kv::binary::{encode_read, encode_response, encode_write};
use tidewire_kv::service::{BinaryService, Settings};
use tidewire_kv::store::Store;

fn service() -> BinaryService {
    BinaryService::open(Arc::new(
        Store::new(tidewire_kv::store::Settings::default()),
    ))
}

/// Some requests of every kind, and their answers.
fn conversation() -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    let long = vec![b'x'; 255];
    for (key, value) in [
        (&b"key"[..], &b"value"[..]),
        (b"", b"nameless"),
        (b"empty", b""),
        (&long, &long),
        (b"\x01\x00\x02", b"\x03\x02\x01"),
    ] {
        encode_read(key, &mut requests);
        encode_response(b"", &mut answers);
        encode_write(key, value, &mut requests);
        encode_response(value, &mut answers);
        encode_read(key, &mut requests);
        encode_response(value, &mut answers);
    }
    (requests, answers)
}

#[test]
fn the_page_shows_what_is_spoken() {
    let page = worked(include_str!("../../../../docs/formats/kv-binary.md"));
    let [Worked { names, sent, heard }] = &page[..] else {
        panic!("one conversation is shown");
    };
    assert!(names.is_empty(), "there is one mode: {names:?}");
    let got = chunking::collect(service(), sent, &[], true);
    assert_eq!(&got.output, heard);
}

#[test]
fn every_split_means_the_same() {
    let (requests, answers) = conversation();
    let meaning = |got: &Collected| got.clone();
    let whole = chunking::collect(service(), &requests, &[], true);
    assert_eq!(whole.output, answers);
    assert_eq!(whole.closed, Some(Closed::Finished));
    chunking::assert_invisible(service, &requests, true, meaning, 60);
    for cut in 1..requests.len() {
        assert_eq!(
            chunking::collect(service(), &requests, &[cut], true),
            whole,
            "at {cut}"
        );
    }
}

#[test]
fn six_small_writes_a_request() {
    let service = service();
    let mut stream = Vec::new();
    encode_write(b"key", b"value", &mut stream);
    encode_read(b"key", &mut stream);
    // Operation, length, key length, key, value length, value; then the first four again.
    let got = Feed::new(&stream)
        .splits(&[1, 2, 1, 3, 1, 5, 1, 2, 1])
        .pause(Duration::from_millis(40))
        .run(service.clone());
    assert_eq!(got.output, b"\x03\x05value\x03\x05value");
    let counters = service.counters();
    assert_eq!(
        (counters.reads, counters.writes, counters.faults),
        (1, 1, 0)
    );
}

#[test]
fn what_is_not_the_protocol_ends_the_connection_and_stores_nothing() {
    for bad in [
        &b"\x04\x00\x02\x01k"[..],
        b"\x00",
        b"\x03\x00",
        b"\x02\x00\x05\x01k\x03ab",
        b"\x01\x00\x03\x01kk",
        b"\x02\x02\x03",
    ] {
        let service = service();
        let mut stream = Vec::new();
        encode_write(b"k", b"before", &mut stream);
        stream.extend_from_slice(bad);
        encode_write(b"k", b"after", &mut stream);
        let got = chunking::collect(service.clone(), &stream, &[], false);
        assert_eq!(got.output, b"\x03\x06before", "{bad:?}");
        assert!(
            matches!(got.closed, Some(Closed::ByProtocol(_))),
            "{:?}",
            got.closed
        );
        let counters = service.counters();
        assert_eq!((counters.writes, counters.faults), (1, 1));
        let mut read = Vec::new();
        encode_read(b"k", &mut read);
        let got = chunking::collect(service, &read, &[], true);
        assert_eq!(got.output, b"\x03\x06before");
    }
}

#[test]
fn what_the_protocol_cannot_carry_reads_as_nothing() {
    let store = Arc::new(Store::new(tidewire_kv::store::Settings::default()));
    let service = BinaryService::open(store.clone());
    let redis = tidewire_kv::service::RespService::new(
        store,
        Settings {
            protected: false,
            ..Settings::default()
        },
    );
    let text = format!(
        "SET short {}\r\nSET long {}\r\nLPUSH list x\r\nSET gone x PX 1\r\n",
        "x".repeat(255),
        "x".repeat(256)
    );
    let _ = chunking::collect(redis, text.as_bytes(), &[], true);
    for (key, len) in [
        (&b"short"[..], 255),
        (b"long", 0),
        (b"list", 0),
        (b"none", 0),
    ] {
        let mut read = Vec::new();
        encode_read(key, &mut read);
        let got = chunking::collect(service.clone(), &read, &[], true);
        assert_eq!(usize::from(got.output[1]), len, "{key:?}");
    }
    assert_eq!(service.counters().unreadable, 2);
    let mut write = Vec::new();
    encode_write(b"list", b"now a string", &mut write);
    encode_read(b"list", &mut write);
    let got = chunking::collect(service, &write, &[], true);
    assert_eq!(got.output, b"\x03\x0cnow a string\x03\x0cnow a string");
}

#[test]
fn silence_between_two_requests_ends_no_connection() {
    use std::time::Duration;
    use tidewire::sim::{PlainState, Sim};
    let mut sim = Sim::new(1);
    let addr = sim.serve(service(), BinaryService::limits());
    let (patient, dripping) = (sim.plain(&addr), sim.plain(&addr));
    // READ k: a miss is an empty value.
    let read = [1, 0, 2, 1, b'k'];
    sim.send(patient, &read);
    sim.send(dripping, &read[..2]);
    sim.run_for(Duration::from_secs(3600));
    assert_eq!(sim.state(patient), PlainState::Open);
    assert_ne!(
        sim.state(dripping),
        PlainState::Open,
        "a request has an end"
    );
    sim.send(patient, &read);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.received(patient), [3, 0, 3, 0]);
}
