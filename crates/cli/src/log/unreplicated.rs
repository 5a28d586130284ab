//! Records that stay in the log of a fleet member because a partition went to another member before they were in the home; or
//! in the log of a key-value store because another server took the store over.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use tidewire_kafka::{Settings as Home, Target};
use tidewire_kv::durable::STREAM;
use tidewire_log::{EmbeddedLog, Frames, Kind, Log, Tenure, View};
use tidewire_replicate::{CURSOR, Held, RELEASED, Share};

use super::runs::read;
use super::storing::{last_id, patiently};
use super::{Ended, Place, Shown, momentary, time, unreplicated_store};
use crate::exit::Failure;
use crate::serve::client_settings;

/// The directory to look at.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,

    /// The home of the fleet, as --replicate has it: kafka://h1,h2,h3/TOPIC?partitions=12; or of the store, as --kv-replicate
    /// has it
    #[arg(long, value_name = "HOME")]
    home: String,

    /// A file of settings for the client of that home, name=value a line
    #[arg(long, value_name = "FILE")]
    home_config: Option<PathBuf>,

    /// Has the log keep nothing of what is listed any more, with its server stopped: retention removes it as it removes
    /// what is at home. Read it first, if it is to be anywhere
    #[arg(long)]
    release: bool,
}

/// Whether the records of a tenure reached the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Records are at home up to before this position.
    Home(u64),
    /// This log still has the partition, and goes on from there.
    Waits(u64),
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> Shown {
    let usage = |why: String| Ended::from(Failure::usage(why));
    let target: Target = args
        .home
        .parse()
        .map_err(|e: tidewire_kafka::BadTarget| usage(e.to_string()))?;
    let config = args.home_config.as_deref();
    let settings = Home {
        client: config.map_or(Ok(Vec::new()), client_settings)?,
        ..Home::default()
    };
    // A fleet has messages only; a home with one partition is the home of a store, if there is one.
    let parts = args.place.parts()?;
    let wanted = match target.partitions {
        Some(_) => Kind::Messages,
        None => Kind::Keys,
    };
    let part = parts.iter().find(|part| part.kind == wanted);
    let place = match part.or(parts.first()) {
        Some(part) => Place::of(part),
        None => args.place.clone(),
    };
    let view = View::open(&place.data).map_err(|e| place.failed(&e))?;
    if view.range(STREAM).is_some() && target.partitions.is_none() {
        if args.release {
            return Err(usage(
                "--release is for fleets: move the whole directory of a store away instead".into(),
            ));
        }
        let held = tidewire_kafka::held(&target, Share::Whole, &settings);
        let held = held.map_err(|e| Failure::failed(e.to_string()))?;
        return unreplicated_store::show(&view, &held, out);
    }
    let count = target.partitions.unwrap_or(tidewire_kafka::PARTITIONS);
    let mut held = BTreeMap::new();
    let mut marks = |number: u32| -> Result<Held, Failure> {
        if let Some(held) = held.get(&number) {
            return Ok(Held::clone(held));
        }
        let share = Share::Partition { number, count };
        let found = tidewire_kafka::held(&target, share, &settings);
        let found = found.map_err(|e| Failure::failed(e.to_string()))?;
        held.insert(number, found.clone());
        Ok(found)
    };
    let (mut left, mut waits) = (0, 0);
    // By streams, one past the last that is listed.
    let mut listed: BTreeMap<String, u64> = BTreeMap::new();
    let mut fates: BTreeMap<(Tenure, String), Fate> = BTreeMap::new();
    for stream in view.streams() {
        let name = &*stream.name;
        let cursor = |of: &str| {
            let mut all = view.cursors().iter();
            let found = all.find(|cursor| *cursor.stream == *name && *cursor.name == *of);
            found.map_or(0, |cursor| cursor.position)
        };
        let (from, released) = (cursor(CURSOR), cursor(RELEASED));
        read(&view, name, from, |run| {
            let (producer, Some(tenure)) = Tenure::split(&run.producer) else {
                return Ok(());
            };
            let of = (tenure, name.to_owned());
            let fate = match fates.get(&of) {
                Some(fate) => *fate,
                None => {
                    let fate = fate(&marks(tenure.partition)?, view.identity(), tenure, name);
                    fates.insert(of, fate);
                    fate
                }
            };
            match fate {
                Fate::Home(next) | Fate::Waits(next) if run.first < next => {}
                Fate::Waits(_) => waits += u64::from(run.count),
                Fate::Home(_) if run.first < released => {}
                Fate::Home(_) => {
                    left += u64::from(run.count);
                    listed.insert(name.to_owned(), run.first + u64::from(run.count));
                    show(out, name, producer, tenure, run)?;
                }
            }
            Ok(())
        })?;
    }
    writeln!(
        out,
        "{left} messages are on this server only; {waits} more go to the home when the server runs"
    )?;
    if !args.release {
        return Ok(None);
    }
    if waits > 0 {
        return Err(usage(format!(
            "nothing is released while {waits} messages have not reached the home: start the server, and stop it when they have"
        )));
    }
    drop(view);
    release(&place, &listed)?;
    writeln!(
        out,
        "{left} messages are released: they go with the log's retention"
    )?;
    Ok(None)
}

/// Sets each stream to keep no records before its position.
fn release(place: &Place, listed: &BTreeMap<String, u64>) -> Result<(), Failure> {
    if listed.is_empty() {
        return Ok(());
    }
    let failed = |why: String| Failure::failed(format!("nothing was released: {why}"));
    let (log, _) =
        EmbeddedLog::start(&place.data, momentary()).map_err(|e| failed(e.to_string()))?;
    for (stream, &before) in listed {
        patiently(|| log.set_cursor(stream, RELEASED, before)).map_err(failed)?;
    }
    log.close();
    match log.progress().failure {
        Some(failure) => Err(failed(failure.to_string())),
        None => Ok(()),
    }
}

/// Reads from the marks of a partition whether the records of this log's tenure reached the home.
fn fate(held: &Held, log: u64, tenure: Tenure, stream: &str) -> Fate {
    let places = held.places.get(&(log, tenure.number));
    let place = places.and_then(|places| places.get(stream));
    let next = place.map_or(0, |place| place.next);
    let is_ours = held.owner.is_some_and(|owner| owner.log == log)
        && held
            .claim
            .is_some_and(|claim| claim.tenure == tenure.number);
    if is_ours {
        Fate::Waits(next)
    } else {
        Fate::Home(next)
    }
}

fn show(
    out: &mut impl Write,
    stream: &str,
    producer: &str,
    tenure: Tenure,
    run: &Frames,
) -> Result<(), Ended> {
    let first = run
        .bytes
        .first_chunk()
        .copied()
        .map_or(0, u64::from_le_bytes);
    let last = last_id(&run.bytes).unwrap_or(first);
    let (from, to) = (run.first, run.first + u64::from(run.count));
    writeln!(
        out,
        "stream {stream:?} positions {from}..{to} producer {producer:?} ids {first} to {last} partition {} tenure {} \
         received {}",
        tenure.partition,
        tenure.number,
        time(run.timestamp_us)
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidewire_replicate::{Claim, Owner, Place};

    use super::*;

    #[test]
    fn what_is_behind_the_place_of_a_tenure_that_is_over_is_here_alone() {
        let tenure = |number| Tenure {
            partition: 3,
            number,
        };
        let mut held = Held {
            owner: Some(Owner { log: 7, session: 1 }),
            claim: Some(Claim {
                tenure: 5,
                partitions: 12,
            }),
            ..Held::default()
        };
        let place = Place { next: 10, print: 0 };
        for number in [3, 5] {
            held.places
                .insert((7, number), [("s".into(), place)].into());
        }
        assert_eq!(fate(&held, 7, tenure(5), "s"), Fate::Waits(10));
        assert_eq!(fate(&held, 7, tenure(5), "t"), Fate::Waits(0));
        assert_eq!(fate(&held, 7, tenure(3), "s"), Fate::Home(10));
        // The partition never was this log's in a tenure of that number: nothing of it is at home.
        assert_eq!(fate(&held, 8, tenure(5), "s"), Fate::Home(0));
        assert_eq!(fate(&Held::default(), 7, tenure(5), "s"), Fate::Home(0));
    }
}
