//! A short, deterministic part of the fuzzing of the native protocol: streams drawn from a seed,
//! well-formed and not.

#[allow(unreachable_pub, reason = "the fuzzing crate exports it")]
#[path = "../../../../fuzz/src/native.rs"]
mod native;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use tidewire_ingest::native::codec::{
    Begin, Hello, Level, Produce, ReaderFrame, Reason, Refusal, ServerFrame, Subscribe, Welcome,
    message_header,
};

use crate::replay;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just(String::new()),
        2 => "[a-z]{1,8}",
        1 => proptest::collection::vec(any::<char>(), 0..60)
            .prop_map(|chars| chars.into_iter().collect()),
    ]
}

/// A hello, and what may follow it.
fn from_client() -> impl Strategy<Value = Vec<u8>> {
    let produce = (any::<[bool; 3]>(), 0..5u64, text(), text());
    let ids = proptest::collection::vec((0..4u64, 0..40u32), 0..40);
    let produce =
        (produce, ids).prop_map(|(([sparse, adopt, durable], first, stream, name), ids)| {
            let hello = Hello::Produce(Produce {
                level: if durable {
                    Some(Level::Durable)
                } else {
                    Some(Level::Received)
                },
                sparse,
                adopt: adopt && !durable,
                window_messages: first as u32,
                window_bytes: 0,
                first_id: first,
                stream: if stream.len() > 3 { "" } else { &stream },
                producer: &name,
                token: "",
            });
            let mut bytes = Vec::new();
            hello.encode(&mut bytes).unwrap();
            let mut id = first;
            for (step, size) in ids {
                // Mostly one after the other.
                id = (id + 1).wrapping_sub(step.saturating_sub(2));
                bytes.extend_from_slice(&message_header(id, size));
                bytes.resize(bytes.len() + size as usize, id as u8);
            }
            bytes
        });
    let subscribe = (1..5u8, any::<bool>(), 0..3000u64, text(), text());
    let credits = proptest::collection::vec((0..3u8, 0..5000u64), 0..10);
    let subscribe =
        (subscribe, credits).prop_map(|((begin, follow, credit, stream, cursor), said)| {
            let hello = Hello::Subscribe(Subscribe {
                begin: match begin {
                    1 => Begin::Position(credit),
                    2 => Begin::Tail,
                    3 => Begin::Timestamp(credit),
                    _ => Begin::Cursor,
                },
                follow,
                may_be_absent: follow && credit % 2 == 0,
                credit,
                stream: &stream,
                cursor: &cursor,
                token: "",
            });
            let mut bytes = Vec::new();
            hello.encode(&mut bytes).unwrap();
            for (kind, n) in said {
                let frame = match kind {
                    0 => ReaderFrame::Credit(n),
                    1 => ReaderFrame::CommitCursor(n),
                    _ => ReaderFrame::Unknown(9),
                };
                frame.encode(&mut bytes);
            }
            bytes
        });
    prop_oneof![3 => produce, 1 => subscribe]
}

fn from_server() -> impl Strategy<Value = Vec<u8>> {
    (0..7u8, any::<u64>(), any::<u32>(), any::<bool>(), text()).prop_map(
        |(kind, n, m, flag, text)| {
            let frame = match kind {
                0 => ServerFrame::Welcome(Welcome {
                    level: if flag {
                        Level::Durable
                    } else {
                        Level::Received
                    },
                    payload_max: m,
                    window_messages: m,
                    keepalive_ms: m,
                    window_bytes: n,
                    last_id: Some(n).filter(|_| flag),
                    forgotten: flag,
                }),
                1 => ServerFrame::Ack {
                    id: n,
                    keep_alive: flag,
                    why: &text,
                },
                2 => ServerFrame::Refusal(Refusal {
                    id: n,
                    reason: Reason::of(m as u16 % 20),
                    retry_after_ms: m,
                    text: &text,
                    closes: flag,
                }),
                3 => ServerFrame::End {
                    next: n,
                    short: flag,
                },
                4 => ServerFrame::Unknown(99),
                _ => ServerFrame::Batch(tidewire_ingest::native::codec::Batch {
                    first: n,
                    timestamp_us: n,
                    count: m,
                    producer: &text,
                    messages: b"anything",
                }),
            };
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            bytes
        },
    )
}

/// Sometimes spoilt, sometimes cut, with settings in front.
fn input(
    settings: usize,
    stream: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = Vec<u8>> {
    let spoil = proptest::option::weighted(0.4, (any::<prop::sample::Index>(), any::<u8>()));
    let settings = proptest::collection::vec(any::<u8>(), settings);
    (settings, stream, spoil, 0..60usize).prop_map(|(settings, mut stream, spoil, cut)| {
        stream.truncate(stream.len() - cut.saturating_sub(40).min(stream.len()));
        if let (Some((at, byte)), false) = (spoil, stream.is_empty()) {
            let at = at.index(stream.len());
            stream[at] = byte;
        }
        [settings, stream].concat()
    })
}

fn run(cases: u32, input: impl Strategy<Value = Vec<u8>>, target: fn(&[u8])) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let outcome = runner.run(&input, |input| {
        target(&input);
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn codec() {
    run(2000, input(2, from_client()), native::native_codec);
    run(2000, input(2, from_server()), native::native_codec);
    let anything = proptest::collection::vec(any::<u8>(), 0..64);
    run(2000, input(2, anything), native::native_codec);
}

#[test]
fn service() {
    run(2000, input(3, from_client()), native::native_service);
}

#[test]
fn corpora() {
    replay::replay("native_codec", native::native_codec);
    replay::replay("native_service", native::native_service);
}

/// A service refused a hello at its second byte, but only if it saw both at once.
#[test]
fn a_hello_is_judged_byte_by_byte() {
    native::native_service(b"\x1c\x2c\x1c\x54\x1c");
}

/// A reader's welcome was taken for one without its reserved field.
#[test]
fn a_frame_is_not_read_from_less_than_is_written() {
    let input = b"\0\x03\x04\x2c\x2e\xef\x1c\0\0\0\x10\0\0\0\0\0\xee\x05\x2c\0\x01\0\x08\x01\x2c\0\0\0\0\0\0\0\0\0\0\x08\x2c\0";
    native::native_codec(input);
}
