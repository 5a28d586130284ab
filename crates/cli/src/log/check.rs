//! Whether everything in a log is as it was written.

use std::io::Write;

use serde_json::{Value, json};
use tidewire_log::tools::{self, Report};

use super::{Place, Shown, TORN};
use crate::exit::Failure;

pub(super) fn run(place: &Place, out: &mut impl Write) -> Shown {
    let disk = place.look()?;
    let report = tools::check(&disk).map_err(|e| place.failed(&e))?;
    let (segments, batches, records) = (report.segments, report.batches, report.records);
    writeln!(
        out,
        "good        {segments} segments, {batches} batches, {records} records; durable through batch {}",
        report.durable_through
    )?;
    if disk.is_written() {
        let note = "by a process that writes to it now: its present write looks like a torn tail";
        writeln!(out, "in use      {note}")?;
    }
    for problem in &report.problems {
        let next = match problem.next_good {
            Some(batch) => format!("; good again from batch {batch} on"),
            None => String::new(),
        };
        match problem.acknowledged {
            true => writeln!(out, "damage      {}{next}", problem.damage)?,
            false => writeln!(out, "torn tail   {}{next}; {TORN}", problem.damage)?,
        }
    }
    Ok(verdict(place, &report))
}

/// The findings as an object.
pub(super) fn object(place: &Place) -> Result<(Value, Option<Failure>), Failure> {
    let disk = place.look()?;
    let report = tools::check(&disk).map_err(|e| place.failed(&e))?;
    let problems = report.problems.iter().map(|problem| {
        let damage = &problem.damage;
        json!({
            "file": damage.file,
            "offset": damage.offset,
            "batch": damage.batch,
            "expected": damage.expected,
            "found": damage.found,
            "acknowledged": problem.acknowledged,
            "good_again_from": problem.next_good,
        })
    });
    let shown = json!({
        "segments": report.segments,
        "batches": report.batches,
        "records": report.records,
        "durable_through": report.durable_through,
        "in_use": disk.is_written(),
        "problems": problems.collect::<Vec<_>>(),
    });
    Ok((shown, verdict(place, &report)))
}

fn verdict(place: &Place, report: &Report) -> Option<Failure> {
    let damaged = report.problems.iter();
    let damaged = damaged.filter(|problem| problem.acknowledged).count();
    (damaged > 0).then(|| {
        Failure::wrong(format!(
            "{damaged} places in {} that were acknowledged as durable are damaged: restore the files \
             from a copy, or see what `tidewire log repair` would lose",
            place.data.display()
        ))
    })
}
