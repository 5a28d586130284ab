//! `tidewire stream`: the streams of a running server, seen and changed by the native protocol.

mod show;

use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Subcommand;
use tidewire_ingest::client::{Administrator, Broken, Error, Wanted, printable};
use tidewire_ingest::native::codec::Reason;
use tidewire_log::Compression;

use crate::exit::Failure;
use crate::names;
use crate::send::{advice, server, token};
use crate::size::Size;
use crate::span::Span;
use crate::tls::TlsArgs;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Stream {
    /// Lists streams: positions, size, what is set, and how far their readers are behind.
    List(List),
    /// Shows one stream, with its cursors and the readers that are connected.
    Show(One),
    /// Makes a stream.
    Create(Set),
    /// Changes what is set about a stream; what is not named stays.
    Set(Set),
    /// Removes the records of a stream before a position.
    Trim(Trim),
    /// Deletes a stream, with its records, cursors and the marks of its producers.
    Delete(Delete),
    /// Deletes a named cursor of a stream: it does not count as a reader that is behind any more.
    DeleteCursor(DeleteCursor),
}

/// The server.
#[derive(Debug, clap::Args)]
struct Where {
    /// The server: HOST:PORT, or a Unix socket (unix:/PATH or unix:@NAME)
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "PLACE")]
    to: String,
    /// A file with the secret that the server asks administrators for
    /// [default: the environment's TIDEWIRE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long to wait for the server, to connect and for each answer
    #[arg(long, default_value = "30s", value_name = "TIME")]
    timeout: Span,
    #[command(flatten)]
    tls: TlsArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// A JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct One {
    /// The stream
    #[arg(value_parser = names::stream)]
    name: String,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Set {
    /// The stream
    #[arg(value_parser = names::stream)]
    name: String,
    /// The most that is kept, as it is stored: the oldest records go; none for no limit
    #[arg(long, value_name = "SIZE")]
    retain_bytes: Option<Limit<Size>>,
    /// How long records are kept, such as 7d; none for no limit
    #[arg(long, value_name = "TIME")]
    retain_age: Option<Limit<Span>>,
    /// The most that is taken, as it is stored: then messages are refused until records go; none for no
    /// limit
    #[arg(long, value_name = "SIZE")]
    limit_bytes: Option<Limit<Size>>,
    /// How records are stored from now on: none, lz4 or zstd
    #[arg(long, value_name = "HOW", value_parser = compression)]
    compression: Option<Compression>,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Trim {
    /// The stream
    #[arg(value_parser = names::stream)]
    name: String,
    /// The first position that stays
    #[arg(long, value_name = "POSITION")]
    before: u64,
    /// Does it; without it only what would be lost is said
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Delete {
    /// The stream
    #[arg(value_parser = names::stream)]
    name: String,
    /// Does it; without it only what would be lost is said
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteCursor {
    /// The stream
    #[arg(value_parser = names::stream)]
    name: String,
    /// The cursor
    cursor: String,
    #[command(flatten)]
    at: Where,
}

/// A limit, or none.
#[derive(Clone, Copy, Debug)]
struct Limit<T>(Option<T>);

impl<T: FromStr<Err = String>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit<T>, String> {
        match text {
            "none" => Ok(Limit(None)),
            _ => text.parse().map(|limit| Limit(Some(limit))),
        }
    }
}

fn compression(text: &str) -> Result<Compression, String> {
    let named = Compression::ALL.into_iter().find(|it| it.name() == text);
    named.ok_or_else(|| {
        format!("no compression is called {text:?}: a compression is none, lz4 or zstd")
    })
}

impl Set {
    fn wanted(&self) -> Result<Wanted, Failure> {
        let bytes = |name: &str, limit: Option<Limit<Size>>| match limit {
            Some(Limit(Some(Size(0)))) => Err(Failure::usage(format!(
                "--{name} 0: give at least 1 byte, or the word none for no limit"
            ))),
            limit => Ok(limit.map(|Limit(size)| size.map(|Size(bytes)| bytes))),
        };
        let age = match self.retain_age {
            Some(Limit(Some(Span(age)))) if age < Duration::from_micros(1) => {
                return Err(Failure::usage(
                    "--retain-age 0: give at least 1us, or the word none for no limit",
                ));
            }
            age => age.map(|Limit(age)| age.map(|Span(age)| micros(age))),
        };
        Ok(Wanted {
            retain_bytes: bytes("retain-bytes", self.retain_bytes)?,
            retain_age_us: age,
            limit_bytes: bytes("limit-bytes", self.limit_bytes)?,
            compression: self.compression,
            is_unknown: false,
        })
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Runs a `stream` subcommand.
pub(crate) fn run(stream: Stream) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let shown = match &stream {
        Stream::List(list) => {
            let streams = list.at.connect()?.streams().map_err(failed)?;
            show::list(&streams, list.json, &mut out)
        }
        Stream::Show(one) => {
            let mut server = one.at.connect()?;
            let streams = server.streams().map_err(failed)?;
            let stream = streams.into_iter().find(|stream| stream.name == one.name);
            let stream = stream.ok_or_else(|| no_stream(&one.name))?;
            let cursors = server.cursors(&one.name).map_err(failed)?;
            let readers = server.readers(&one.name).map_err(failed)?;
            show::one(&stream, &cursors, &readers, one.json, &mut out)
        }
        Stream::Create(set) => {
            let wanted = set.wanted()?;
            let created = set.at.connect()?.create(&set.name, wanted);
            created.map_err(failed)?;
            Ok(())
        }
        Stream::Set(set) => {
            let wanted = set.wanted()?;
            if wanted == Wanted::default() {
                return Err(Failure::usage("no setting was given; see --help"));
            }
            let mut server = set.at.connect()?;
            server.set(&set.name, wanted).map_err(failed)?;
            if wanted.retain_bytes.is_some() || wanted.retain_age_us.is_some() {
                say_what_stays(&mut server, &set.name);
            }
            Ok(())
        }
        Stream::Trim(trim) => return trim_one(trim),
        Stream::Delete(delete) => return delete_one(delete),
        Stream::DeleteCursor(delete) => {
            let mut server = delete.at.connect()?;
            let deleted = server.delete_cursor(&delete.name, &delete.cursor);
            return deleted.map_err(failed);
        }
    };
    match shown.and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "cannot write the server's answer to stdout: {e}"
        ))),
        _ => Ok(()),
    }
}

fn trim_one(trim: &Trim) -> Result<(), Failure> {
    let mut server = trim.at.connect()?;
    let streams = server.streams().map_err(failed)?;
    let stream = streams.iter().find(|stream| stream.name == trim.name);
    let stream = stream.ok_or_else(|| no_stream(&trim.name))?;
    let (name, first, next) = (&stream.name, stream.first, stream.next);
    if trim.before > next {
        return Err(Failure::failed(format!(
            "stream {name:?} ends before position {}: its next record has {next}, and --before {next} removes all records",
            trim.before
        )));
    }
    if trim.yes {
        server.trim(name, trim.before).map_err(failed)?;
        say_what_stays(&mut server, name);
        return Ok(());
    }
    let positions = trim.before.saturating_sub(first);
    Err(Failure::usage(format!(
        "trimming {name:?} would remove the records at {positions} positions, from {first} on, for good; add --yes to do it"
    )))
}

fn delete_one(delete: &Delete) -> Result<(), Failure> {
    let mut server = delete.at.connect()?;
    if delete.yes {
        server.delete(&delete.name).map_err(failed)?;
        say_what_stays(&mut server, &delete.name);
        return Ok(());
    }
    let streams = server.streams().map_err(failed)?;
    let stream = streams.iter().find(|stream| stream.name == delete.name);
    let stream = stream.ok_or_else(|| no_stream(&delete.name))?;
    let (name, records) = (&stream.name, stream.next - stream.first);
    let (producers, cursors) = (stream.producers, stream.cursors);
    Err(Failure::usage(format!(
        "deleting {name:?} would lose {records} records, the marks of {producers} producers and \
         {cursors} cursors for good; add --yes to do it"
    )))
}

/// Says which other streams keep the room of records that this one does not keep any more. The change itself is done in any
/// case.
fn say_what_stays(server: &mut Administrator, changed: &str) {
    let Ok(streams) = server.streams() else {
        return;
    };
    let others = streams.iter().filter(|stream| stream.name != changed);
    let pinning: Vec<_> = others
        .filter(|stream| stream.pins.is_some_and(|pins| pins > 0))
        .collect();
    let Some(bytes) = pinning.iter().filter_map(|stream| stream.pins).max() else {
        return;
    };
    let names = pinning.iter().take(SHOWN);
    let mut names: Vec<String> = names.map(|stream| printable(&stream.name)).collect();
    if pinning.len() > SHOWN {
        names.push(format!("{} more", pinning.len() - SHOWN));
    }
    let names = names.join(", ");
    say!(
        "tidewire: room on the disk is freed by whole segments, the oldest first. The oldest {bytes} bytes stay for {names}: what \
         {changed} had in them is freed when these streams are trimmed, shortened or deleted as well"
    );
}

/// Most streams that are named.
const SHOWN: usize = 5;

fn no_stream(name: &str) -> Failure {
    Failure::failed(format!(
        "there is no stream {name:?}, or the token is not for it; `tidewire stream list` shows \
         the streams that the token may see"
    ))
}

impl Where {
    fn connect(&self) -> Result<Administrator, Failure> {
        let to = server(&self.to, &self.tls)?;
        let token = token(self.token_file.as_deref())?;
        Administrator::connect(to, &token, self.timeout.0).map_err(failed)
    }
}

fn failed(error: Error) -> Failure {
    let advice = match error.last() {
        Error::Broken {
            source: Broken::Refused { reason, text, .. },
            ..
        } => match reason {
            Reason::Unauthorised => {
                "; give a token with the right admin for the stream with --token-file or TIDEWIRE_TOKEN, see \
                 docs/howto/streams.md"
            }
            Reason::Exists => "; `tidewire stream set` changes it",
            // An operation that the server knows and refuses has a text of its own.
            Reason::Unsupported if text.ends_with("known here") => {
                "; the request may need a server of a later version"
            }
            Reason::DiskFull => {
                "; free room on the server's disk. `stream delete`, or `stream set` with a lower --retain-bytes, makes room \
                 and works on a full disk as far as the log's reserve goes"
            }
            Reason::NoStream | Reason::NoCursor => {
                "; `tidewire stream list` shows the streams, `tidewire stream show NAME` the cursors of one"
            }
            _ => advice(&error),
        },
        _ => advice(&error),
    };
    Failure::failed(format!("{error}{advice}"))
}
