//! A log from its home, for a node that has lost its disk.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidewire_kafka::{Found, Reader, Settings as Home, Target};
use tidewire_log::{EmbeddedLog, Log, ProducerId, Refused, Run, Settings};
use tidewire_replicate::{Held, Share};

use super::partial::{Partial, is_free};
use super::{Ended, Shown};
use crate::exit::Failure;
use crate::serve::client_settings;

/// The largest payload that may be at home; any server's log may take it.
const PAYLOAD_MAX: u32 = 32 << 20;

pub(super) fn restore(at: &str, config: Option<&Path>, to: &Path, out: &mut impl Write) -> Shown {
    let usage = |why: String| Failure::usage(format!("nothing was restored: {why}"));
    let target: Target = at
        .parse()
        .map_err(|e: tidewire_kafka::BadTarget| usage(e.to_string()))?;
    let settings = Home {
        client: config.map_or(Ok(Vec::new()), client_settings)?,
        ..Home::default()
    };
    let shown = to.display();
    let failed = |why: String| Ended::from(Failure::wrong(format!("{shown} was not made: {why}")));
    if !is_free(to).map_err(|e| failed(e.to_string()))? {
        return Err(usage(format!("{shown} is not an empty directory")).into());
    }
    let partial = Partial::begin(to).map_err(failed)?;
    let (records, streams) = match rebuild(&target, &settings, partial.path()) {
        Ok(rebuilt) => rebuilt,
        Err(why) => {
            partial.give_up();
            return Err(failed(why));
        }
    };
    partial.finish(to).map_err(failed)?;
    writeln!(
        out,
        "restored    {records} records in {streams} streams, to {shown}"
    )?;
    Ok(None)
}

/// Makes the log anew, with the number of the one that was lost: it is the same one as far as its home goes.
fn rebuild(target: &Target, settings: &Home, partial: &Path) -> Result<(u64, usize), String> {
    let held = tidewire_kafka::held(target, Share::Whole, settings).map_err(|e| e.to_string())?;
    if held.claim.is_some() {
        return Err(
            "the topic belongs to a fleet: a node of it that lost its disk starts with an empty directory".into(),
        );
    }
    let owner = held.owner.ok_or("no log was ever replicated there")?;
    let mut reader = Reader::open(target, settings, None).map_err(|e| e.to_string())?;
    let own = Settings {
        identity: Some(owner.log),
        payload_max: PAYLOAD_MAX,
        group_bytes: 2 * PAYLOAD_MAX as usize,
        ..Settings::default()
    };
    let (log, _) = EmbeddedLog::start(partial, own).map_err(|e| e.to_string())?;
    let mut next: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    let mut records = 0;
    while !is_whole(&held, &next)
        && let Some(found) = reader.next(false).map_err(|e| e.to_string())?
    {
        records += u64::from(found.record.count);
        put(&log, &found, &mut next)?;
    }
    if !is_whole(&held, &next) {
        return Err("the marks at home name more records than there are".into());
    }
    log.close();
    if let Some(failure) = log.progress().failure {
        return Err(failure.to_string());
    }
    Ok((records, next.len()))
}

/// Whether all is there that the marks named when they were read.
fn is_whole(held: &Held, next: &BTreeMap<Arc<str>, u64>) -> bool {
    let mut places = held.streams.iter();
    places.all(|(stream, place)| next.get(stream).is_some_and(|&next| next >= place.next))
}

fn put(log: &EmbeddedLog, found: &Found, next: &mut BTreeMap<Arc<str>, u64>) -> Result<(), String> {
    let record = &found.record;
    let due = next.entry(record.stream.clone()).or_default();
    if record.first != *due {
        return Err(format!(
            "offset {} holds position {} of stream {:?} where {due} is due: what was before it is not kept at home any \
             more, and a log that begins later cannot be made yet",
            found.offset, record.first, record.stream
        ));
    }
    *due += u64::from(record.count);
    let stream = patiently(|| log.stream(&record.stream))?;
    let producer = match record.producer.is_empty() {
        true => ProducerId::ANONYMOUS,
        false => patiently(|| log.producer(stream, &record.producer))?,
    };
    let last_id = last_id(&record.frames).ok_or("a record without a message")?;
    let run = Run {
        stream,
        producer,
        frames: &record.frames,
        count: record.count,
        last_id,
        timestamp_us: record.timestamp_us,
    };
    patiently(|| log.append(run)).map(drop)
}

/// Until the log has room in its queue.
pub(super) fn patiently<T>(mut put: impl FnMut() -> Result<T, Refused>) -> Result<T, String> {
    loop {
        match put() {
            Err(Refused::Busy) => std::thread::sleep(Duration::from_millis(1)),
            done => return done.map_err(|e| e.to_string()),
        }
    }
}

/// The id of the last message; the frames are whole.
pub(super) fn last_id(mut frames: &[u8]) -> Option<u64> {
    let mut last = None;
    while let Some((header, rest)) = frames.split_first_chunk::<12>() {
        let (id, size) = header.split_first_chunk::<8>()?;
        last = Some(u64::from_le_bytes(*id));
        let size = u32::from_le_bytes(size.try_into().ok()?) as usize;
        frames = rest.get(size..)?;
    }
    last
}
