//! Copies of a log: made while the server runs, and put back.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tidewire_kv::durable::{self, snapshot};
use tidewire_log::disk::ReadOnlyDisk;
use tidewire_log::disk::real::RealDisk;
use tidewire_log::tools::{self, Earlier};
use tidewire_log::{EmbeddedLog, Kind, View};

use super::partial::{Partial, is_free};
use super::{Place, Shown, home, momentary, size};
use crate::data::KV_DIRECTORY;
use crate::data::Part;
use crate::exit::Failure;

/// The text below the options of `backup`.
const BACKUP: &str = "\
Examples:
  tidewire log backup /backup/log-2026-01-31            # of ./tidewire-data, beside its server
  tidewire log backup --data /var/lib/tidewire /backup/today
  tidewire log backup --data /var/lib/tidewire /backup/today --since /backup/yesterday

The copy holds everything that was acknowledged when the command began, is read again, and is a log like \
any other: check, info, read --data and kv export --data work on it. It has the messages and the keys that are in --data, with \
the snapshot of these, unless --only says which. It appears under its name when it is whole. With --since, segments that both \
have are one file under two names, so they take no room twice; either copy may be removed without the other.";

/// The text below the options of `restore`.
const RESTORE: &str = "\
Example:
  tidewire log restore /backup/log-2026-01-31 --data /var/lib/tidewire
  tidewire log restore --home kafka://k1,k2,k3/events --data /var/lib/tidewire

The copy is read and must be whole, and so must be what was restored. There must be no log in --data yet. \
Producers go on from what the copy knows of them: what came later is to be sent again.";

/// How often copying is begun anew because a snapshot was made meanwhile.
const TRIES: u32 = 5;

/// What to copy where.
#[derive(Debug, clap::Args)]
#[command(after_help = BACKUP, after_long_help = BACKUP)]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    place: Place,
    /// The directory to make; it must not be there
    to: PathBuf,
    /// A backup of this log that was made before, on the same file system: what it has already is linked and not copied, and
    /// compared byte for byte first
    #[arg(long, value_name = "DIR")]
    since: Option<PathBuf>,
}

/// What to put where.
#[derive(Debug, clap::Args)]
#[command(after_help = RESTORE, after_long_help = RESTORE)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    place: Place,
    /// The directory of the copy
    #[arg(required_unless_present = "home", conflicts_with = "home")]
    from: Option<PathBuf>,
    /// Restores from the home that the log was replicated to, kafka://HOST[:PORT],.../TOPIC, for a node that has lost
    /// its disk: its records, how far producers are, and the named cursors of readers. What is not at home any more is said
    #[arg(long, value_name = "HOME")]
    home: Option<String>,
    /// A file of settings for the client of that home, name=value a line
    #[arg(long, value_name = "FILE", requires = "home")]
    home_config: Option<PathBuf>,
}

pub(super) fn backup(args: &BackupArgs, out: &mut impl Write) -> Shown {
    let parts = args.place.parts()?;
    let targets = parts.iter().map(|part| part.is_below).collect::<Vec<_>>();
    let since = args.since.as_deref();
    if let Some(since) = since
        && let Err(why) = may_be_since(since, &args.place.data)
    {
        return Err(Failure::usage(format!("--since {}: {why}", since.display())).into());
    }
    copied(&parts, &targets, &args.to, since, "copied", out)
}

/// Checks that a directory can be an earlier backup of this one; the error says why not.
fn may_be_since(since: &Path, data: &Path) -> Result<(), String> {
    let (since, data) = (fs::canonicalize(since), fs::canonicalize(data));
    let since = since.map_err(|e| e.to_string())?;
    match data {
        Ok(data) if data == since => {
            Err("that is the log itself, not a backup of it: name the backup's directory".into())
        }
        _ if has_log(&since) || has_log(&since.join(KV_DIRECTORY)) => Ok(()),
        _ => Err("no backup is there: the directory has no segment of a log".into()),
    }
}

pub(super) fn restore(args: &RestoreArgs, out: &mut impl Write) -> Shown {
    let to = &args.place.data;
    let Some(from) = &args.from else {
        let at = args.home.as_deref().unwrap_or_default();
        return home::restore(at, args.home_config.as_deref(), to, out);
    };
    let copy = Place {
        data: from.clone(),
        only: args.place.only,
    };
    let parts = copy.parts()?;
    // A copy of the keys alone goes where a server looks for keys.
    let is_store = to.file_name().is_some_and(|name| name == KV_DIRECTORY);
    if is_store && parts.iter().any(|part| part.kind == Kind::Messages) {
        let (shown, above) = (to.display(), to.parent().unwrap_or(to).display());
        return Err(Failure::usage(format!(
            "nothing was restored: the copy has messages, and {shown} is where every command expects the keys of {above}; name \
             the directory above it with --data, or --only keys"
        ))
        .into());
    }
    let is_below = |part: &Part| part.is_below || (part.kind == Kind::Keys && !is_store);
    let targets = parts.iter().map(is_below).collect::<Vec<_>>();
    copied(&parts, &targets, to, None, "restored", out)
}

fn has_log(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths = entries.map(|entry| entry.path());
    paths.any(|path| path.extension().is_some_and(|ending| ending == "seg"))
}

/// Copies logs; `below` says of each log whether it goes to `kv` in the new directory. `since` is an earlier copy.
fn copied(
    parts: &[Part],
    below: &[bool],
    to: &Path,
    since: Option<&Path>,
    what: &str,
    out: &mut impl Write,
) -> Shown {
    let shown = to.display();
    let failed = |why: String| Failure::wrong(format!("{shown} was not made: {why}"));
    if !is_free(to).map_err(|e| failed(e.to_string()))? {
        return Err(Failure::failed(format!("{shown} is not an empty directory")).into());
    }
    let partial = Partial::begin(to).map_err(failed)?;
    let mut all = Vec::new();
    for (part, &is_below) in parts.iter().zip(below) {
        let within = |directory: &Path| match is_below {
            true => directory.join(KV_DIRECTORY),
            false => directory.to_owned(),
        };
        let place = within(partial.path());
        match made(&part.directory, &place, since.map(within).as_deref()) {
            Ok(made) => all.push((part, made)),
            Err(why) => {
                partial.give_up();
                let from = part.directory.display();
                return Err(failed(format!("the {} in {from}: {why}", part.kind)).into());
            }
        }
    }
    partial.finish().map_err(failed)?;
    for (part, (backup, snapshot)) in all {
        writeln!(out, "{}", part.line())?;
        writeln!(
            out,
            "{what:<11} {} records in {} segments, {}, to {shown}",
            backup.records,
            backup.segments,
            size(backup.bytes)
        )?;
        if let Some(since) = since {
            writeln!(
                out,
                "{:<11} {} of these segments, {}, with {}",
                "shared",
                backup.shared_segments,
                size(backup.shared_bytes),
                since.display()
            )?;
        }
        if let Some((position, bytes)) = snapshot {
            writeln!(
                out,
                "{:<11} of position {position}, {}",
                "snapshot",
                size(bytes)
            )?;
        }
    }
    Ok(None)
}

/// The copy of a log, and the position and bytes of the snapshot beside it.
type Copied = (tools::Backup, Option<(u64, u64)>);

/// Copies again until all copied files are of one moment.
fn made(from: &Path, into: &Path, since: Option<&Path>) -> Result<Copied, String> {
    let source = ReadOnlyDisk::open(from).map_err(|e| e.to_string())?;
    for _ in 0..TRIES {
        if let Some(copied) = copy(&source, into, since)? {
            // Opening the copy makes indexes and the file of claims; closing it records where the copy
            // ends.
            let log = EmbeddedLog::start(into, momentary());
            log.map_err(|e| e.to_string())?.0.close();
            return Ok(copied);
        }
        clear(into)?;
    }
    Err("the log changes all the time".into())
}

/// Removes the files in a directory.
fn clear(directory: &Path) -> Result<(), String> {
    let clear = || {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok::<_, io::Error>(())
    };
    clear().map_err(|e| format!("cannot remove the contents of {}: {e}", directory.display()))
}

/// Copies a log and, for a key-value store, the snapshot that it continues from; `None` if a newer
/// snapshot has replaced that one meanwhile.
fn copy(
    source: &ReadOnlyDisk,
    partial: &Path,
    since: Option<&Path>,
) -> Result<Option<Copied>, String> {
    let into = RealDisk::open(partial).map_err(|e| e.to_string())?;
    // First: what is removed behind it later is known by what the log begins with.
    let snapshot = match snapshot::copy(source, &into) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        copied => copied.map_err(|e| e.to_string())?,
    };
    // A backup of messages alone has no keys.
    let backup = match since.filter(|since| has_log(since)) {
        Some(since) => {
            let disk = ReadOnlyDisk::open(since).map_err(|e| e.to_string())?;
            let share = |name: &str| {
                // On another file system, or one without links, it is copied.
                let linked = fs::hard_link(since.join(name), partial.join(name));
                Ok(linked.is_ok())
            };
            let earlier = Earlier {
                disk: &disk,
                share: &share,
            };
            tools::backup_since(source, &into, Some(&earlier))
        }
        None => tools::backup(source, &into),
    };
    let backup = backup.map_err(|e| e.to_string())?;
    drop(into);
    let view = View::open(partial).map_err(|e| e.to_string())?;
    let first = view.range(durable::STREAM).map_or(0, |range| range.first);
    let reaches = snapshot.map_or(0, |(position, _)| position);
    let is_kv = view.range(durable::STREAM).is_some();
    Ok((!is_kv || first <= reaches).then_some((backup, snapshot)))
}

#[cfg(test)]
mod tests {
    use tidewire_log::{
        Change, ChangeRefused, Log, ProducerId, Range, Refused, Run, Settings, StreamSettings,
    };

    use super::super::storing::patiently;
    use super::*;

    /// Records that are not in the home yet are kept beyond the limits of their stream, in the log
    /// and in its copy.
    #[test]
    fn a_copy_removes_nothing_of_what_it_copies() {
        let above = tempfile::tempdir().expect("a directory");
        let (from, to) = (above.path().join("log"), above.path().join("copy"));
        let settings = Settings {
            segment_bytes: 4 << 10,
            group_bytes: 1 << 10,
            payload_max: 500,
            backlog: Some(1 << 20),
            ..Settings::default()
        };
        let (log, _) = EmbeddedLog::start(&from, settings).expect("a log");
        let stream = "s";
        let settings = StreamSettings {
            retain_bytes: Some(0),
            ..StreamSettings::default()
        };
        let change = Change::Create { stream, settings };
        while let Err(ChangeRefused::Log(Refused::Busy)) = log.administer(change) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let stream = patiently(|| log.stream(stream)).expect("known");
        for id in 1..=100_u64 {
            let mut frames = id.to_le_bytes().to_vec();
            frames.extend(400_u32.to_le_bytes());
            frames.resize(412, b'x');
            let run = Run {
                stream,
                producer: ProducerId::ANONYMOUS,
                frames: &frames,
                count: 1,
                last_id: id,
                timestamp_us: 0,
            };
            patiently(|| log.append(run)).expect("room");
        }
        log.close();
        drop(log);
        let whole = Some(Range {
            first: 0,
            next: 100,
        });
        let kept = |at| View::open(at).expect("a log").range("s");
        assert_eq!(kept(&from), whole);
        let part = Part {
            kind: Kind::Messages,
            directory: from.clone(),
            is_below: false,
        };
        let done = copied(&[part], &[false], &to, None, "copied", &mut Vec::new());
        assert!(done.is_ok_and(|failure| failure.is_none()));
        assert_eq!(kept(&to), whole);
    }
}
