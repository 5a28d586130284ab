//! `tidewire send`: standard input or files, message by message, to a server's log.

mod input;
mod watch;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use tidewire_ingest::client::{Broken, Error, Level, Persistence, Producer, Producing, To};
use tidewire_ingest::native::codec::Reason;

use self::input::{Bad, Cutter, Format, Oversized};
pub(crate) use self::watch::Watch;
use crate::exit::Failure;
use crate::names;
use crate::secret::Secret;
use crate::signals::Signals;
use crate::span::Span;
use crate::tls::TlsArgs;

/// How often a server may have less than it had acknowledged before that is an error: each time the messages are
/// sent again.
const SET_BACK_MAX: u32 = 16;

/// The text below the options.
const NOTES: &str = "\
Messages get ids 1, 2, 3, ... With a producer's name, what was sent and not acknowledged when a \
connection broke is sent again and stored once; without, it may be stored twice. With a name and \
files, ids are the places of messages in these files: what the server already has is skipped, so \
the same command may be repeated until it succeeds, also when the last file has grown by whole \
lines (a last line without a line feed is sent as it is, and counts as whole). They are counted, not \
compared: a file that was rotated is another one, of which as many messages are taken for those that \
the server has; if there are fewer, that is an error (`tidewire ship` follows files through \
rotation). Standard input goes on after the last id, so a \
named producer that is run again must be fed what follows there: the same lines once more would be \
stored once more (`tail -f` prints the last ten again).
Exit status: 0 when everything was acknowledged at the level asked for, 1 when nothing could be sent, \
2 when something was not acknowledged. Ctrl-C ends the input; what was read is flushed, \
of a file its whole lines.";

/// What to send where.
#[derive(Debug, clap::Args)]
#[command(after_help = NOTES)]
pub(crate) struct Args {
    /// Files to send, one after the other; - is standard input [default: -]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The server: HOST:PORT, or a Unix socket (unix:/PATH or unix:@NAME)
    #[arg(long, default_value = "127.0.0.1:7400", value_name = "PLACE")]
    to: String,
    /// The stream
    #[arg(long, default_value = "default", value_name = "NAME", value_parser = names::stream)]
    stream: String,
    /// What an acknowledgement is to mean: durable (synced), received (in the server's memory) or replicated (at
    /// the home of the server's log, on several machines)
    #[arg(long, default_value = "durable", value_parser = level)]
    level: Level,
    /// A name by which the server knows this producer: nothing is stored twice
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "NAME",
        value_parser = names::producer
    )]
    producer: String,
    /// How messages are told apart: lines, or length-prefixed (four bytes, little-endian)
    #[arg(long, default_value = "lines")]
    format: Format,
    /// The id of the first message, if the server knows nothing of the producer
    #[arg(long, default_value_t = 1, value_name = "ID")]
    first_id: u64,
    /// Sends all of the files after what the server has, instead of skipping that
    #[arg(long)]
    append: bool,
    /// A file with the secret that the server asks for [default: the environment's TIDEWIRE_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Goes on when the server has forgotten the producer, which was away for too long; what it had is
    /// stored again then
    #[arg(long)]
    accept_duplicates: bool,
    /// How long to try to reach the server, at first and when a connection breaks, and to wait while
    /// it takes nothing because its disk is full or a quota is used up; 0 is not at all
    #[arg(long, default_value = "60s", value_name = "TIME")]
    retry: Span,
    /// What becomes of a message that is larger than the server takes: fail (sending ends there), skip
    /// (left out; it gets no id) or truncate (its beginning is sent). How many there were is said at
    /// the end. A command that is repeated must say the same
    #[arg(long, default_value = "fail", value_name = "WHAT")]
    oversized: Oversized,
    #[command(flatten)]
    tls: TlsArgs,
}

pub(crate) fn level(name: &str) -> Result<Level, String> {
    match name {
        "received" => Ok(Level::Received),
        "durable" => Ok(Level::Durable),
        "replicated" => Ok(Level::Replicated),
        _ => Err("a level is received, durable or replicated".into()),
    }
}

/// The secret to show: from the file, or from the environment; empty for none.
pub(crate) fn token(file: Option<&Path>) -> Result<String, Failure> {
    let secret = match file {
        Some(path) => Some(Secret::from_file(path)?),
        None => Secret::from_environment("TIDEWIRE_TOKEN")?,
    };
    Ok(secret.map(Secret::into_text).unwrap_or_default())
}

/// How long to try to reach a server again; zero is not at all.
pub(crate) fn persistence(retry: Span) -> Persistence {
    match retry.limit() {
        Some(within) => Persistence {
            within,
            at_first: true,
            refused: Some(within),
            ..Persistence::default()
        },
        None => Persistence {
            refused: Some(Duration::ZERO),
            ..Persistence::once()
        },
    }
}

/// The address of a server, and the TLS settings for it.
///
/// # Errors
/// The text cannot be a server's place, or the files of TLS cannot be used.
pub(crate) fn server(to: &str, tls: &TlsArgs) -> Result<To, Failure> {
    let has_port = |(host, port): (&str, &str)| !host.is_empty() && port.parse::<u16>().is_ok();
    let is_path = to
        .strip_prefix("unix:")
        .is_some_and(|path| !path.is_empty());
    if !is_path && !to.rsplit_once(':').is_some_and(has_port) {
        return Err(Failure::usage(format!(
            "--to {to}: write it like HOST:PORT, unix:/PATH or unix:@NAME"
        )));
    }
    let to = To::from(to);
    Ok(match tls.client()? {
        Some(tls) => to.tls(tls),
        None => to,
    })
}

/// Connects, and says so if that takes more than one attempt.
pub(crate) fn patiently<T>(
    retry: Span,
    mut connect: impl FnMut(Persistence) -> Result<T, Error>,
) -> Result<T, Error> {
    let patient = persistence(retry);
    let began = Instant::now();
    let first = connect(Persistence {
        at_first: false,
        ..patient
    });
    match first {
        Err(e) if patient.at_first && e.is_passing() => {
            let gave_up = |attempts, last| Error::GaveUp {
                attempts,
                elapsed: began.elapsed(),
                last,
            };
            let within = patient.within.saturating_sub(began.elapsed());
            if within.is_zero() {
                return Err(e);
            }
            say!(
                "tidewire: {e}{}; trying again for {within:.1?} (see --retry)",
                advice(&e)
            );
            connect(Persistence { within, ..patient }).map_err(|e| match e {
                // The attempts include the first one.
                Error::GaveUp { attempts, last, .. } => gave_up(attempts + 1, last),
                other => other,
            })
        }
        first => first,
    }
}

/// Waits until the server has answered, or has failed for good; false if `came` says so first, and then the producer is left to
/// the end of the process, because its thread may be waiting for a name or a connection.
pub(crate) fn connected(producer: &Producer, came: impl Fn() -> bool) -> Result<bool, Error> {
    while !producer.welcomed_within(SIGNALS)? {
        if came() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How often the thread looks for signals while it connects to a server.
const SIGNALS: Duration = Duration::from_millis(50);

/// One input.
enum Source {
    Stdin(io::Stdin),
    File(PathBuf, File),
}

impl Source {
    fn open(path: &Path) -> Result<Source, Failure> {
        if path == Path::new("-") {
            return Ok(Source::Stdin(io::stdin()));
        }
        let file = File::open(path).and_then(|file| {
            // Opening a directory succeeds, and the error of reading it is hard to understand.
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(file)
        });
        let failed = |e| Failure::failed(format!("cannot read {}: {e}", path.display()));
        Ok(Source::File(path.to_owned(), file.map_err(failed)?))
    }

    fn name(&self) -> String {
        match self {
            Source::Stdin(_) => "standard input".into(),
            Source::File(path, _) => path.display().to_string(),
        }
    }
}

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Source::Stdin(stdin) => stdin.as_fd(),
            Source::File(_, file) => file.as_fd(),
        }
    }
}

/// Sends the input.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let stdin = [PathBuf::from("-")];
    let files = if args.files.is_empty() {
        &stdin[..]
    } else {
        &args.files
    };
    let mut set_back = 0;
    loop {
        match send(args, files)? {
            Sent::Whole => return Ok(()),
            Sent::SetBack { why, ended } => {
                set_back += 1;
                if set_back > SET_BACK_MAX {
                    return Err(ended);
                }
                eprintln!(
                    "tidewire: {why}, as after a restore from a backup: the missing messages are sent again"
                );
            }
        }
    }
}

/// How sending ended.
enum Sent {
    Whole,
    /// The server has less than it had acknowledged, and the files still have it. `ended` is how the command ends where that happens again and again.
    SetBack {
        why: String,
        ended: Failure,
    },
}

/// Whether the whole input can be read again, and ids are places in the input.
fn is_repeatable(args: &Args, sources: &[Source]) -> bool {
    let is_file = |source: &Source| match source {
        Source::Stdin(_) => false,
        Source::File(_, file) => file.metadata().is_ok_and(|file| file.is_file()),
    };
    !args.producer.is_empty() && !args.append && sources.iter().all(is_file)
}

fn send(args: &Args, files: &[PathBuf]) -> Result<Sent, Failure> {
    let sources: Result<Vec<Source>, Failure> =
        files.iter().map(|path| Source::open(path)).collect();
    let sources = sources?;
    let is_repeatable = is_repeatable(args, &sources);
    let signals = || {
        Signals::catch()
            .map_err(|e| Failure::failed(format!("cannot catch SIGTERM and SIGINT: {e}")))
    };
    let ends = signals()?;
    let producing = Producing {
        stream: args.stream.clone(),
        producer: args.producer.clone(),
        token: token(args.token_file.as_deref())?,
        level: args.level,
        first_id: args.first_id,
        accept_duplicates: args.accept_duplicates,
        ..Producing::default()
    };
    let to = server(&args.to, &args.tls)?;
    let connect = |persistence| {
        let producer = Producer::start(to.clone(), producing.clone(), persistence, None)?;
        Ok(match connected(&producer, || ends.has_come())? {
            true => Some(producer),
            false => {
                // The producer's thread may be waiting for a connection.
                std::mem::forget(producer);
                None
            }
        })
    };
    let producer = patiently(args.retry, connect)
        .map_err(|e| Failure::failed(format!("nothing was sent: {}", advised(&e))))?
        .ok_or_else(|| Failure::failed("nothing was sent: ended before the server was reached"))?;
    let most = producer.granted().payload_max;
    let mut sending = Sending {
        producer: &producer,
        cutter: Cutter::new(args.format, most, args.oversized),
        ends,
        skip: skipped(args, &sources, &producer),
        skipped: 0,
        sent: 0,
        most,
    };
    let watch = Watch::new(signals()?);
    let result = watch.during(&producer, || {
        let ended = sending.all(sources);
        // Messages that were sent before the failure are not given up.
        let flushed = producer.flush();
        (ended, flushed)
    });
    let set_back = match &result.1 {
        Err(error) if matches!(error.broken(), Some(Broken::Lost { .. })) && is_repeatable => {
            Some(error.to_string())
        }
        _ => None,
    };
    match (sending.conclude(result, &watch), set_back) {
        (Ok(()), _) => Ok(Sent::Whole),
        (Err(ended), Some(why)) => Ok(Sent::SetBack { why, ended }),
        (Err(ended), None) => Err(ended),
    }
}

/// How many messages of the input the server has.
fn skipped(args: &Args, sources: &[Source], producer: &Producer) -> u64 {
    let files = sources
        .iter()
        .all(|source| matches!(source, Source::File(..)));
    if args.producer.is_empty() || !files || args.append {
        return 0;
    }
    let had = |mark: u64| mark.checked_sub(args.first_id);
    let had = producer.status().settled.and_then(had);
    had.map_or(0, |before_the_last| before_the_last.saturating_add(1))
}

/// Advice for an error that any client of an ingest listener may get; empty if there is none.
pub(crate) fn advice(error: &Error) -> &'static str {
    match error.last() {
        Error::Connection { what, source, .. } => match (*what, source.kind()) {
            // TLS has failed, so a server is there. A refused client certificate is told by the first read.
            (_, io::ErrorKind::InvalidData) => {
                let says = source.to_string();
                if says.contains("client certificate") {
                    "; give one with --tls-cert and --tls-key"
                } else if says.contains("not TLS") {
                    "; does the server speak TLS there? Without --tls and --tls-ca the connection is plain"
                } else if says.contains("not trusted") {
                    "; --tls-ca must name the authority that signed the server's certificate"
                } else {
                    "; see --tls-ca, --tls-name and --tls-cert"
                }
            }
            ("connect to", _) => {
                "; is `tidewire serve` running there? --to must name its ingest listener (the line `listening \
                 service=ingest` of its output)"
            }
            _ => "",
        },
        Error::Broken { source, .. } => match source {
            Broken::ClosedUnanswered => {
                "; if the server speaks TLS, add --tls or --tls-ca FILE; --to must name its ingest listener"
            }
            Broken::Unanswered(_) | Broken::Malformed(_) => {
                "; --to must name the ingest listener (the line `listening service=ingest` of the server's output)"
            }
            Broken::Refused {
                reason: Reason::Unauthorised,
                ..
            } => {
                "; give the token with --token-file or TIDEWIRE_TOKEN; docs/howto/streams.md lists which rights a token can have"
            }
            Broken::Refused {
                reason: Reason::NoStream,
                ..
            } => "; create it first: `tidewire stream create NAME`",
            _ => "",
        },
        _ => "",
    }
}

/// An error with advice what to do about it.
fn advised(error: &Error) -> String {
    let advice = match error.last() {
        Error::Broken {
            source: level @ Broken::Level { .. },
            ..
        } => &format!("; {}", level.remedy()),
        Error::Broken {
            source: Broken::Forgotten,
            ..
        } => {
            "; `tidewire read` shows which messages the server has; send the missing ones under \
             another producer's name, or add --accept-duplicates. The server's \
             --remember-producers sets how long it remembers producers"
        }
        _ => advice(error),
    };
    format!("{error}{advice}")
}

struct Sending<'a> {
    producer: &'a Producer,
    cutter: Cutter,
    /// Signals end the input.
    ends: Signals,
    /// Messages still to be skipped.
    skip: u64,
    skipped: u64,
    sent: u64,
    most: u32,
}

/// How the input ended.
enum Ended {
    /// The input was read to its end.
    Whole,
    /// A signal came; whether input was left unread.
    Interrupted { rest: bool },
    /// The input cannot be sent, or not be read.
    Bad(String),
}

impl Sending<'_> {
    fn all(&mut self, sources: Vec<Source>) -> Ended {
        for source in sources {
            match self.one(&source) {
                Ended::Whole => {}
                ended => return ended,
            }
        }
        Ended::Whole
    }

    fn one(&mut self, source: &Source) -> Ended {
        let bad = |what: String| Ended::Bad(format!("{}: {what}", source.name()));
        loop {
            match self.wait(source) {
                Ok(true) => {}
                Ok(false) => {
                    // The rest of a file's last line can be read the next time; until then its
                    // beginning must not pass for the whole line.
                    if matches!(source, Source::File(..)) {
                        return Ended::Interrupted { rest: true };
                    }
                    let ended = Ended::Interrupted { rest: false };
                    return self.last().map_or_else(bad, |()| ended);
                }
                Err(e) => return bad(format!("cannot wait for the input: {e}")),
            }
            let read = loop {
                match rustix::io::read(source, self.cutter.room()) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => break other,
                }
            };
            match read {
                Err(e) => return bad(format!("cannot read the input: {e}")),
                Ok(0) => return self.last().map_or_else(bad, |()| Ended::Whole),
                Ok(n) => {
                    if let Err(why) = self.read(n) {
                        return bad(why);
                    }
                }
            }
        }
    }

    /// Until there is something to read; false if a signal came first.
    fn wait(&self, source: &Source) -> io::Result<bool> {
        let mut fds = [
            PollFd::new(source, PollFlags::IN),
            PollFd::new(&self.ends, PollFlags::IN),
        ];
        loop {
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
                Ok(_) => return Ok(fds[1].revents().is_empty()),
            }
        }
    }

    /// Sends what so many bytes more have made whole.
    fn read(&mut self, mut n: usize) -> Result<(), String> {
        loop {
            let at = self.skipped + self.sent + 1;
            let messages = self.cutter.read(std::mem::take(&mut n));
            let messages = messages.map_err(|bad| described(bad, at, self.most))?;
            if messages.is_empty() {
                return Ok(());
            }
            let skip = self.skip.min(messages.len() as u64);
            (self.skip, self.skipped) = (self.skip - skip, self.skipped + skip);
            let rest = &messages[skip as usize..];
            self.producer.send_each(rest).map_err(|e| e.to_string())?;
            self.sent += rest.len() as u64;
        }
    }

    /// Sends a last line that does not end.
    fn last(&mut self) -> Result<(), String> {
        let at = self.skipped + self.sent + 1;
        match self.cutter.end() {
            Ok(None) => Ok(()),
            Ok(Some(_)) if self.skip > 0 => {
                (self.skip, self.skipped) = (self.skip - 1, self.skipped + 1);
                Ok(())
            }
            Ok(Some(message)) => {
                self.producer.send(message).map_err(|e| e.to_string())?;
                self.sent += 1;
                Ok(())
            }
            Err(bad) => Err(described(bad, at, self.most)),
        }
    }

    fn conclude(
        &self,
        (ended, flushed): (Ended, Result<(), Error>),
        watch: &Watch,
    ) -> Result<(), Failure> {
        let status = self.producer.status();
        let counts = format!(
            "{} messages were acknowledged, {} sent and not acknowledged, {} skipped because the \
             server has as many{}",
            status.acknowledged,
            status.unacknowledged.messages,
            self.skipped,
            self.oversized(),
        );
        let wrong = |why: String| Err(Failure::wrong(format!("{why}; {counts}")));
        match (ended, flushed) {
            (_, Err(e)) => wrong(advised(&e)),
            (Ended::Bad(why), Ok(())) => wrong(format!("not everything was sent: {why}")),
            (Ended::Interrupted { rest: true }, Ok(())) => {
                wrong("interrupted before the end of the input".into())
            }
            // An input that is shorter than the part that was sent is another file, for instance
            // after a rotation.
            (Ended::Whole, Ok(())) if self.skip > 0 => wrong(format!(
                "the files have {} messages, and the server has {} of this producer: these are \
                 not the files that were sent before, and nothing was sent. Use `tidewire ship` \
                 for rotated files; --append sends them behind what the server has",
                self.skipped,
                self.skipped + self.skip,
            )),
            (Ended::Whole | Ended::Interrupted { .. }, Ok(())) => {
                watch.summary(&status, self.skipped, &self.oversized());
                Ok(())
            }
        }
    }

    /// The closing words about messages that were too large; empty if there were none.
    fn oversized(&self) -> String {
        let done = match (self.cutter.cut(), self.cutter.oversized()) {
            (0, _) | (_, Oversized::Fail) => return String::new(),
            (_, Oversized::Skip) => "left out",
            (_, Oversized::Truncate) => "truncated",
        };
        let (cut, most) = (self.cutter.cut(), self.most);
        format!(", {cut} {done} because the server takes at most {most} bytes")
    }
}

/// The error text for message number `at`.
fn described(bad: Bad, at: u64, most: u32) -> String {
    match bad {
        Bad::TooLarge => {
            format!(
                "message {at} is too large: the server takes at most {most} bytes; see --oversized"
            )
        }
        Bad::Truncated => format!("the input ends in the middle of message {at}"),
    }
}
