//! Finds units that stay in the log of a key-value store, because another server took the store over before the
//! units reached the home.

use std::io::Write;

use tidewire_kv::durable::{STREAM, left_by};
use tidewire_kv::store::{Effect, Reader, effects};
use tidewire_log::{Frames, View};
use tidewire_replicate::Held;

use super::runs::read;
use super::{Shown, time};
use crate::exit::Failure;

/// Bytes of an argument that are shown.
const SHOWN: usize = 64;

/// Bytes in front of the payload of a record.
const HEADER: usize = 12;

/// Lists the unreplicated part, unit by unit.
pub(super) fn show(view: &View, held: &Held, out: &mut impl Write) -> Shown {
    let log = view.identity();
    let owner = held
        .owner
        .ok_or_else(|| Failure::failed("no store was ever replicated to that home"))?;
    let own = owner.log == log;
    let name = if own { STREAM.into() } else { left_by(log) };
    let place = held.streams.get(&*name).copied();
    if place.is_none() && !own {
        writeln!(
            out,
            "the log {log:016x} was never replicated to this home: all its records are on this server only"
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
            "0 units are on this server only; {units} go to the home when the server runs"
        )?,
        false => writeln!(
            out,
            "{units} units are on this server only, from position {} on, where another server took the store over",
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

/// The change as a text for people.
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

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use tidewire_kv::commands::find;
    use tidewire_kv::durable::{Accept, KvLog, open};
    use tidewire_kv::reply::{Proto, Reply};
    use tidewire_kv::store::{RECORD_MAX, Settings, Store};
    use tidewire_log::{EmbeddedLog, Policy};
    use tidewire_replicate::{Owner, Place};

    use super::*;

    /// Runs these commands on a store with a log in a directory.
    fn write(directory: &std::path::Path, commands: &[&[&[u8]]]) {
        let (log, _) = EmbeddedLog::start(directory, KvLog::settings(Policy::Sync)).unwrap();
        let (log, store) = (Arc::new(log), Store::new(Settings::default()));
        let go_on = |_: &_, _, _| ControlFlow::Continue(());
        let (kv_log, _) = open(log.clone(), &store, 1, Accept::Nothing, go_on).unwrap();
        for args in commands {
            loop {
                let mut reply = Reply::new(Proto::Resp2);
                let spec = find(args[0]).unwrap();
                let _ = store.runner(1, 1).run(spec, 0, args, &mut reply);
                if reply.bytes() == b"+OK\r\n" {
                    break;
                }
                // The log is busy.
                assert!(reply.bytes().starts_with(b"-TRYAGAIN"));
                thread::sleep(Duration::from_millis(1));
            }
        }
        while kv_log.update() < store.last_ticket() {
            thread::sleep(Duration::from_millis(1));
        }
        log.close();
    }

    fn shown(view: &View, held: &Held) -> Result<String, String> {
        let mut out = Vec::new();
        let shown = show(view, held, &mut out);
        shown.map_err(|_| "it is not shown".to_owned())?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// Another server has taken the store over between its two records: it has broken that unit off, which is here alone.
    #[test]
    fn a_unit_that_was_cut_in_two_is_listed_whole() {
        let place = tempfile::tempdir().unwrap();
        let long = vec![b'x'; RECORD_MAX + 1000];
        write(
            place.path(),
            &[
                &[b"SET", b"home", b"1"],
                &[b"SET", b"cut", &long],
                &[b"SET", b"behind", b"2"],
            ],
        );
        let view = View::open(place.path()).unwrap();
        assert_eq!(view.range(STREAM).map(|range| range.next), Some(4));
        let mut held = Held {
            owner: Some(Owner { log: 7, session: 8 }),
            ..Held::default()
        };
        let left = left_by(view.identity());
        for (next, units, listed) in [
            (1, 2, &["SET cut xxx", "SET behind 2"][..]),
            (2, 2, &["SET cut xxx", "SET behind 2"]),
            (3, 1, &["SET behind 2"]),
            (4, 0, &[]),
        ] {
            held.streams.insert(left.clone(), Place { next, print: 0 });
            let said = shown(&view, &held).unwrap();
            let last = format!("{units} units are on this server only, from position {next} on");
            assert!(said.contains(&last), "{said:.2000}");
            assert_eq!(said.lines().count(), listed.len() + 1, "{said:.2000}");
            assert!(
                listed.iter().all(|line| said.contains(line)),
                "{said:.2000}"
            );
        }
    }
}
