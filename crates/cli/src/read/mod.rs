//! `tidewire read`: the records of a stream, to standard output.

mod directory;
mod home;
mod output;
mod show;

use std::io::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidewire_ingest::client::{Begin, Broken, Error, Reader, Subscribing};
use tidewire_ingest::native::codec::Reason;

use self::output::Output;
use self::show::Form;
pub(crate) use self::show::time;
use crate::exit::Failure;
use crate::names;
use crate::send::{advice, patiently, server, token};
use crate::span::Span;
use crate::tls::TlsArgs;

/// What to read, and how to show it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The server: HOST:PORT, or a Unix socket (unix:/PATH or unix:@NAME)
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "PLACE")]
    to: String,
    /// Reads the directory of a log instead of asking a server: beside the server that has it open, or
    /// where the log is left. Nothing is changed there; what is written last may not be durable yet
    #[arg(long, value_name = "DIR", conflicts_with_all = ["to", "follow", "cursor", "token_file"])]
    data: Option<PathBuf>,
    /// Reads the home that a log is replicated to, kafka://HOST[:PORT],.../TOPIC, instead of asking a server
    #[arg(long, value_name = "HOME", conflicts_with_all = ["to", "data", "cursor", "wait", "token_file"])]
    home: Option<String>,
    /// A file of settings for the client of that home, name=value a line
    #[arg(long, value_name = "FILE", requires = "home")]
    home_config: Option<PathBuf>,
    /// The stream
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = names::stream)]
    stream: String,
    /// Where to begin: a position, first (the oldest record) or tail (after the newest)
    /// [default: first, with --cursor where that stands]
    #[arg(long, value_name = "POSITION", conflicts_with = "since")]
    from: Option<From>,
    /// Begins with the first record received at this time (2026-01-31T23:59:59Z, or a date, which begins in UTC) or so
    /// long ago (10m) or later
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Ends before the first record received at this time, or so long ago, or later
    #[arg(long, value_name = "TIME", value_parser = since, conflicts_with = "home")]
    until: Option<u64>,
    /// Records of this producer alone; --count counts these
    #[arg(long, value_name = "NAME", conflicts_with = "home")]
    producer: Option<String>,
    /// Waits at the tail for more, instead of ending there
    #[arg(long, short)]
    follow: bool,
    /// Waits for a stream that does not exist yet, instead of ending with an error
    #[arg(long, requires = "follow")]
    wait: bool,
    /// Ends after so many records
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Goes on where this cursor, kept by the server, was left, and moves it behind what was written
    /// and, of a pipe, taken out at its other end. `head` takes out more than it shows: say --count
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME",
        value_parser = names::cursor
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
    #[command(flatten)]
    tls: TlsArgs,
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
            let at = at.or_else(|_| humantime::parse_rfc3339_weak(&format!("{text}T00:00:00")));
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

    /// Whether a record of this time is later than the end that was asked for. Times never go back
    /// within a stream.
    fn ends_before(&self, timestamp_us: u64) -> bool {
        self.until.is_some_and(|until| timestamp_us >= until)
    }

    fn takes(&self, producer: &[u8]) -> bool {
        let wanted = self.producer.as_ref();
        wanted.is_none_or(|wanted| wanted.as_bytes() == producer)
    }

    fn form(&self) -> Form {
        match (self.json, self.raw) {
            (true, _) => Form::Json,
            (_, true) => Form::Raw,
            _ => Form::Text,
        }
    }
}

/// Why reading ended early.
enum Ended {
    /// The output is not read any more: an intended end, such as by `head`.
    Unread,
    Output(io::Error),
    Input(Error),
    /// Number of records that were missing while reading.
    Lost(u64),
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

/// Reads records and prints them.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if let Some(directory) = &args.data {
        return directory::run(args, directory);
    }
    if let Some(at) = &args.home {
        return home::run(args, at);
    }
    let subscribing = Subscribing {
        stream: args.stream.clone(),
        begin: args.begin(),
        follow: args.follow,
        wait: args.wait,
        cursor: args.cursor.clone(),
        token: token(args.token_file.as_deref())?,
        ..Subscribing::default()
    };
    let to = server(&args.to, &args.tls)?;
    let connect = |persistence| Reader::connect(to.clone(), subscribing.clone(), persistence);
    let reader = patiently(args.retry, connect).map_err(|e| {
        let advice = match e.last() {
            Error::Broken {
                source:
                    Broken::Refused {
                        reason: Reason::NoStream,
                        ..
                    },
                ..
            } => "; `tidewire stream list` shows the streams; --follow --wait waits until the stream exists",
            _ => advice(&e),
        };
        Failure::failed(format!("nothing was read: {e}{advice}"))
    })?;
    if reader.welcome().skipped {
        say!(
            "tidewire: the records before {} have been removed; reading begins there",
            reader.place()
        );
    }
    conclude(copy(args, reader))
}

fn conclude(result: Result<(), Ended>) -> Result<(), Failure> {
    match result {
        Ok(()) | Err(Ended::Unread) => Ok(()),
        Err(Ended::Output(e)) => Err(Failure::failed(format!(
            "cannot write records to stdout: {e}"
        ))),
        Err(Ended::Input(e)) => Err(Failure::wrong(format!("{e}{}", advice(&e)))),
        Err(Ended::Lost(lost)) => Err(Failure::wrong(format!(
            "{lost} positions are missing: their records were lost in damage, and a repair of the log has marked them"
        ))),
    }
}

fn copy(args: &Args, mut reader: Reader) -> Result<(), Ended> {
    let mut out = Output::stdout(!args.cursor.is_empty())?;
    let ended = records(args, &mut reader, &mut out);
    if !args.cursor.is_empty() {
        // The messages that were taken count, however reading ended. The server has closed if it
        // ended it.
        out.drained();
        let moved = move_cursor(&mut out, &mut reader).and_then(|()| Ok(reader.close()?));
        return ended.and(moved);
    }
    ended
}

fn records(args: &Args, reader: &mut Reader, out: &mut Output) -> Result<(), Ended> {
    let form = args.form();
    let mut left = args.count.unwrap_or(u64::MAX);
    let mut due = reader.place();
    while left > 0 {
        if !reader.is_ready() {
            out.flush()?;
            move_cursor(out, reader)?;
        }
        let record = match reader.read() {
            Ok(Some(record)) => record,
            Ok(None) => {
                say_lost(due, reader.place(), form, out)?;
                break;
            }
            Err(e) => {
                out.flush()?;
                return Err(e.into());
            }
        };
        if args.ends_before(record.timestamp_us) {
            break;
        }
        say_lost(due, record.position, form, out)?;
        due = record.position + 1;
        if args.takes(&record.producer) {
            form.write(&record, out)?;
            left -= 1;
        }
        out.ended(record.position + 1);
    }
    out.flush()?;
    nothing_lost(out)
}

/// Says which records are missing, if any: damage took them, and a repair of the log has marked that.
fn say_lost(due: u64, next: u64, form: Form, out: &mut Output) -> Result<(), Ended> {
    if due < next {
        if form == Form::Json {
            writeln!(out, "{{\"missing\":{{\"first\":{due},\"next\":{next}}}}}")?;
        }
        out.flush()?;
        out.lost = out.lost.saturating_add(next - due);
        say!("tidewire: the records from {due} up to {next} are lost; reading goes on behind them");
    }
    Ok(())
}

/// A reader that goes on behind a gap has to know that there was one.
fn nothing_lost(out: &Output) -> Result<(), Ended> {
    match out.lost {
        0 => Ok(()),
        lost => Err(Ended::Lost(lost)),
    }
}

/// Moves the cursor behind the records that were printed.
fn move_cursor(out: &mut Output, reader: &mut Reader) -> Result<(), Ended> {
    match out.taken() {
        Some(next) => Ok(reader.commit_cursor(next)?),
        None => Ok(()),
    }
}
