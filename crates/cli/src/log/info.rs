//! A summary of a log, in a few lines.

use std::io::Write;

use serde_json::{Value, json};
use tidewire_log::tools::{self, Info};

use super::{Place, Shown, TORN, size, time};
use crate::exit::Failure;

pub(super) fn run(place: &Place, out: &mut impl Write) -> Shown {
    let disk = place.look()?;
    let info = tools::info(&disk).map_err(|e| place.failed(&e))?;
    let bytes: u64 = info.segments.iter().map(|segment| segment.bytes).sum();
    let (segments, batches, records) = (info.segments.len(), info.batches, info.records);
    writeln!(
        out,
        "log         {}, {segments} segments, {batches} batches, {records} records, {}",
        place.data.display(),
        size(bytes)
    )?;
    writeln!(out, "durable     through batch {}", info.durable_through)?;
    if disk.is_written() {
        writeln!(out, "in use      by a process that writes it now")?;
    }
    for segment in &info.segments {
        let (from, to) = segment.batches;
        let newest = time(segment.newest_us);
        let size = size(segment.bytes);
        let file = &segment.file;
        writeln!(
            out,
            "segment     {file} batches {from}..{to} {size} newest {newest}"
        )?;
    }
    for stream in &info.streams {
        let (name, first, next) = (&stream.name, stream.first, stream.next);
        let newest = time(stream.newest_us);
        let (bytes, pins) = (size(stream.bytes), size(stream.pins));
        writeln!(
            out,
            "stream      {name:?} positions {first}..{next} newest {newest} bytes {bytes} pins {pins}"
        )?;
    }
    for (name, first, next) in &info.lost {
        writeln!(
            out,
            "lost        {name:?} positions {first}..{next}, in damage"
        )?;
    }
    writeln!(out, "producers   {}", info.producers)?;
    for cursor in &info.cursors {
        let (stream, name, position) = (&cursor.stream, &cursor.name, cursor.position);
        writeln!(out, "cursor      {name:?} of {stream:?} at {position}")?;
    }
    let torn = info.problem.as_ref();
    if let Some(problem) = torn.filter(|problem| problem.batch > info.durable_through) {
        writeln!(out, "torn tail   {problem}; {TORN}")?;
    }
    Ok(verdict(&info))
}

/// The facts as an object.
pub(super) fn object(place: &Place) -> Result<(Value, Option<Failure>), Failure> {
    let disk = place.look()?;
    let info = tools::info(&disk).map_err(|e| place.failed(&e))?;
    let segments = info.segments.iter().map(|segment| {
        let (first, next) = segment.batches;
        json!({
            "file": segment.file,
            "first_batch": first,
            "next_batch": next,
            "bytes": segment.bytes,
            "newest_us": segment.newest_us,
        })
    });
    let streams = info.streams.iter().map(|stream| {
        json!({
            "name": stream.name,
            "first": stream.first,
            "next": stream.next,
            "bytes": stream.bytes,
            "pins": stream.pins,
            "newest_us": stream.newest_us,
            "retain_bytes": stream.settings.retain_bytes,
            "retain_age_us": stream.settings.retain_age.map(|age| age.as_micros() as u64),
            "limit_bytes": stream.settings.limit_bytes,
            "compression": stream.settings.compression.name(),
        })
    });
    let lost = info.lost.iter();
    let lost =
        lost.map(|(stream, first, next)| json!({ "stream": stream, "first": first, "next": next }));
    let cursors = info.cursors.iter().map(|cursor| {
        json!({ "stream": cursor.stream, "name": cursor.name, "position": cursor.position })
    });
    let shown = json!({
        "log": info.log.map(|log| format!("{log:016x}")),
        "bytes": info.segments.iter().map(|segment| segment.bytes).sum::<u64>(),
        "segments": segments.collect::<Vec<_>>(),
        "streams": streams.collect::<Vec<_>>(),
        "lost": lost.collect::<Vec<_>>(),
        "cursors": cursors.collect::<Vec<_>>(),
        "producers": info.producers,
        "batches": info.batches,
        "records": info.records,
        "durable_through": info.durable_through,
        "in_use": disk.is_written(),
        "problem": info.problem.as_ref().map(ToString::to_string),
    });
    Ok((shown, verdict(&info)))
}

fn verdict(info: &Info) -> Option<Failure> {
    let problem = info.problem.as_ref();
    let problem = problem.filter(|problem| problem.batch <= info.durable_through)?;
    Some(Failure::wrong(format!(
        "damaged: {problem}; the log behind the damage is not counted here. `tidewire log check` \
         shows all damage"
    )))
}

/// A line for each stream.
pub(super) fn streams(place: &Place, out: &mut impl Write) -> Shown {
    let disk = place.look()?;
    let info = tools::info(&disk).map_err(|e| place.failed(&e))?;
    for stream in &info.streams {
        writeln!(out, "{} {} {:?}", stream.first, stream.next, stream.name)?;
    }
    Ok(None)
}
