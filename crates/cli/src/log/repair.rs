//! Cutting a log off at its first damage.

use std::io::Write;

use tidewire_log::tools::{self, Loss};

use super::{Place, Shown, size};
use crate::exit::Failure;

/// What to repair.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Does it, whatever is lost
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> Shown {
    let disk = args.place.open()?;
    let loss = tools::loss(&disk).map_err(|e| args.place.failed(&e))?;
    let Some(loss) = loss else {
        writeln!(out, "nothing to repair")?;
        return Ok(None);
    };
    tell(&loss, out)?;
    if !args.yes {
        return Ok(Some(Failure::wrong(
            "nothing was changed; --yes cuts the log off there",
        )));
    }
    let repaired = tools::repair(&disk, &loss)
        .map_err(|e| Failure::usage(format!("cannot repair the log: {e}")))?;
    for file in &repaired.kept_in {
        writeln!(out, "kept        {file}")?;
    }
    writeln!(
        out,
        "repaired    the log ends before batch {}",
        loss.damage.batch
    )?;
    Ok(None)
}

fn tell(loss: &Loss, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "damage      {}", loss.damage)?;
    let first = loss.damage.batch;
    if loss.durable_through >= first {
        let last = loss.durable_through;
        writeln!(
            out,
            "lost        batches {first} to {last}, which were acknowledged as durable"
        )?;
    } else {
        writeln!(out, "lost        nothing that was acknowledged as durable")?;
    }
    let (bytes, whole) = (size(loss.bytes), loss.whole_batches);
    writeln!(
        out,
        "cut off     {bytes}, with {whole} batches that are whole"
    )?;
    for file in &loss.kept_in {
        writeln!(out, "kept in     {file}")?;
    }
    Ok(())
}
