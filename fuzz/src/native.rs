//! The native protocol: its frames read and written, its server fed anything.

use std::sync::Arc;

use tidewire::Closed;
use tidewire::sim::chunking::{self, Feed};
use tidewire_ingest::native::codec::{
    AdminFrame, Hello, Read, ReaderFrame, ServerFrame, message_header,
};
use tidewire_ingest::native::{IngestService, Settings};
use tidewire_ingest::testing::{Record, SteppedLog};
use tidewire_log::{Log, ProducerId, Run};

/// What a decoder says of some bytes: a frame and its length, how much it needs, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said<T> {
    Whole(T, usize),
    Partial(usize),
    Malformed,
}

fn said<T, E>(result: Result<Read<T>, E>) -> Said<T> {
    match result {
        Ok(Read::Whole(frame, len)) => Said::Whole(frame, len),
        Ok(Read::Partial(needed)) => Said::Partial(needed),
        Err(_) => Said::Malformed,
    }
}

/// What holds for every decoder: a frame takes bytes that are there, more is asked for when it is
/// needed and not without end, and what a beginning is found to be, the whole is too.
fn check<'a, T: PartialEq + std::fmt::Debug>(
    bytes: &'a [u8],
    cut: usize,
    most: usize,
    decode: impl Fn(&'a [u8]) -> Said<T>,
) -> Option<T> {
    let whole = decode(bytes);
    let part = &bytes[..cut.min(bytes.len())];
    match decode(part) {
        Said::Partial(needed) => assert!(needed > part.len() && needed <= most),
        early => assert_eq!(early, whole),
    }
    match whole {
        Said::Whole(frame, len) => {
            assert!(len <= bytes.len());
            match decode(&bytes[..len]) {
                Said::Whole(again, n) => assert_eq!((&again, n), (&frame, len)),
                other => panic!("{other:?} without what is behind it"),
            }
            Some(frame)
        }
        Said::Partial(needed) => {
            assert!(needed > bytes.len() && needed <= most);
            None
        }
        Said::Malformed => None,
    }
}

/// Reads the input as every kind of frame; what can be read is written and read again.
pub fn native_codec(input: &[u8]) {
    let Some((&[cut, max], bytes)) = input.split_first_chunk() else {
        return;
    };
    let (cut, max) = (usize::from(cut), usize::from(max) * 64);

    if let Some(hello) = check(bytes, cut, 8 + 1024, |b| said(Hello::decode(b))) {
        let mut again = Vec::new();
        hello.encode(&mut again).expect("strings that were read");
        let len = again.len();
        assert_eq!(Hello::decode(&again), Ok(Read::Whole(hello, len)));
    }
    if let Some(frame) = check(bytes, cut, 8 + max, |b| said(ServerFrame::decode(b, max))) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        let len = again.len();
        // The frame may be shorter here only by fields that are unknown.
        assert!(len <= bytes.len());
        assert_eq!(
            ServerFrame::decode(&again, max),
            Ok(Read::Whole(frame, len))
        );
    }
    if let Some(frame) = check(bytes, cut, 8 + 1024, |b| said(ReaderFrame::decode(b))) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        let len = again.len();
        assert_eq!(ReaderFrame::decode(&again), Ok(Read::Whole(frame, len)));
    }
    if let Some(frame) = check(bytes, cut, 8 + 1024, |b| said(AdminFrame::decode(b))) {
        let mut again = Vec::new();
        frame.encode(&mut again).expect("names that were read");
        let len = again.len();
        // What is not meant to be set may have been anything.
        let Ok(Read::Whole(same, n)) = AdminFrame::decode(&again) else {
            panic!("{frame:?} is not read again");
        };
        assert_eq!((same, n), (frame, len));
    }
}

/// Feeds the input to a server whole and in pieces: the same is stored, the same is said, and all
/// that was stored came in the input.
pub fn native_service(input: &[u8]) {
    let Some((&[split, pace, max], stream)) = input.split_first_chunk() else {
        return;
    };
    let serve = |feed: Feed<'_>| {
        let log = SteppedLog::new().auto().payloads(u32::from(max) * 8);
        fill(&log);
        let settings = Settings {
            read_threads: 0,
            protected: false,
            read_max: 1 + usize::from(pace) * 4,
            ..Settings::default()
        };
        let got = feed.run(IngestService::new(Arc::new(log.clone()), settings));
        (meaning(&got.output), got.closed, contents(&log))
    };
    let whole = serve(Feed::new(stream));
    let splits = chunking::splits(split.into(), stream.len());
    let feed = Feed::new(stream)
        .splits(&splits)
        .window(1 + usize::from(pace));
    let pieces = serve(feed);
    for (_, closed, _) in [&whole, &pieces] {
        assert!(matches!(
            closed,
            Some(Closed::Finished | Closed::ByProtocol(_))
        ));
    }
    // Whether a reader says something wrong before or after it has got all is a matter of time.
    if !(whole.0.cut_short || pieces.0.cut_short) {
        assert_eq!(whole, pieces);
    }
    for (_, payload) in whole.2 {
        assert!(payload.is_empty() || stream.windows(payload.len()).any(|w| w == payload));
    }
}

/// Anonymous messages that a reader may find.
const FILLED: u64 = 40;

fn fill(log: &SteppedLog) {
    let stream = log.stream("default").expect("the first one");
    let mut frames = Vec::new();
    for id in 0..FILLED {
        frames.extend_from_slice(&message_header(id, 3));
        frames.extend_from_slice(b"old");
    }
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: &frames,
        count: FILLED as u32,
        last_id: FILLED - 1,
        timestamp_us: 5,
    };
    log.append(run).expect("there is room");
}

/// What a server says, whatever it says it in.
#[derive(Debug, Default, PartialEq, Eq)]
struct Meaning {
    acknowledged: Option<u64>,
    records: Vec<u8>,
    others: Vec<String>,
    /// A reader was refused after its welcome.
    cut_short: bool,
}

fn meaning(output: &[u8]) -> Meaning {
    let mut meaning = Meaning::default();
    let mut reader = false;
    let mut rest = output;
    while let Read::Whole(frame, len) =
        ServerFrame::decode(rest, usize::MAX).expect("what a server says")
    {
        rest = &rest[len..];
        let last = meaning.acknowledged;
        match frame {
            ServerFrame::Ack { id, .. } => {
                assert!(last <= Some(id), "{last:?} and then {id}");
                meaning.acknowledged = Some(id);
            }
            ServerFrame::Batch(batch) => meaning.records.extend_from_slice(batch.messages),
            other => {
                reader |= matches!(other, ServerFrame::ReaderWelcome(_));
                meaning.cut_short |= reader && matches!(other, ServerFrame::Refusal(_));
                meaning.others.push(format!("{other:?}"));
            }
        }
    }
    assert!(rest.is_empty(), "half a frame");
    meaning
}

/// What the log holds besides what it was filled with.
fn contents(log: &SteppedLog) -> Vec<(u64, Vec<u8>)> {
    let records = log.records("default").into_iter().skip(FILLED as usize);
    records.map(|r: Record| (r.id, r.payload)).collect()
}
