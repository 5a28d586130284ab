//! What stays in the log of a key-value store, because another server took the store over before it was at home.

use std::io::Write;

use tidewire_kv::durable::{STREAM, left_by};
use tidewire_kv::store::{Effect, Reader, effects};
use tidewire_log::{Frames, View};
use tidewire_replicate::Held;

use super::unreplicated::read;
use super::{Shown, time};
use crate::exit::Failure;

/// Bytes of an argument that are shown.
const SHOWN: usize = 64;

/// Bytes in front of the payload of a record.
const HEADER: usize = 12;

/// Lists it, unit by unit.
pub(super) fn show(view: &View, held: &Held, out: &mut impl Write) -> Shown {
    let log = view.identity();
    let owner = held
        .owner
        .ok_or_else(|| Failure::failed("no store was ever carried there"))?;
    let own = owner.log == log;
    let name = if own { STREAM.into() } else { left_by(log) };
    let place = held.streams.get(&*name).copied();
    if place.is_none() && !own {
        writeln!(
            out,
            "the log {log:016x} never was carried to this home: all that it has is here alone"
        )?;
    }
    let place = place.unwrap_or_default();
    let (mut units, mut reader) = (0_u64, Reader::default());
    // From the beginning: a unit may have been cut in two where the other server took over, and its end says nothing alone.
    read(view, STREAM, 0, |run| {
        for (position, at_us, payload) in records(run) {
            let wrong = |why: String| Failure::wrong(format!("position {position}: {why}"));
            let whole = reader.record(payload).map_err(|e| wrong(e.to_string()))?;
            if let Some(unit) = whole
                && position >= place.next
            {
                units += 1;
                if !own {
                    write!(out, "position {position} at {}:", time(at_us))?;
                    for (db, effect) in effects(&unit).map_err(|e| wrong(e.to_string()))? {
                        write!(out, " [{db}]{}", text(&effect))?;
                    }
                    writeln!(out)?;
                }
            }
        }
        Ok(())
    })?;
    match own {
        true => writeln!(
            out,
            "0 units are here alone; {units} go home when the server runs"
        )?,
        false => writeln!(
            out,
            "{units} units are here alone, from position {} on, where another server took the store over",
            place.next
        )?,
    }
    Ok(None)
}

/// Position, time and payload of each record.
fn records(run: &Frames) -> impl Iterator<Item = (u64, u64, &[u8])> {
    let mut rest = &run.bytes[..];
    (run.first..).map_while(move |position| {
        let (header, behind) = rest.split_first_chunk::<HEADER>()?;
        let size = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (payload, behind) = behind.split_at_checked(size)?;
        rest = behind;
        Some((position, run.timestamp_us, payload))
    })
}

/// What was done, as people read it.
fn text(effect: &Effect<'_>) -> String {
    let short = |arg: &[u8]| {
        let most = &arg[..arg.len().min(SHOWN)];
        let dots = if arg.len() > SHOWN { "..." } else { "" };
        format!(" {}{dots}", most.escape_ascii())
    };
    match effect {
        Effect::Command(args) => args.iter().map(|arg| short(arg)).collect(),
        Effect::Removed(key, _) => format!(" (gone){}", short(key)),
    }
}
