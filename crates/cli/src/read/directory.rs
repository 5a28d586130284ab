//! Reading the directory of a log, without a server or beside one.

use std::io::Write;
use std::path::Path;

use tidewire_ingest::client::{Begin, Record};
use tidewire_ingest::native::codec::parser;
use tidewire_log::{Begin as Place, Credit, Frames, Kind, ReadError, Tenure, View};

use super::output::Output;
use super::{Args, Ended, conclude, nothing_lost, say_lost};
use crate::exit::Failure;

/// Bytes read at a time.
const AT_ONCE: Credit = Credit(1 << 20);

pub(super) fn run(args: &Args, directory: &Path) -> Result<(), Failure> {
    let nothing = |why: String| Failure::failed(format!("nothing was read: {why}"));
    let view = View::open(directory).map_err(|e| {
        let found = crate::data::parts(directory);
        let advice = match found.iter().any(|part| part.kind == Kind::Keys) {
            true => "; the directory has keys and no messages: see `tidewire kv export`",
            false => "; see --data",
        };
        nothing(format!("{e}{advice}"))
    })?;
    let Some(range) = view.range(&args.stream) else {
        return Err(nothing(format!(
            "there is no stream {:?} in {}; `tidewire log streams` lists all streams",
            args.stream,
            directory.display()
        )));
    };
    let place = match args.begin() {
        Begin::Position(at) if at > range.next => {
            let next = range.next;
            return Err(nothing(format!(
                "position {at} is behind the end of the stream; its next position is {next}"
            )));
        }
        Begin::Position(at) => Place::Position(at),
        Begin::Tail => Place::Tail,
        Begin::Timestamp(us) => Place::Timestamp(us),
        Begin::Cursor => unreachable!("a directory is not read by a cursor"),
    };
    let damaged = |e: ReadError| Failure::wrong(e.to_string());
    let mut at = view.locate(&args.stream, place).map_err(damaged)?;
    if matches!(place, Place::Position(asked) if asked > 0 && asked < at) {
        say!("tidewire: the records before {at} have been removed; reading begins there");
    }
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut out = Output::stdout(false).map_err(|e| conclude(Err(e.into())).unwrap_err())?;
    while left > 0 {
        let read = match view.read(&args.stream, at, AT_ONCE) {
            Ok(read) => read,
            Err(ReadError::Missing { next, .. }) => {
                if let Err(ended) = say_lost(at, next, args.form(), &mut out) {
                    return conclude(Err(ended));
                }
                at = next;
                continue;
            }
            Err(e) => {
                let _ = out.flush();
                return Err(damaged(e));
            }
        };
        if read.runs.is_empty() {
            break;
        }
        at = read.next;
        for run in read.runs {
            if let Err(ended) = show(args, run, &mut left, &mut out) {
                return conclude(Err(ended));
            }
        }
    }
    conclude(out.flush().map_err(Ended::from))?;
    match view.problem() {
        Some(damage) if damage.batch <= view.durable_through() => Err(Failure::wrong(format!(
            "damaged: {damage}; the records behind the damage were not read. See `tidewire log check`"
        ))),
        _ => conclude(nothing_lost(&out)),
    }
}

fn show(args: &Args, run: Frames, left: &mut u64, out: &mut Output) -> Result<(), Ended> {
    let batch = parser(u32::MAX).parse(&run.bytes);
    for (frame, position) in batch.frames().zip(run.first..) {
        if args.ends_before(run.timestamp_us) {
            *left = 0;
        }
        if *left == 0 || !args.takes(Tenure::split(&run.producer).0.as_bytes()) {
            break;
        }
        *left -= 1;
        let record = Record {
            position,
            id: u64::from_le_bytes(frame.id),
            producer: Tenure::split(&run.producer).0.as_bytes().to_vec().into(),
            timestamp_us: run.timestamp_us,
            payload: frame.payload.to_vec().into(),
        };
        args.form().write(&record, out)?;
    }
    Ok(())
}
