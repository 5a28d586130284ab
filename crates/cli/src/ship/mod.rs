//! `tidewire ship`: files, as they grow and are rotated, and the journal, to a server's log.

mod files;
mod journal;
mod list;
mod sent;
mod status;

use std::path::PathBuf;

use regex::bytes::Regex;
use tidewire_ingest::client::{Level, Persistence, Producing, To};

use crate::exit::Failure;
use crate::names;
use crate::send::{level, token};
use crate::size::Size;
use crate::span::Span;
use crate::tls::TlsArgs;

/// The text below the options.
const NOTES: &str = "\
Examples:
  tidewire ship /var/log/app.log --to log-1:7400,log-2:7400
  tidewire ship '/var/log/nginx/*.log' /var/log/app --exclude '*.1' --stream web
  tidewire ship --multiline-start '^[0-9]{4}-' /var/log/java.log
  tidewire ship --once access.log            # what is there, then end
  tidewire ship --from end --status 127.0.0.1:7411 '/var/log/*.log'
  tidewire ship --list                       # what is followed, and how far it is
  tidewire ship --journal _SYSTEMD_UNIT=ssh.service --to log-1:7400

Each line is stored once and in order, also when this command or the server is killed at any moment. \
Each file is a producer of its own, whose ids are the offsets at which lines end; --state keeps which \
file is which. Files are followed through rotation by renaming (what was rotated while this did not \
run is found beside them) and by copying and truncating (what is written between the copy and the \
truncation is lost, as with any reader; name only the live file, not its copies). A line without an \
end waits for it, until its file is rotated away, or for --partial-after. Rotated files that are \
compressed (.gz, .zst) are read as what they hold. docs/howto/ship.md says what holds and why.

With several servers, the next one is used when one fails. What one had stored and not acknowledged \
is then in both, with the same producer and id.

A file that cannot be read is tried again; one that is not there, as when its file system is not mounted, \
goes on when it is back. A file that is not what was shipped, or whose producer the server has forgotten, \
is told and left alone; the others go on.

Exit status: 0 when it was stopped and everything sent was acknowledged (with --once: when everything \
that the patterns name was, but for last lines without an end, whose bytes are told), 1 when nothing could be begun, 2 when \
something was not acknowledged, a file could not be shipped whole, or something was lost before it was read.";

/// What to ship where.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES, after_long_help = NOTES)]
pub(crate) struct Args {
    /// Files, patterns of names (quoted, so that new files are found) and directories; with --journal,
    /// what to ask of the journal, as journalctl takes it
    #[arg(value_name = "FILE|GLOB|DIR", required_unless_present_any = ["journal", "list"])]
    what: Vec<PathBuf>,
    /// Servers, the first one to begin with: HOST:PORT, or Unix sockets (unix:/PATH or unix:@NAME)
    #[arg(
        long,
        default_value = "127.0.0.1:7400",
        value_name = "HOST:PORT",
        value_delimiter = ','
    )]
    to: Vec<String>,
    /// The stream
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = names::stream)]
    stream: String,
    /// What the names of producers begin with [default: this host's name]
    #[arg(long, value_name = "NAME")]
    producer: Option<String>,
    /// A directory in which to keep what was shipped, for this command alone [default:
    /// $STATE_DIRECTORY, else tidewire/ship in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// What an acknowledgement is to mean: durable (synced), received (in the server's memory) or replicated (at
    /// the home of the server's log, on several machines)
    #[arg(long, default_value = "durable", value_parser = level)]
    level: Level,
    /// A file with the secret that the server asks for [default: the environment's TIDEWIRE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Ends when all present lines are shipped
    #[arg(long)]
    once: bool,
    /// Where files begin that are there when their directory is looked through for the first time with this state: start, or end (behind
    /// their last whole line). Files that come later begin at their start. Without it, a new state is not begun with a file whose lines
    /// `send` has stored in the stream [default: start]
    #[arg(long, value_name = "WHERE", conflicts_with = "journal")]
    from: Option<From>,
    /// The file was sent by `send --producer NAME` up to now: it begins behind the lines that the server has of that producer. A `send` of
    /// that name that still runs is ended
    #[arg(
        long,
        value_name = "NAME",
        value_parser = names::producer,
        conflicts_with_all = ["journal", "from"]
    )]
    sent_by: Option<String>,
    /// Leaves out files that were last written longer ago than this when they are met. Once they are written again, they are followed
    /// from their start
    #[arg(long, value_name = "TIME", conflicts_with = "journal")]
    ignore_older: Option<Span>,
    /// Serves a page of what is followed (/), for programs (/files.json) and Prometheus (/metrics) there: HOST:PORT, or a Unix socket
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "journal")]
    status: Option<String>,
    /// Shows what the state knows: each file, how far it is stored, and how far it is behind; ships nothing
    #[arg(long, conflicts_with_all = ["journal", "once", "what"])]
    list: bool,
    /// Most directories in which the system is asked to tell at once that names change (inotify); 0 is none. All are looked through now and
    /// then besides
    #[arg(
        long,
        default_value_t = 1024,
        value_name = "N",
        conflicts_with = "journal"
    )]
    watches: usize,
    /// Files that are not followed, though they are named
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// Lines that match begin a message; other lines belong to the one before
    #[arg(long, value_name = "REGEX")]
    multiline_start: Option<Regex>,
    /// After how long a message of several lines counts as whole
    #[arg(long, default_value = "5s", value_name = "TIME")]
    multiline_after: Span,
    /// After how long a last line without an end is shipped [default: when its file is rotated away]
    #[arg(long, value_name = "TIME")]
    partial_after: Option<Span>,
    /// What becomes of a line that is longer than the server takes: split (into several messages), skip
    /// (left out and counted) or fail (its file is not shipped any further)
    #[arg(long, default_value = "split", value_name = "WHAT")]
    oversized: Oversized,
    /// How often files are looked at; names, once in four times
    #[arg(long, default_value = "250ms", value_name = "TIME")]
    poll: Span,
    /// How long a file that was rotated away must be quiet before the next one is begun
    #[arg(long, default_value = "2s", value_name = "TIME")]
    rotate_wait: Span,
    /// How long a file that was rotated away is looked at after that
    #[arg(long, default_value = "10m", value_name = "TIME")]
    linger: Span,
    /// How long to try to reach any server; 0 is not at all, as for `send` [default: for ever, with --once 60s]
    #[arg(long, value_name = "TIME")]
    retry: Option<Span>,
    /// How long to try to reach one server before the next one has its turn
    #[arg(long, default_value = "10s", value_name = "TIME")]
    failover_after: Span,
    /// Files shipped at once; others wait for their turn
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Most files that are followed
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    files: usize,
    /// Most bytes of removed files that are held open because they are not shipped yet; of what is more, the files that come first are
    /// given up
    #[arg(long, default_value = "4GiB", value_name = "SIZE")]
    held: Size,
    /// Memory for what is sent and not acknowledged, for all files together
    #[arg(long, default_value = "64MiB", value_name = "SIZE")]
    memory: Size,
    /// Goes on, behind what was acknowledged, where a server has forgotten a producer, or the journal has lost entries
    #[arg(long)]
    accept_loss: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// Ships the journal of this machine, an entry a message, as JSON
    #[arg(long, conflicts_with_all = ["exclude", "multiline_start", "partial_after"])]
    journal: bool,
    /// What prints the journal in its export format; - reads that from standard input
    #[arg(
        long,
        default_value = "journalctl",
        value_name = "COMMAND",
        requires = "journal"
    )]
    journalctl: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Oversized {
    Split,
    Skip,
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum From {
    Start,
    End,
}

/// Ships.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    for to in &args.to {
        let checked = To::from(to.as_str()).check();
        checked.map_err(|e| Failure::usage(e.to_string()))?;
    }
    if args.list {
        list::run(&args.state()?)
    } else if args.journal {
        journal::run(args)
    } else {
        files::run(args)
    }
}

impl Args {
    fn producing(&self) -> Result<Producing, Failure> {
        Ok(Producing {
            stream: self.stream.clone(),
            token: token(self.token_file.as_deref())?,
            level: self.level,
            accept_duplicates: self.accept_loss,
            ..Producing::default()
        })
    }

    /// How long all servers together are tried; `None` for ever.
    fn give_up(&self) -> Option<std::time::Duration> {
        match self.retry {
            Some(retry) => Some(retry.0),
            None => self.once.then(|| std::time::Duration::from_secs(60)),
        }
    }

    /// How long one server is tried.
    fn persistence(&self) -> Persistence {
        // Half of for ever is enough.
        let for_ever = std::time::Duration::MAX / 2;
        let within = match self.to.len() {
            1 => self.give_up().unwrap_or(for_ever),
            // Each server has its share of the time for all.
            all => {
                let share = self.give_up().map(|most| most / all as u32);
                self.failover_after.0.min(share.unwrap_or(for_ever))
            }
        };
        let is_once = self.give_up().is_some_and(|most| most.is_zero());
        Persistence {
            attempts: if is_once { 1 } else { u32::MAX },
            within,
            at_first: true,
            refused: (self.to.len() > 1 || self.give_up().is_some()).then_some(within),
            ..Persistence::default()
        }
    }

    /// The prefix of the names of producers.
    fn prefix(&self) -> Result<String, Failure> {
        let prefix = match &self.producer {
            Some(name) => name.clone(),
            None => {
                let host = rustix::system::uname();
                host.nodename().to_string_lossy().into_owned()
            }
        };
        match prefix.len() {
            1..=100 if !prefix.contains(char::is_control) => Ok(prefix),
            _ => Err(Failure::usage(
                "--producer must be 1 to 100 bytes without control characters",
            )),
        }
    }

    fn state(&self) -> Result<PathBuf, Failure> {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(state) = &self.state {
            return Ok(state.clone());
        }
        // systemd lists several directories with colons between them.
        if let Some(state) = from("STATE_DIRECTORY") {
            let state = state.to_string_lossy().into_owned();
            let first = state.split(':').next().unwrap_or_default();
            return Ok(first.into());
        }
        let base = from("XDG_STATE_HOME").map(PathBuf::from);
        let base =
            base.or_else(|| from("HOME").map(|home| PathBuf::from(home).join(".local/state")));
        let base =
            base.ok_or_else(|| Failure::usage("name a directory for the state with --state"))?;
        Ok(base.join("tidewire/ship"))
    }
}
