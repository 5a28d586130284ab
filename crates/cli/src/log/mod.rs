//! `tidewire log`: reads the directory of a log, even while a server has the log open, or on a
//! read-only file system. Only `repair` changes a log.

mod anew;
mod backup;
mod check;
mod dump;
mod extract;
mod home;
mod info;
mod of_store;
mod partial;
mod repair;
mod runs;
mod storing;
mod unreplicated;
mod unreplicated_store;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use tidewire_log::disk::ReadOnlyDisk;
use tidewire_log::disk::real::RealDisk;
use tidewire_log::{Kind, OpenError, Settings};

use crate::data::{Part, parts};
use crate::exit::Failure;

/// The text about a torn tail. If a server has the log open, the tail is what the server is
/// writing, as "in use" says.
const TORN: &str = "no claim says that it was acknowledged as durable (it may have been, within \
     a second before a crash); opening the log cuts it off";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Log {
    /// Shows segments, streams, producers and cursors.
    Info(Looked),
    /// Lists the streams: first position, the one behind the last, name.
    Streams(Place),
    /// Reads everything; status 2 if anything acknowledged is damaged.
    Check(Looked),
    /// Shows the log piece by piece.
    Dump(dump::Args),
    /// Shows the records of a file that `repair` has kept.
    Extract(extract::Args),
    /// Copies the log, beside its server too, and reads the copy.
    Backup(backup::BackupArgs),
    /// Puts a copy where there is no log yet, after reading it.
    Restore(backup::RestoreArgs),
    /// Keeps everything that is whole of a damaged log, marks what is missing, and keeps the files as
    /// they were beside it; without --yes only says what is lost.
    Repair(repair::Args),
    /// Lists records that are here alone: taken, and not carried home before another server took over the partition or the
    /// key-value store.
    Unreplicated(unreplicated::Args),
}

/// Settings of a log that is open for a moment only: it forgets no producer, and removes nothing.
fn momentary() -> Settings {
    Settings {
        producer_idle: Duration::from_secs(100 * 365 * 86_400),
        // Every record is kept, as if the home had no record.
        backlog: Some(u64::MAX),
        ..Settings::default()
    }
}

/// A log's directory.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// The directory of a server's data, with messages in it and keys in `kv`, or of one of the two
    #[arg(long, default_value = crate::serve::DIRECTORY, value_name = "DIR")]
    data: PathBuf,
    /// One of the two alone, if there are messages and keys
    #[arg(long, value_name = "WHAT")]
    only: Option<Only>,
}

/// What to look at, and how to show it.
#[derive(Debug, clap::Args)]
pub(crate) struct Looked {
    #[command(flatten)]
    place: Place,
    /// A JSON object for each log, a line each
    #[arg(long)]
    json: bool,
}

/// The kind of log that the command is limited to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// Messages of producers
    Messages,
    /// Keys of the key-value store
    Keys,
}

impl Only {
    fn takes(self, part: &Part) -> bool {
        part.kind
            == match self {
                Only::Messages => Kind::Messages,
                Only::Keys => Kind::Keys,
            }
    }
}

/// Runs a `log` subcommand.
pub(crate) fn run(log: Log) -> Result<(), Failure> {
    // Gathered first: a reader that stops early ends the command, not a half of it.
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = match log {
        Log::Info(at) if at.json => at.place.each_as_object(&mut out, info::object),
        Log::Info(at) => at.place.each(&mut out, info::run),
        Log::Streams(place) => place.each_quietly(&mut out, info::streams),
        Log::Check(at) if at.json => at.place.each_as_object(&mut out, check::object),
        Log::Check(at) => at.place.each(&mut out, check::run),
        Log::Dump(args) => dump::run(&args, &mut out),
        Log::Extract(args) => extract::run(&args, &mut out),
        Log::Backup(args) => backup::backup(&args, &mut out),
        Log::Restore(args) => backup::restore(&args, &mut out),
        Log::Repair(args) => repair::run(&args, &mut out),
        Log::Unreplicated(args) => unreplicated::run(&args, &mut out),
    };
    let flushed = out.flush();
    match done.and_then(|failure| flushed.map(|()| failure).map_err(Ended::from)) {
        Ok(None) | Err(Ended::Unread) => Ok(()),
        Ok(Some(failure)) | Err(Ended::Failed(failure)) => Err(failure),
    }
}

/// Why showing ended.
enum Ended {
    /// The reader of the output has gone.
    Unread,
    Failed(Failure),
}

/// Shown; with a failure to be told at the end, if there is one.
type Shown = Result<Option<Failure>, Ended>;

impl From<io::Error> for Ended {
    fn from(e: io::Error) -> Ended {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Ended::Unread,
            _ => Ended::Failed(Failure::failed(format!("cannot write the result: {e}"))),
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Failed(failure)
    }
}

impl Place {
    /// The logs in the directory that the command applies to.
    fn parts(&self) -> Result<Vec<Part>, Failure> {
        let mut found = parts(&self.data);
        if found.is_empty() {
            // The failure says why.
            self.look()?;
        }
        let all = found.len();
        found.retain(|part| self.only.is_none_or(|only| only.takes(part)));
        if found.is_empty() && all > 0 {
            let (meant, there) = match self.only {
                Some(Only::Keys) => ("keys", "messages alone"),
                _ => ("messages", "keys alone"),
            };
            let shown = self.data.display();
            return Err(Failure::failed(format!(
                "there are no {meant} in {shown}: {there}"
            )));
        }
        Ok(found)
    }

    /// The place of one part.
    fn of(part: &Part) -> Place {
        Place {
            data: part.directory.clone(),
            only: None,
        }
    }

    /// Does something with each log in the directory, and prints which log it is.
    fn each<W: Write>(&self, out: &mut W, run: impl FnMut(&Place, &mut W) -> Shown) -> Shown {
        let tell = |part: &Part, out: &mut W| writeln!(out, "{}", part.line());
        self.each_told(out, tell, run)
    }

    /// As `each`, where the output is for programs: titles then go to stderr.
    fn each_quietly<W: Write>(
        &self,
        out: &mut W,
        run: impl FnMut(&Place, &mut W) -> Shown,
    ) -> Shown {
        let tell = |part: &Part, out: &mut W| {
            out.flush()?;
            say!("tidewire: {} in {}", part.kind, part.directory.display());
            Ok(())
        };
        self.each_told(out, tell, run)
    }

    /// Shows an object for each log that is there.
    fn each_as_object<W: Write>(
        &self,
        out: &mut W,
        object: impl Fn(&Place) -> Result<(serde_json::Value, Option<Failure>), Failure>,
    ) -> Shown {
        let mut failure = None;
        for part in self.parts()? {
            let (mut shown, found) = object(&Place::of(&part))?;
            shown["kind"] = part.kind.to_string().into();
            shown["directory"] = part.directory.display().to_string().into();
            let misplaced = part.misplaced();
            if let Some(why) = &misplaced {
                shown["misplaced"] = why.as_str().into();
            }
            writeln!(out, "{shown}")?;
            failure = failure.or(found).or(misplaced.map(Failure::wrong));
        }
        Ok(failure)
    }

    fn each_told<W: Write>(
        &self,
        out: &mut W,
        tell: impl Fn(&Part, &mut W) -> io::Result<()>,
        mut run: impl FnMut(&Place, &mut W) -> Shown,
    ) -> Shown {
        let mut failure = None;
        for part in self.parts()? {
            tell(&part, out)?;
            // A fault of one log does not concern the other log.
            let found = match run(&Place::of(&part), out) {
                Err(Ended::Failed(failure)) => Some(failure),
                shown => shown?,
            };
            failure = failure.or(found).or(part.misplaced().map(Failure::wrong));
        }
        Ok(failure)
    }

    /// The log, to be looked at: nothing is made, and a process that has it open is not disturbed.
    fn look(&self) -> Result<ReadOnlyDisk, Failure> {
        ReadOnlyDisk::open(&self.data)
            .map_err(|e| Failure::failed(format!("cannot look into the log: {e}; --data must name the data directory of a server, or `kv` in it")))
    }

    /// The log, to be looked at while no process writes it.
    fn look_alone(&self) -> Result<ReadOnlyDisk, Failure> {
        let disk = self.look()?;
        if disk.is_written() {
            let shown = self.data.display();
            return Err(Failure::failed(format!(
                "cannot say what is lost of the log in {shown}: another process has the log \
                 open; stop the server first"
            )));
        }
        Ok(disk)
    }

    /// The log, for this process alone.
    fn open(&self) -> Result<RealDisk, Failure> {
        // Opening a directory without a log would make one.
        self.look()?;
        let shown = self.data.display();
        RealDisk::open(&self.data).map_err(|e| {
            let advice = match e.kind() {
                io::ErrorKind::WouldBlock => "; stop the server before",
                _ => "",
            };
            Failure::failed(format!("cannot open the log in {shown}: {e}{advice}"))
        })
    }

    /// A file, of the log's directory unless it is a path, and the directory to look at.
    fn file(&self, file: &Path) -> Result<(ReadOnlyDisk, String), Failure> {
        let shown = file.display();
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => {
                let mut parts = self.parts()?.into_iter().map(|part| part.directory);
                let here = parts.find(|directory| directory.join(file).exists());
                here.unwrap_or_else(|| self.data.clone())
            }
        };
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Failure::usage(format!("{shown} is no file of a log")))?;
        let disk = ReadOnlyDisk::open(&directory).map_err(|e| {
            Failure::failed(format!(
                "cannot show {shown}: {e}; name a file of a log, such as one of a server's data directory"
            ))
        })?;
        Ok((disk, name.to_owned()))
    }

    fn failed(&self, error: &OpenError) -> Failure {
        Failure::failed(format!(
            "cannot read the log in {}: {error}",
            self.data.display()
        ))
    }
}

/// Microseconds since the Unix epoch as people write them, in UTC; nothing for 0.
fn time(us: u64) -> String {
    match us {
        0 => "-".to_owned(),
        us => crate::read::time(us),
    }
}

/// A number of bytes with a unit, for people.
fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(
        || format!("{bytes} B"),
        |(shift, name)| format!("{:.1} {name}", bytes as f64 / (1u64 << shift) as f64),
    )
}
