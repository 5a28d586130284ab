//! What is in a log, in a few lines.

use std::io::Write;

use tidewire_log::tools;

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
        writeln!(
            out,
            "stream      {name:?} positions {first}..{next} newest {newest}"
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
    let Some(problem) = info.problem else {
        return Ok(None);
    };
    if problem.batch > info.durable_through {
        writeln!(out, "torn tail   {problem}; {TORN}")?;
        return Ok(None);
    }
    Ok(Some(Failure::wrong(format!(
        "damaged: {problem}; what is behind it is not counted here. `tidewire log check` shows \
         everything that is wrong"
    ))))
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
