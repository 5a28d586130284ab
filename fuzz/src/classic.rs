//! The classic protocol: its parser against a plain one, its service against what it must say.

use std::time::Duration;

use tidewire::sim::chunking::{self, Feed};
use tidewire::{Closed, Limits};
use tidewire_ingest::Counted;
use tidewire_ingest::classic::{
    AckForm, AckPolicy, ByteOrder, Classic, ClassicService, Frame, HEADER, Mode, Parser, Then,
};

/// The first bytes of an input choose settings; the rest is the stream.
struct Plan<'a> {
    order: ByteOrder,
    payload_max: u32,
    /// Chooses what the test at hand likes.
    choice: [u8; 4],
    stream: &'a [u8],
}

fn plan(input: &[u8]) -> Option<Plan<'_>> {
    let (&[order, max, a, b, c, d], stream) = input.split_first_chunk()?;
    Some(Plan {
        order: [ByteOrder::Little, ByteOrder::Big][usize::from(order & 1)],
        // From nothing to more than a stream can hold.
        payload_max: (1u32 << (max % 18)) - 1,
        choice: [a, b, c, d],
        stream,
    })
}

/// The messages of a stream, found in the plainest way.
fn plain(order: ByteOrder, payload_max: u32, stream: &[u8]) -> (Vec<Frame<'_>>, Then) {
    let (mut frames, mut at) = (Vec::new(), 0);
    loop {
        let Some(header) = stream.get(at..at + HEADER) else {
            return (frames, Then::Partial { needed: HEADER });
        };
        let size = order.decode(header[8..].try_into().unwrap());
        if size > payload_max {
            return (frames, Then::Oversized { size });
        }
        let len = HEADER + size as usize;
        let Some(frame) = stream.get(at..at + len) else {
            return (frames, Then::Partial { needed: len });
        };
        let id = frame[..8].try_into().unwrap();
        let payload = &frame[HEADER..];
        frames.push(Frame { id, payload });
        at += len;
    }
}

/// Parses the input at once, in batches of limited size, and with each message shown; all must
/// agree with a plain parser.
pub fn classic_codec(input: &[u8]) {
    let Some(plan) = plan(input) else { return };
    let (frames, then) = plain(plan.order, plan.payload_max, plan.stream);
    let parser = Parser {
        order: plan.order,
        payload_max: plan.payload_max,
    };

    let batch = parser.parse(plan.stream);
    assert_eq!(batch.then(), then);
    assert_eq!(batch.messages(), frames.len());
    assert_eq!(batch.last_id(), frames.last().map(|f| f.id));
    assert_eq!(batch.frames().collect::<Vec<_>>(), frames);
    let payload: usize = frames.iter().map(|f| f.payload.len()).sum();
    assert_eq!(batch.payload_bytes(), payload);

    let most = usize::from(plan.choice[0]);
    let (mut rest, mut seen) = (plan.stream, Vec::new());
    loop {
        let before = seen.len();
        let batch = parser.parse_with(rest, most, |frame| seen.push(frame));
        assert_eq!(batch.messages(), seen.len() - before);
        assert!(batch.messages() <= most);
        rest = &rest[batch.bytes().len()..];
        if batch.then() != Then::Limit {
            assert_eq!(batch.then(), then);
            break;
        }
        if most == 0 {
            return;
        }
    }
    assert_eq!(seen.len(), frames.len());
    for (bytes, frame) in seen.iter().zip(&frames) {
        assert_eq!(
            (&bytes[..8], &bytes[HEADER..]),
            (&frame.id[..], frame.payload)
        );
    }
}

/// Feeds the input to the service in some split, at some pace; the acknowledgements must cover
/// the whole messages, each once and in order, and the connection must end as it should.
pub fn classic_service(input: &[u8]) {
    let Some(plan) = plan(input) else { return };
    let [mode, form, split, pace] = plan.choice;
    let preset = Classic::preset(Mode::ALL[usize::from(mode) % Mode::ALL.len()]);
    let classic = Classic {
        order: plan.order,
        form: [AckForm::IdOnly, AckForm::IdAndSkipped][usize::from(form & 1)],
        payload_max: plan.payload_max,
        ..preset
    };
    let (frames, then) = plain(plan.order, plan.payload_max, plan.stream);

    let splits = chunking::splits(split.into(), plan.stream.len());
    let limits = Limits {
        output_low: usize::from(pace >> 5),
        output_high: 8 + usize::from(pace),
        // The peer may take long to send what the server does not read any more.
        linger: Duration::from_secs(3600),
        ..classic.limits()
    };
    let got = Feed::new(plan.stream)
        .splits(&splits)
        .window(1 + usize::from(pace & 63))
        .pause(Duration::from_millis((pace & 7).into()))
        .limits(limits)
        .run(ClassicService::new(classic, Counted::default()));

    let end = match then {
        Then::Oversized { .. } => Closed::ByProtocol("payload too large"),
        Then::Partial { .. } | Then::Limit => Closed::Finished,
    };
    assert_eq!(got.closed, Some(end));
    let acks = got.output.chunks_exact(classic.form.len());
    assert_eq!(acks.remainder(), b"");
    let mut covered = 0;
    for ack in acks {
        let ack = classic.form.decode(ack);
        let said = ack.skipped as usize + 1;
        covered += match (classic.form, classic.policy) {
            (AckForm::IdOnly, AckPolicy::EachMessage) => 1,
            // How many it covers is not said: the next message of that id will do.
            (AckForm::IdOnly, _) => {
                let next = frames[covered..].iter().position(|f| f.id == ack.id);
                next.expect("an id that was sent") + 1
            }
            (AckForm::IdAndSkipped, _) => said,
        };
        assert_eq!(frames[covered - 1].id, ack.id);
    }
    if classic.form == AckForm::IdAndSkipped || classic.policy == AckPolicy::EachMessage {
        assert_eq!(covered, frames.len());
    }
}
