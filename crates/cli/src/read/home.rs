//! Reading the home of a replicated log, without its server.

use std::io::Write;

use tidewire_ingest::client::{Begin, Record};
use tidewire_ingest::native::codec::parser;
use tidewire_kafka::{Reader, Settings, Target};
use tidewire_replicate::{Record as Carried, Share};

use super::output::Output;
use super::{Args, Ended, conclude};
use crate::exit::Failure;
use crate::serve::client_settings;

pub(super) fn run(args: &Args, at: &str) -> Result<(), Failure> {
    let nothing = |why: String| Failure::usage(format!("nothing was read: {why}"));
    let target: Target = at
        .parse()
        .map_err(|e: tidewire_kafka::BadTarget| nothing(e.to_string()))?;
    if let Some(partitions) = target.partitions {
        return Err(nothing(format!(
            "the partitions of a fleet are read one by one: ?partition=0 to ?partition={}",
            i64::from(partitions) - 1
        )));
    }
    let config = args.home_config.as_deref();
    let settings = Settings {
        client: config.map_or(Ok(Vec::new()), client_settings)?,
        ..Settings::default()
    };
    // Positions are the log's own, and the home has no index of them: it is read from its
    // beginning.
    let (from, since) = match args.begin() {
        Begin::Position(at) => (at, 0),
        Begin::Timestamp(us) => (0, us),
        Begin::Tail => {
            let held = tidewire_kafka::held(&target, Share::Whole, &settings);
            let held = held.map_err(|e| nothing(e.to_string()))?;
            if held.claim.is_some() {
                return Err(nothing(
                    "the topic belongs to a fleet, so a position may be in several logs: begin at a time, or at the beginning"
                        .into(),
                ));
            }
            let place = held.streams.get(&*args.stream);
            (place.map_or(0, |place| place.next), 0)
        }
        Begin::Cursor => unreachable!("a home is not read by a cursor"),
    };
    let mut reader = Reader::open(&target, &settings, None).map_err(|e| nothing(e.to_string()))?;
    let mut out = Output::stdout(false).map_err(|e| conclude(Err(e.into())).unwrap_err())?;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let found = match reader.next(args.follow) {
            Ok(Some(found)) => found.record,
            Ok(None) => break,
            Err(e) => {
                let _ = out.flush();
                return Err(Failure::wrong(e.to_string()));
            }
        };
        if *found.stream != *args.stream || found.timestamp_us < since {
            continue;
        }
        let shown = show(args, &found, from, &mut left, &mut out);
        // A follower is to see the record now.
        let flushed = if args.follow { out.flush() } else { Ok(()) };
        if let Err(ended) = shown.and(flushed.map_err(Ended::from)) {
            return conclude(Err(ended));
        }
    }
    if let Some((count, why)) = reader.passed() {
        say!("tidewire: {count} records were skipped, {why}");
    }
    conclude(out.flush().map_err(Ended::from))
}

fn show(
    args: &Args,
    found: &Carried,
    from: u64,
    left: &mut u64,
    out: &mut Output,
) -> Result<(), Ended> {
    let batch = parser(u32::MAX).parse(&found.frames);
    for (frame, position) in batch.frames().zip(found.first..) {
        if *left == 0 {
            break;
        }
        if position < from {
            continue;
        }
        *left -= 1;
        let record = Record {
            position,
            id: u64::from_le_bytes(frame.id),
            producer: found.producer.as_bytes().to_vec().into(),
            timestamp_us: found.timestamp_us,
            payload: frame.payload.to_vec().into(),
        };
        args.form().write(&record, out)?;
    }
    Ok(())
}
