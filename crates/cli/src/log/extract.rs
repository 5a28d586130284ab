//! The records in a file that a repair or an opening has kept.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tidewire_ingest::native::codec;
use tidewire_log::tools::{self, Extracted};

use super::{Place, Shown};
use crate::exit::Failure;

/// What to extract.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// The file: a name in --data, or a path
    file: PathBuf,
    /// Payloads only, one a line, of whole records
    #[arg(long)]
    raw: bool,
}

pub(super) fn run(args: &Args, out: &mut impl Write) -> Shown {
    let (disk, name) = args.place.file(&args.file)?;
    let (mut wrote, mut damaged) = (Ok(()), 0_u64);
    let extracted = tools::extract(&disk, &name, |found| {
        damaged += if found.is_damaged {
            u64::from(found.count)
        } else {
            0
        };
        wrote = show(&found, args.raw, out);
        match wrote {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    extracted.map_err(|e| args.place.failed(&e))?;
    wrote?;
    Ok((damaged > 0).then(|| {
        Failure::wrong(format!(
            "{damaged} records are in runs that are damaged: \"damaged\" says which, and anything of them may be wrong"
        ))
    }))
}

fn show(found: &Extracted, raw: bool, out: &mut impl Write) -> std::io::Result<()> {
    if raw && found.is_damaged {
        return Ok(());
    }
    let batch = codec::parser(u32::MAX).parse(&found.frames);
    for (frame, position) in batch.frames().zip(found.first..) {
        if raw {
            out.write_all(frame.payload)?;
            out.write_all(b"\n")?;
            continue;
        }
        let mut object = json!({
            "stream": found.stream,
            "producer": found.producer,
            "position": position,
            "id": u64::from_le_bytes(frame.id),
            "timestamp_us": found.timestamp_us,
        });
        match std::str::from_utf8(frame.payload) {
            Ok(text) => object["payload"] = text.into(),
            Err(_) => object["payload_base64"] = STANDARD.encode(frame.payload).into(),
        }
        if found.is_damaged {
            object["damaged"] = Value::Bool(true);
        }
        writeln!(out, "{object}")?;
    }
    Ok(())
}
