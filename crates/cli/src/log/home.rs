//! A log from its home, for a node that has lost its disk.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use tidewire_kafka::{Reader, Settings as Home, Target};
use tidewire_replicate::{Held, Share};

use super::anew::{Anew, Made};
use super::of_store::{advice, is_store};
use super::partial::{Partial, is_free};
use super::{Ended, Shown};
use crate::exit::Failure;
use crate::serve::client_settings;
use crate::status_line::StatusLine;

/// How often the progress of a restore is shown.
const TELL: Duration = Duration::from_millis(500);

pub(super) fn restore(at: &str, config: Option<&Path>, to: &Path, out: &mut impl Write) -> Shown {
    let target: Target = at
        .parse()
        .map_err(|e: tidewire_kafka::BadTarget| usage(&e.to_string()))?;
    if target.partitions.is_some() {
        return Err(usage(
            "a fleet's log is not restored: a node of it that lost its disk starts with an empty directory",
        )
        .into());
    }
    let settings = Home {
        client: config.map_or(Ok(Vec::new()), client_settings)?,
        ..Home::default()
    };
    let shown = to.display();
    let failed = |why: String| Ended::from(wrong(to, &why));
    if !is_free(to).map_err(|e| failed(e.to_string()))? {
        return Err(usage(&format!("{shown} is not an empty directory")).into());
    }
    let partial = Partial::begin(to).map_err(failed)?;
    let made = match rebuild(&target, &settings, partial.path(), to) {
        Ok(made) => made,
        Err(why) => {
            partial.give_up();
            return Err(why.into());
        }
    };
    partial.finish().map_err(failed)?;
    show(&made, to, out)?;
    Ok(None)
}

fn show(made: &Made, to: &Path, out: &mut impl Write) -> io::Result<()> {
    let (records, streams) = (made.records, made.streams);
    writeln!(
        out,
        "restored    {records} records in {streams} streams, to {}",
        to.display()
    )?;
    if let Some((count, why)) = &made.passed {
        writeln!(out, "skipped {count} records, {why}")?;
    }
    if made.cursors > 0 {
        writeln!(out, "cursors     {}", made.cursors)?;
    }
    if made.producers > 0 {
        writeln!(
            out,
            "producers {} have no record left, and go on where they were",
            made.producers
        )?;
    }
    for (stream, first, next) in &made.missing {
        writeln!(
            out,
            "missing     positions {first} to {} of stream {stream:?} are not at home any more",
            next - 1
        )?;
    }
    Ok(())
}

/// Makes the log anew.
fn rebuild(target: &Target, settings: &Home, partial: &Path, to: &Path) -> Result<Made, Failure> {
    let (held, mut reader) = look(target, settings).map_err(|why| wrong(to, &why))?;
    let mut next = reader.next(false);
    if let Ok(first) = &next
        && is_store(&held, first.as_ref())
    {
        return Err(usage(&advice(target, to)));
    }
    let mut line = StatusLine::new();
    let make = || {
        let owner = held
            .owner
            .ok_or("no log was ever replicated to that home")?;
        let is_cut = reader.first() > 0;
        let mut anew = Anew::begin(partial, owner.log)?;
        let ends = held.streams.values().map(|place| place.next);
        let all = ends.fold(0, u64::saturating_add);
        let mut told = Instant::now();
        while let Some(found) = next.map_err(|e| e.to_string())? {
            anew.put(found)?;
            if line.is_seen() && told.elapsed() >= TELL {
                told = Instant::now();
                line.show(&format!(
                    "restoring: {} of at most {all} records",
                    anew.records()
                ));
            }
            if anew.is_whole(&held) {
                break;
            }
            next = reader.next(false);
        }
        let mut made = anew.finish(&held, is_cut)?;
        made.passed = reader.passed().map(|(count, why)| (count, why.to_owned()));
        Ok(made)
    };
    let made = make();
    line.wipe();
    made.map_err(|why: String| wrong(to, &why))
}

/// The home's own account of its records, and a reader of the home.
fn look(target: &Target, settings: &Home) -> Result<(Held, Reader), String> {
    let held = tidewire_kafka::held(target, Share::Whole, settings).map_err(|e| e.to_string())?;
    if held.claim.is_some() {
        return Err(
            "the topic belongs to a fleet: a node of it that lost its disk starts with an empty directory".into(),
        );
    }
    if held.owner.is_none() {
        return Err("no log was ever replicated to that home".into());
    }
    let reader = Reader::open(target, settings, None).map_err(|e| e.to_string())?;
    Ok((held, reader))
}

fn usage(why: &str) -> Failure {
    Failure::usage(format!("nothing was restored: {why}"))
}

fn wrong(to: &Path, why: &str) -> Failure {
    Failure::wrong(format!("{} was not made: {why}", to.display()))
}
