//! A log piece by piece.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;

use tidewire_ingest::native::codec;
use tidewire_log::tools::{self, Item};

use super::{Place, Shown, time};
use crate::exit::Failure;

/// What to show.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Shows this file alone, such as one that `repair` has kept (.cut) or the server has cut off
    /// (.tail): a name in --data, or a path
    file: Option<PathBuf>,
    /// Begins with this batch
    #[arg(long, default_value_t = 0, value_name = "BATCH")]
    from: u64,
    /// Ends after so many batches
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Shows each record, with the beginning of its payload
    #[arg(long)]
    records: bool,
}

/// Bytes of a payload that are shown.
const BEGINNING: usize = 60;

pub(super) fn run(args: &Args, out: &mut impl Write) -> Shown {
    let (mut wrote, mut damaged, mut batches) = (Ok(()), None, 0);
    let mut showing = |item: Item<'_>| {
        batches += u64::from(matches!(item, Item::Batch { .. }));
        if args.count.is_some_and(|most| batches > most) {
            return ControlFlow::Break(());
        }
        if let Item::Problem(damage) = &item {
            damaged.get_or_insert_with(|| damage.to_string());
        }
        wrote = show(&item, args.records, out);
        match wrote {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    match &args.file {
        None => {
            for part in args.place.parts()? {
                say!("tidewire: {} in {}", part.kind, part.directory.display());
                let place = Place::of(&part);
                let dumped = tools::dump(&place.look()?, args.from, &mut showing);
                dumped.map_err(|e| place.failed(&e))?;
            }
        }
        Some(file) => {
            let (disk, name) = args.place.file(file)?;
            let dumped = tools::dump_file(&disk, &name, |item| match item {
                Item::Batch { number, .. } if number < args.from => ControlFlow::Continue(()),
                item => showing(item),
            });
            dumped.map_err(|e| args.place.failed(&e))?;
        }
    }
    wrote?;
    Ok(damaged.map(|damage| {
        Failure::wrong(format!(
            "the log is damaged: {damage}; see `tidewire log check`"
        ))
    }))
}

fn show(item: &Item<'_>, records: bool, out: &mut impl Write) -> io::Result<()> {
    match item {
        Item::Segment {
            file,
            log,
            first_batch,
        } => writeln!(
            out,
            "segment {file} log={log:016x} first_batch={first_batch}"
        ),
        Item::Batch {
            offset,
            number,
            length,
            durable_through,
            written_us,
            records,
            closing,
        } => {
            let written = time(*written_us);
            let closing = if *closing { " closing" } else { "" };
            writeln!(
                out,
                "batch {number} offset={offset} length={length} durable_through={durable_through} \
                 written={written} records={records}{closing}"
            )
        }
        Item::Records {
            stream,
            producer,
            timestamp_us,
            first,
            count,
            frames,
            ..
        } => {
            let at = time(*timestamp_us);
            writeln!(
                out,
                "  records stream={stream} producer={producer} received={at} first={first} \
                 count={count} bytes={}",
                frames.len()
            )?;
            if records {
                each(*first, frames, out)?;
            }
            Ok(())
        }
        Item::Stream { id, name } => writeln!(out, "  stream {id} is {name:?}"),
        Item::Producer { id, stream, name } => {
            writeln!(out, "  producer {id} of stream {stream} is {name:?}")
        }
        Item::Cursor {
            stream,
            name,
            position,
        } => writeln!(out, "  cursor {name:?} of stream {stream} at {position}"),
        Item::Checkpoint {
            streams,
            producers,
            length,
        } => writeln!(
            out,
            "  checkpoint streams={} producers={producers} length={length}",
            streams.len()
        ),
        Item::Missing { through, positions } => {
            writeln!(out, "  missing batches up to {through}")?;
            for (stream, first, next) in positions {
                writeln!(out, "    stream {stream} positions {first}..{next}")?;
            }
            Ok(())
        }
        Item::Problem(damage) => writeln!(out, "  problem {damage}"),
        // Kinds that later versions of the log may have.
        other => writeln!(out, "  {other:?}"),
    }
}

fn each(first: u64, frames: &[u8], out: &mut impl Write) -> io::Result<()> {
    let batch = codec::parser(u32::MAX).parse(frames);
    for (frame, position) in batch.frames().zip(first..) {
        let id = u64::from_le_bytes(frame.id);
        let len = frame.payload.len();
        let beginning = &frame.payload[..len.min(BEGINNING)];
        let more = if len > BEGINNING { "..." } else { "" };
        let text = beginning.escape_ascii();
        writeln!(out, "    {position} id={id} bytes={len} \"{text}\"{more}")?;
    }
    Ok(())
}
