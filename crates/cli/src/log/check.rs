//! Whether everything in a log is as it was written.

use std::io::Write;

use tidewire_log::tools;

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
        let note = "by a process that writes it now: what it is writing looks like a torn tail";
        writeln!(out, "in use      {note}")?;
    }
    let mut damaged = 0;
    for problem in &report.problems {
        damaged += u64::from(problem.acknowledged);
        let next = match problem.next_good {
            Some(batch) => format!("; good again from batch {batch} on"),
            None => String::new(),
        };
        match problem.acknowledged {
            true => writeln!(out, "damage      {}{next}", problem.damage)?,
            false => writeln!(out, "torn tail   {}{next}; {TORN}", problem.damage)?,
        }
    }
    if damaged == 0 {
        return Ok(None);
    }
    Ok(Some(Failure::wrong(format!(
        "{damaged} places in {} that were acknowledged as durable are damaged: restore the files \
         from a copy, or see what `tidewire log repair` would lose",
        place.data.display()
    ))))
}
