//! Tests of the whole crate: on a real temporary directory and on the simulated disk.

mod administered;
mod backlog;
mod basics;
mod doubt;
mod failures;
mod full;
mod golden;
mod growing;
mod later;
mod naming;
mod recovery;
mod reserve;
mod restoring;
mod salvage;
mod shortened;
mod tools;
mod vast;
mod version_1;
mod view;

use std::time::Duration;

use crate::disk::Disk;
use crate::{Credit, EmbeddedLog, Log, Now, ProducerId, Refused, Run, Settings, Step, StreamId};
use crate::{Ticket, Writer};

/// Small sizes, so that everything happens soon.
pub(crate) fn small() -> Settings {
    Settings {
        segment_bytes: 16 << 10,
        group_bytes: 2 << 10,
        payload_max: 1 << 10,
        identity: Some(7),
        ..Settings::default()
    }
}

/// Records with these ids; each payload is made of its id.
pub(crate) fn frames(ids: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut frames = Vec::new();
    for id in ids {
        let payload = vec![id as u8; 5 + (id % 7) as usize];
        frames.extend_from_slice(&id.to_le_bytes());
        frames.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        frames.extend_from_slice(&payload);
    }
    frames
}

pub(crate) fn append(
    log: &impl Log,
    stream: StreamId,
    producer: ProducerId,
    ids: std::ops::RangeInclusive<u64>,
) -> Result<Ticket, Refused> {
    let count = (ids.end() - ids.start() + 1) as u32;
    let (last_id, timestamp_us) = (*ids.end(), 1_000_000 + ids.start() * 1000);
    let frames = frames(ids);
    log.append(Run {
        stream,
        producer,
        frames: &frames,
        count,
        last_id,
        timestamp_us,
    })
}

/// Steps until there is nothing more to do at this time.
pub(crate) fn settle_at<D: Disk>(writer: &mut Writer<D>, seconds: u64) {
    let now = Now {
        monotonic: Duration::from_secs(seconds),
        unix_us: 1_000_000 * (1 + seconds),
    };
    for _ in 0..10_000 {
        if writer.step(now) != Step::Worked {
            return;
        }
    }
    panic!("the writer finds no end");
}

pub(crate) fn settle<D: Disk>(writer: &mut Writer<D>) {
    settle_at(writer, 0);
}

/// The ids of all records of a stream from a position on, after checking payloads and positions.
pub(crate) fn ids<D: Disk>(
    log: &EmbeddedLog<D>,
    stream: &str,
    from: u64,
    credit: usize,
) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut next = from;
    loop {
        let read = log.read(stream, next, Credit(credit)).expect("reading");
        if read.runs.is_empty() {
            assert_eq!(read.next, next);
            return ids;
        }
        for run in read.runs {
            assert_eq!(run.first, next);
            next += u64::from(run.count);
            let mut rest = &run.bytes[..];
            for _ in 0..run.count {
                let id = u64::from_le_bytes(rest[..8].try_into().expect("an id"));
                let frame = frames([id]);
                assert_eq!(rest[..frame.len()], frame, "record {id}");
                rest = &rest[frame.len()..];
                ids.push(id);
            }
            assert!(rest.is_empty());
        }
        assert_eq!(read.next, next);
    }
}
