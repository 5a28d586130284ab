//! Repairs a damaged log: keeps its whole parts.

use std::io::Write;

use tidewire_log::disk::Disk;
use tidewire_log::tools::{self, Loss};

use super::{Ended, Place, Shown};
use crate::exit::Failure;

/// What to repair.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Does it: what is lost is marked, and each file that changes is kept as it was
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> Shown {
    args.place.each(out, |place, out| one(place, args.yes, out))
}

/// Repairs one log.
fn one(place: &Place, yes: bool, out: &mut impl Write) -> Shown {
    if !yes {
        let disk = place.look_alone()?;
        return Ok(lost(place, &disk, out)?.map(|_| {
            Failure::wrong(
                "nothing was changed; --yes keeps what is whole and marks what is missing",
            )
        }));
    }
    let disk = place.open()?;
    let Some(loss) = lost(place, &disk, out)? else {
        return Ok(None);
    };
    let repaired = tools::repair(&disk, &loss)
        .map_err(|e| Failure::failed(format!("cannot repair the log: {e}")))?;
    for file in &repaired.kept_in {
        writeln!(
            out,
            "kept        {file}, as it was; `tidewire log dump` shows what is in it"
        )?;
    }
    let (batches, records) = (loss.batches, loss.records);
    let told = match loss.gaps.is_empty() {
        true => "",
        false => ", readers are told of the gaps",
    };
    writeln!(
        out,
        "repaired    {batches} batches with {records} records are there{told}"
    )?;
    Ok(None)
}

/// Prints the lost parts and returns them; `None` if nothing is lost.
fn lost(place: &Place, disk: &impl Disk, out: &mut impl Write) -> Result<Option<Loss>, Ended> {
    let loss = tools::loss(disk).map_err(|e| place.failed(&e))?;
    match &loss {
        Some(loss) => tell(loss, out)?,
        None => writeln!(out, "nothing to repair")?,
    }
    Ok(loss)
}

fn tell(loss: &Loss, out: &mut impl Write) -> std::io::Result<()> {
    for (file, name) in &loss.renamed {
        writeln!(
            out,
            "misnamed    {file} contains the segment {name}, and is renamed to it"
        )?;
    }
    for gap in &loss.gaps {
        let (first, last) = gap.batches;
        let known = match gap.acknowledged {
            true => "acknowledged as durable",
            false => "may have been acknowledged",
        };
        writeln!(out, "damage      {}", gap.damage)?;
        match (gap.kept, gap.positions.is_empty()) {
            (0, _) => writeln!(out, "lost        batches {first} to {last}, {known}")?,
            (kept, true) => writeln!(
                out,
                "harmed      batches {first} to {last}, {known}: all {kept} records of them stay"
            )?,
            (kept, false) => writeln!(
                out,
                "harmed      batches {first} to {last}, {known}: {kept} records of them are whole and stay"
            )?,
        }
        for (stream, first, next) in &gap.positions {
            let count = next - first;
            writeln!(
                out,
                "missing     {stream:?} positions {first}..{next}, {count} records"
            )?;
        }
        if gap.positions.is_empty() && gap.kept == 0 {
            writeln!(out, "missing     no known position")?;
        }
        for (stream, first, next) in &gap.skipped {
            writeln!(
                out,
                "skipped     {stream:?} goes on at position {next}: the lost part may have used \
                 the positions from {first} on"
            )?;
        }
        for stream in &gap.deleted {
            writeln!(
                out,
                "deleted     {stream:?} was deleted in the lost part of the log"
            )?;
        }
        for stream in &gap.unsure {
            writeln!(
                out,
                "unsure      {stream:?} may have been deleted in the lost part, and another \
                 stream of this name created: its records stay, and its producers are told that \
                 they were forgotten"
            )?;
        }
    }
    let (batches, records) = (loss.batches, loss.records);
    writeln!(
        out,
        "whole       {batches} batches with {records} records stay, where gaps are batches"
    )?;
    for file in &loss.kept_in {
        writeln!(out, "kept in     {file}")?;
    }
    Ok(())
}
