//! `tidewire read`: the records of a stream, to standard output.

mod show;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_ingest::client::{Begin, Error, Reader, Subscribing};

use self::show::Form;
pub(crate) use self::show::time;
use crate::exit::Failure;
use crate::send::{patiently, token};
use crate::span::Span;

/// What to read, and how to show it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "HOST:PORT")]
    to: String,
    /// The stream
    #[arg(long, default_value = "default", value_name = "NAME")]
    stream: String,
    /// Where to begin: a position, first (the oldest record) or tail (after the newest)
    /// [default: first, with --cursor where that stands]
    #[arg(long, value_name = "POSITION", conflicts_with = "since")]
    from: Option<From>,
    /// Begins with the first record received at this time (2026-01-31T23:59:59Z) or so long ago
    /// (10m) or later
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Waits at the tail for more, instead of ending there
    #[arg(long, short)]
    follow: bool,
    /// Ends after so many records
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Goes on where this cursor, kept by the server, was left, and moves it behind what was written
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME"
    )]
    cursor: String,
    /// A JSON object a line: position, id, producer, timestamp, payload (payload_base64 if it is not
    /// UTF-8)
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Payloads only, one a line
    #[arg(long)]
    raw: bool,
    /// A file with the secret that the server asks for [default: the environment's TIDEWIRE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// How long to try to reach the server, at first and when a connection breaks; 0 is not at all
    #[arg(long, default_value = "60s", value_name = "TIME")]
    retry: Span,
}

/// A place to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    First,
    Tail,
    Position(u64),
}

impl FromStr for From {
    type Err = String;

    fn from_str(text: &str) -> Result<From, String> {
        match text {
            "first" => Ok(From::First),
            "tail" => Ok(From::Tail),
            _ => {
                let position = text.parse().map(From::Position);
                position.map_err(|_| "a position, first or tail".into())
            }
        }
    }
}

/// A time as microseconds since the Unix epoch.
fn since(text: &str) -> Result<u64, String> {
    let at = match text.parse::<Span>() {
        Ok(Span(ago)) => SystemTime::now().checked_sub(ago),
        Err(_) => {
            let at = humantime::parse_rfc3339_weak(text);
            Some(at.map_err(|_| "a time such as 2026-01-31T23:59:59Z, or 10m ago".to_owned())?)
        }
    };
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    Ok(since.map_or(0, |since: Duration| since.as_micros() as u64))
}

impl Args {
    fn begin(&self) -> Begin {
        match (self.from, self.since) {
            (_, Some(us)) => Begin::Timestamp(us),
            (None, None) if !self.cursor.is_empty() => Begin::Cursor,
            (None | Some(From::First), _) => Begin::Position(0),
            (Some(From::Tail), _) => Begin::Tail,
            (Some(From::Position(at)), _) => Begin::Position(at),
        }
    }

    fn form(&self) -> Form {
        match (self.json, self.raw) {
            (true, _) => Form::Json,
            (_, true) => Form::Raw,
            _ => Form::Text,
        }
    }
}

/// Why reading ended before its end.
enum Ended {
    /// Nobody reads what is written: the end that was meant, such as by `head`.
    Unread,
    Output(io::Error),
    Input(Error),
}

impl std::convert::From<io::Error> for Ended {
    fn from(e: io::Error) -> Ended {
        match e.kind() {
            io::ErrorKind::BrokenPipe => Ended::Unread,
            _ => Ended::Output(e),
        }
    }
}

impl std::convert::From<Error> for Ended {
    fn from(e: Error) -> Ended {
        Ended::Input(e)
    }
}

/// Reads it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let subscribing = Subscribing {
        stream: args.stream.clone(),
        begin: args.begin(),
        follow: args.follow,
        cursor: args.cursor.clone(),
        token: token(args.token_file.as_deref())?,
        ..Subscribing::default()
    };
    let connect = |persistence| Reader::connect(&args.to, subscribing.clone(), persistence);
    let reader = patiently(args.retry, connect).map_err(|e| {
        let advice = match e.last() {
            Error::Connection { .. } => "; is `tidewire serve` running there? See --to",
            _ => "",
        };
        Failure::usage(format!("nothing was read: {e}{advice}"))
    })?;
    if let Some(From::Position(at)) = args.from
        && reader.place() > at
    {
        eprintln!(
            "tidewire: the records before {} are gone, beginning there",
            reader.place()
        );
    }
    match copy(args, reader) {
        Ok(()) | Err(Ended::Unread) => Ok(()),
        Err(Ended::Output(e)) => Err(Failure::usage(format!("cannot write what was read: {e}"))),
        Err(Ended::Input(e)) => Err(Failure::wrong(e.to_string())),
    }
}

fn copy(args: &Args, mut reader: Reader) -> Result<(), Ended> {
    let form = args.form();
    let mut out = BufWriter::with_capacity(64 << 10, io::stdout().lock());
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        if !reader.is_ready() {
            settle(args, &mut out, &mut reader)?;
        }
        let record = match reader.read() {
            Ok(Some(record)) => record,
            Ok(None) => break,
            Err(e) => {
                out.flush()?;
                return Err(e.into());
            }
        };
        form.write(&record, &mut out)?;
        left -= 1;
    }
    settle(args, &mut out, &mut reader)?;
    if !args.cursor.is_empty() {
        reader.close()?;
    }
    Ok(())
}

/// What was read is written; then the cursor may move.
fn settle(args: &Args, out: &mut impl Write, reader: &mut Reader) -> Result<(), Ended> {
    out.flush()?;
    if !args.cursor.is_empty() {
        reader.commit_cursor(reader.place())?;
    }
    Ok(())
}
