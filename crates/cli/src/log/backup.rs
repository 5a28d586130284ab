//! Copies of a log: made while the server runs, and put back.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidewire_log::disk::ReadOnlyDisk;
use tidewire_log::disk::real::RealDisk;
use tidewire_log::tools;
use tidewire_log::{EmbeddedLog, Settings};

use super::{Place, Shown, size};
use crate::exit::Failure;

/// What is shown below the options of `backup`.
const BACKUP: &str = "\
Examples:
  tidewire log backup /backup/log-2026-01-31            # of ./tidewire-data, beside its server
  tidewire log backup --data /var/lib/tidewire /backup/today

The copy holds everything that was acknowledged when the command began, is read again, and is a log like \
any other: check, info and read --data work on it. It appears under its name when it is whole.";

/// What is shown below the options of `restore`.
const RESTORE: &str = "\
Example:
  tidewire log restore /backup/log-2026-01-31 --data /var/lib/tidewire

The copy is read and must be whole, and so must be what was restored. There must be no log in --data yet. \
Producers go on from what the copy knows of them: what came later is to be sent again.";

/// What to copy where.
#[derive(Debug, clap::Args)]
#[command(after_help = BACKUP, after_long_help = BACKUP)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    place: Place,
    /// The directory to make; it must not be there
    to: PathBuf,
}

/// What to put where.
#[derive(Debug, clap::Args)]
#[command(after_help = RESTORE, after_long_help = RESTORE)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    place: Place,
    /// The directory of the copy
    from: PathBuf,
}

pub(super) fn backup(args: &BackupArgs, out: &mut impl Write) -> Shown {
    args.place.look()?;
    copied(&args.place.data, &args.to, "copied", out)
}

pub(super) fn restore(args: &RestoreArgs, out: &mut impl Write) -> Shown {
    copied(&args.from, &args.place.data, "restored", out)
}

fn copied(from: &Path, to: &Path, what: &str, out: &mut impl Write) -> Shown {
    let source = ReadOnlyDisk::open(from)
        .map_err(|e| Failure::usage(format!("cannot look into the log: {e}")))?;
    let (shown, partial) = (to.display(), partial(to));
    let failed = |why: String| Failure::wrong(format!("{shown} was not made: {why}"));
    if !is_free(to).map_err(|e| failed(e.to_string()))? {
        return Err(Failure::usage(format!("{shown} is not an empty directory")).into());
    }
    // One that was broken off.
    match fs::remove_dir_all(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(failed(format!("cannot remove {}: {e}", partial.display())).into());
        }
        _ => {}
    }
    let into = RealDisk::open(&partial).map_err(|e| failed(e.to_string()))?;
    let backup = tools::backup(&source, &into).map_err(|e| {
        // Nobody is to take a part for the whole.
        let _ = fs::remove_dir_all(&partial);
        failed(e.to_string())
    })?;
    drop(into);
    // Opening it makes indexes and the file of claims; closing it says that its end is its end.
    let (log, _) =
        EmbeddedLog::start(&partial, Settings::default()).map_err(|e| failed(e.to_string()))?;
    log.close();
    drop(log);
    fs::rename(&partial, to)
        .and_then(|()| {
            let above = std::path::absolute(to)?;
            fs::File::open(above.parent().unwrap_or(Path::new("/")))?.sync_all()
        })
        .map_err(|e| failed(e.to_string()))?;
    writeln!(
        out,
        "{what:<11} {} records in {} segments, {}, to {shown}",
        backup.records,
        backup.segments,
        size(backup.bytes)
    )?;
    Ok(None)
}

/// Where it is until it is whole.
fn partial(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    to.with_file_name(name)
}

fn is_free(to: &Path) -> io::Result<bool> {
    match fs::read_dir(to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
        Ok(mut entries) => Ok(entries.next().is_none()),
    }
}
