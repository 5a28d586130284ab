//! The split of the stream carries no meaning: for producers it is what is stored and what is
//! acknowledged at last, for readers the records.

use std::sync::Arc;

use crate::native::{Frame, frames, hello, messages, produce, settings, subscribe};
use proptest::prelude::*;
use tidewire::Closed;
use tidewire::sim::chunking::{self, Collected};
use tidewire_ingest::native::codec::{
    AdminFrame, Administer, Hello, Level, Produce, ReaderFrame, Reason, Subscribe, Wanted,
};
use tidewire_ingest::native::{IngestService, Settings};
use tidewire_ingest::testing::{Record, SteppedLog};
use tidewire_log::Log;

/// A server that commits at once, and its log.
fn server(log: &SteppedLog) -> Arc<IngestService> {
    let settings = Settings {
        read_max: 500,
        ..settings()
    };
    Arc::new(IngestService::new(Arc::new(log.clone()), settings))
}

/// What a producer is told in the end: the last acknowledgement, refusals, how it ended.
fn told(got: &Collected) -> (Option<u64>, Vec<Frame>, Option<Closed>) {
    let mut last = None;
    let mut others = Vec::new();
    for frame in frames(&got.output) {
        match frame {
            Frame::Ack(id) => {
                assert!(
                    last <= Some(id),
                    "acknowledgements go back: {id} after {last:?}"
                );
                last = Some(id);
            }
            other => others.push(other),
        }
    }
    (last, others, got.closed)
}

/// A producer's stream: what ids follow each other is drawn.
fn produced() -> impl Strategy<Value = (Produce<'static>, Vec<u64>, usize)> {
    let step = prop_oneof![20 => Just(1i64), 1 => -5i64..5];
    let ids = proptest::collection::vec((step, 1..30usize), 0..12);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    (flags, ids, 0..40usize).prop_map(|((sparse, durable, named), steps, cut)| {
        let hello = Produce {
            sparse,
            level: if durable {
                Some(Level::Durable)
            } else {
                Some(Level::Received)
            },
            first_id: 100,
            ..produce(if named { "a" } else { "" })
        };
        let mut ids = Vec::new();
        let mut next = 99i64;
        for (step, n) in steps {
            for i in 0..n {
                next += if i == 0 { step } else { 1 };
                ids.push(next as u64);
            }
        }
        (hello, ids, cut.saturating_sub(20))
    })
}

fn stored(log: &SteppedLog) -> Vec<(u64, Vec<u8>)> {
    let records = log.records("default").into_iter();
    records.map(|r: Record| (r.id, r.payload)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_producer((produce, ids, cut) in produced()) {
        let mut stream = hello(Hello::Produce(produce));
        stream.extend(messages(ids));
        stream.truncate(stream.len() - cut.min(stream.len()));
        let whole_log = SteppedLog::new().auto();
        let whole = told(&chunking::collect(server(&whole_log), &stream, &[], true));
        for round in 0..12 {
            let log = SteppedLog::new().auto();
            let splits = chunking::splits(round, stream.len());
            let got = chunking::collect(server(&log), &stream, &splits, true);
            prop_assert_eq!(told(&got), whole.clone(), "{:?}", splits);
            prop_assert_eq!(stored(&log), stored(&whole_log), "{:?}", splits);
        }
    }

    #[test]
    fn a_reader(credits in proptest::collection::vec(1..3000u64, 0..20), begin in 0..100u64) {
        let log = SteppedLog::new().auto();
        fill(&log);
        let mut stream = hello(Hello::Subscribe(Subscribe {
            begin: tidewire_ingest::native::codec::Begin::Position(begin),
            credit: 1 << 40,
            ..subscribe()
        }));
        for credit in credits {
            ReaderFrame::Credit(credit).encode(&mut stream);
        }
        chunking::assert_invisible(|| server(&log), &stream, true, records, 10);
    }
}

/// Puts a few hundred messages of several producers into a log.
fn fill(log: &SteppedLog) {
    let stream = log.stream("default").unwrap();
    for (name, ids) in [("a", 1..200u64), ("b", 1..10), ("a", 200..300), ("", 5..50)] {
        let producer = match name {
            "" => tidewire_log::ProducerId::ANONYMOUS,
            name => log.producer(stream, name).unwrap(),
        };
        let run = tidewire_log::Run {
            stream,
            producer,
            frames: &messages(ids.clone()),
            count: ids.clone().count() as u32,
            last_id: ids.end - 1,
            timestamp_us: 5,
        };
        log.append(run).unwrap();
    }
}

/// Position, producer, id and payload.
type Stored = (u64, String, u64, Vec<u8>);

/// The meaning of a reader's output: the records with their positions, and the end.
fn records(got: &Collected) -> (Vec<Stored>, Vec<Frame>, Option<Closed>) {
    let (mut all, mut others) = (Vec::new(), Vec::new());
    for frame in frames(&got.output) {
        match frame {
            Frame::Batch {
                first,
                producer,
                messages,
            } => {
                for (position, (id, payload)) in (first..).zip(messages) {
                    all.push((position, producer.clone(), id, payload));
                }
            }
            other => others.push(other),
        }
    }
    (all, others, got.closed)
}

#[test]
fn the_whole_log_however_slowly_it_is_taken() {
    let log = SteppedLog::new().auto();
    fill(&log);
    let stream = hello(Hello::Subscribe(subscribe()));
    let whole = chunking::collect(server(&log), &stream, &[], true);
    let (all, others, closed) = records(&whole);
    assert_eq!(all.len(), 199 + 9 + 100 + 45);
    assert!(all.iter().map(|r| r.0).eq(0..353));
    assert_eq!(others.last(), Some(&Frame::End(353)));
    assert_eq!(closed, Some(Closed::Finished));
    chunking::assert_invisible(|| server(&log), &stream, true, records, 40);
}

#[test]
fn a_hello_cut_anywhere() {
    let mut stream = hello(Hello::Produce(produce("a")));
    let end = stream.len();
    stream.extend(messages(1..=3));
    for cut in 0..=end + 5 {
        let log = SteppedLog::new().auto();
        let got = chunking::collect(server(&log), &stream, &[cut], true);
        assert_eq!(told(&got).0, Some(3), "{cut}");
    }
    // A frame that is no hello is refused once, wherever it is cut.
    let bad = b"TIDE\x01\x01\xff\xffxxxxxxxxxxxxxxx";
    for cut in 0..bad.len() {
        let log = SteppedLog::new().auto();
        let got = chunking::collect(server(&log), bad, &[cut], true);
        let refusal = Frame::Refusal {
            id: 0,
            reason: Reason::Malformed,
            retry_after_ms: 0,
        };
        assert_eq!(told(&got).1, [refusal]);
    }
}

/// An administrator's requests, some of them about streams that are not there.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let one = (0..8u8, 0..3usize, any::<bool>(), 0..2000u64);
    proptest::collection::vec(one, 0..12).prop_map(|all| {
        let mut bytes = Vec::new();
        let hello = Hello::Administer(Administer { token: "" });
        hello.encode(&mut bytes).unwrap();
        for (kind, which, is_set, limit) in all {
            let stream = ["", "one", "two"][which];
            let wanted = Wanted {
                limit_bytes: is_set.then_some(Some(limit).filter(|&limit| limit > 0)),
                ..Wanted::default()
            };
            let request = match kind {
                0 => AdminFrame::List { after: stream },
                1 => AdminFrame::Create { stream, wanted },
                2 => AdminFrame::Set { stream, wanted },
                3 => AdminFrame::Delete { stream },
                4 => AdminFrame::Cursors { stream, after: "" },
                5 => AdminFrame::Readers { stream },
                6 => AdminFrame::DeleteCursor {
                    stream,
                    cursor: "c",
                },
                _ => AdminFrame::Unknown(99),
            };
            request.encode(&mut bytes).unwrap();
        }
        bytes
    })
}

proptest! {
    #[test]
    fn an_administrator_is_answered_the_same(
        sent in requests(),
        cut in 0..30usize,
        splits in proptest::collection::vec(1..60usize, 1..30),
    ) {
        let sent = &sent[..sent.len().saturating_sub(cut.saturating_sub(15))];
        let answers = |splits: &[usize]| {
            let log = SteppedLog::new().auto();
            let got = chunking::Feed::new(sent).splits(splits).run(server(&log));
            (frames(&got.output), got.closed)
        };
        prop_assert_eq!(answers(&[sent.len().max(1)]), answers(&splits));
    }
}
