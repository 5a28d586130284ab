//! Reading everything back and holding it against the model.

use tidewire_log::{Committed, Credit, Frames, Log, Range, ReadError};

use crate::model::{Record, Stream};
use crate::seeds::{Verdict, Violation, ensure};

/// The range of a stream; an unknown one is empty.
pub(crate) fn range(log: &impl Log, stream: &str) -> Range {
    log.range(stream).unwrap_or(Range { first: 0, next: 0 })
}

/// Reads once and checks what comes; returns where to go on.
///
/// Damage is for the caller to judge: `Ok(Err(..))`.
pub(crate) fn once(
    log: &impl Log,
    stream: &Stream,
    from: u64,
    credit: usize,
) -> Verdict<Result<u64, ReadError>> {
    let read = match log.read(&stream.name, from, Credit(credit)) {
        Ok(read) => read,
        Err(error) => return Ok(Err(error)),
    };
    let upto = range(log, &stream.name).next;
    records(stream, from, upto, &read)?;
    let bytes = read.runs.iter().map(|run| run.bytes.len()).sum::<usize>();
    let several = read.runs.len() > 1 || read.runs.iter().any(|run| run.count > 1);
    ensure(bytes <= credit || !several, || {
        format!(
            "{}: {bytes} bytes read with a credit of {credit}",
            stream.name
        )
    })?;
    Ok(Ok(read.next))
}

/// Reads a stream from its first position to its last and checks every record.
pub(crate) fn whole(
    log: &impl Log,
    stream: &Stream,
    credit: usize,
) -> Verdict<Result<(), ReadError>> {
    let Range { first, next } = range(log, &stream.name);
    let mut from = first;
    while from < next {
        match once(log, stream, from, credit)? {
            Ok(upto) => from = upto,
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(()))
}

/// Holds what a read returned against the model; `upto` is where the stream ends for readers.
fn records(stream: &Stream, from: u64, upto: u64, read: &Committed) -> Verdict {
    let name = &stream.name;
    let mut position = from;
    for run in &read.runs {
        ensure(run.first == position && run.count > 0, || {
            format!(
                "{name}: {} records at {} instead of {position}",
                run.count, run.first
            )
        })?;
        for (index, found) in split(run)?.iter().enumerate() {
            let at = position + index as u64;
            let expected = usize::try_from(at)
                .ok()
                .and_then(|at| stream.records.get(at));
            let mut renamed = found.clone();
            if let Some(expected) = expected
                && found.producer.starts_with("lost-producer-")
            {
                // After a repair the producer's name may be unknown.
                renamed.producer.clone_from(&expected.producer);
            }
            ensure(expected == Some(&renamed), || {
                format!("{name}: position {at} is {found:?} instead of {expected:?}")
            })?;
        }
        position += u64::from(run.count);
    }
    ensure(read.next == position && position <= upto.max(from), || {
        format!(
            "{name}: read {from} to {position}, next {}, the range ends at {upto}",
            read.next
        )
    })?;
    ensure(position > from || from >= upto, || {
        format!("{name}: nothing read at {from}, the range ends at {upto}")
    })
}

fn split(run: &Frames) -> Verdict<Vec<Record>> {
    let broken = || Violation(format!("frames that do not parse: {run:?}"));
    let mut rest = &run.bytes[..];
    let mut found = Vec::new();
    while let Some((head, tail)) = rest.split_first_chunk::<12>() {
        let id = u64::from_le_bytes(head[..8].try_into().expect("eight of twelve"));
        let size = u32::from_le_bytes(head[8..].try_into().expect("four of twelve"));
        let payload = tail.get(..size as usize).ok_or_else(broken)?;
        rest = &tail[size as usize..];
        found.push(Record {
            id,
            producer: run.producer.to_string(),
            timestamp_us: run.timestamp_us,
            payload: payload.to_vec(),
        });
    }
    if rest.is_empty() && found.len() == run.count as usize {
        Ok(found)
    } else {
        Err(broken())
    }
}
