//! Ships the journal of systemd, in its export format.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidewire_ingest::client::{Broken, Error, Producer, Producing, To};
use tidewire_ship::journal::{Entry, Origin, Parser};
use tidewire_ship::{StateDirectory, journal::ENTRY_MAX};

use super::Args;
use crate::exit::Failure;
use crate::send::{Watch, connected, server};
use crate::signals::Signals;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;
/// How often the origin is moved forward.
const MOVED_EVERY: Duration = Duration::from_secs(1);

/// How long to pause when all servers have failed.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a server may have less than it had acknowledged before that is an error: each time the messages are
/// sent again.
const SET_BACK_MAX: u32 = 16;
/// A wait for signals that have already arrived.
const AT_ONCE: Duration = Duration::from_micros(1);

/// Why shipping has ended early.
enum Why {
    /// An error of the server, or of the connection to it.
    Server(Error),
    Other(String),
}

impl From<String> for Why {
    fn from(why: String) -> Why {
        Why::Other(why)
    }
}

impl Why {
    /// Whether the server has fewer messages than it had acknowledged.
    fn is_set_back(&self) -> bool {
        let Why::Server(error) = self else {
            return false;
        };
        matches!(error.broken(), Some(Broken::Lost { .. }))
    }

    /// Whether another server may succeed, or the same server later.
    fn is_passing(&self) -> bool {
        match self {
            Why::Server(error) => error.is_passing() || error.last().is_passing(),
            Why::Other(_) => false,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Server(error) => error.fmt(f),
            Why::Other(why) => f.write_str(why),
        }
    }
}

/// The state that the connections to all servers have in common.
struct Journal<'a> {
    args: &'a Args,
    name: PathBuf,
    matches: Vec<String>,
    /// A new one, until there is an origin.
    producer_name: String,
    ends: Signals,
    watch: Watch,
    acknowledged: u64,
    left_out: u64,
    /// Entries that a server had lost and that the journal does not have any more.
    lost: u64,
    /// A server was heard.
    is_begun: bool,
    /// Standard input was read, and cannot be read again.
    is_spent: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let directory = args.state()?;
    // The state's lock keeps other processes out; files have their own checkpoint in it.
    let (_state, _) =
        StateDirectory::open(&directory).map_err(|e| Failure::failed(e.to_string()))?;
    let matches = args.what.iter();
    let matches = matches.map(|what| what.to_string_lossy().into_owned());
    let signals = || {
        Signals::catch()
            .map_err(|e| Failure::failed(format!("cannot catch SIGTERM and SIGINT: {e}")))
    };
    let mut journal = Journal {
        args,
        name: directory.join("journal.json"),
        matches: matches.collect(),
        producer_name: format!("{}:journal#{:016x}", args.prefix()?, fastrand::u64(..)),
        ends: signals()?,
        watch: Watch::new(signals()?),
        acknowledged: 0,
        left_out: 0,
        lost: 0,
        is_begun: false,
        is_spent: false,
    };
    let to = args.to.iter().map(|name| server(name, &args.tls));
    let to = to.collect::<Result<Vec<_>, Failure>>()?;
    let origin = load(&journal.name, &journal.matches)?;
    // The server that was used last comes first, so that few messages are stored by several
    // servers.
    let used = origin.and_then(|origin| origin.server);
    let used = args.to.iter().position(|name| Some(name) == used.as_ref());
    let shipped = journal.in_turns(&to, used.unwrap_or(0));
    let left_out = match journal.left_out {
        0 => String::new(),
        n => format!(", {n} entries left out because they are too large"),
    };
    let summary = format!("{} entries acknowledged{left_out}", journal.acknowledged);
    match shipped {
        Ok(()) if journal.lost > 0 => Err(Failure::wrong(format!(
            "{} entries that a server has lost are not in the journal any more; {summary}",
            journal.lost
        ))),
        Ok(()) => {
            eprintln!("{summary}");
            Ok(())
        }
        Err(failure) => Err(Failure {
            message: format!("{}; {summary}", failure.message),
            ..failure
        }),
    }
}

impl Journal<'_> {
    /// One server at a time, because the journal is read in order: when a server fails, the next
    /// one.
    fn in_turns(&mut self, to: &[To], first: usize) -> Result<(), Failure> {
        let mut at = first;
        // Servers that have failed since one had acknowledged something, and since when.
        let (mut fruitless, mut silent) = (0, Instant::now());
        let mut set_back = 0;
        loop {
            let (args, before) = (self.args, self.acknowledged);
            let Err(why) = self.ship(&to[at], &args.to[at])? else {
                return Ok(());
            };
            if self.acknowledged > before {
                (fruitless, silent) = (0, Instant::now());
            }
            if why.is_set_back() && !self.is_spent && set_back < SET_BACK_MAX {
                // The server's next welcome names its highest id.
                set_back += 1;
                continue;
            }
            fruitless += 1;
            let all_tried = fruitless >= to.len();
            let gave_up = args.give_up();
            let is_over = all_tried && gave_up.is_some_and(|most| silent.elapsed() >= most);
            if !why.is_passing() || self.is_spent || is_over || to.len() == 1 {
                let text = format!("{}: {why}", args.to[at]);
                return Err(match self.is_begun {
                    true => Failure::wrong(text),
                    false => Failure::failed(format!("nothing was shipped: {text}")),
                });
            }
            at = (at + 1) % to.len();
            let next = &args.to[at];
            eprintln!("tidewire: {why}; {next} has its turn");
            let pause = if all_tried { PAUSE } else { AT_ONCE };
            if self.ends.wait(Some(pause)) > 0 {
                return Err(Failure::wrong("ended while no server could be reached"));
            }
        }
    }

    /// Ships to one server, from where the journal was shipped to.
    fn ship(&mut self, to: &To, server: &str) -> Result<Result<(), Why>, Failure> {
        let args = self.args;
        let origin = load(&self.name, &self.matches)?;
        if let Some(origin) = &origin {
            self.producer_name.clone_from(&origin.producer);
        }
        let producing = Producing {
            producer: self.producer_name.clone(),
            sparse: true,
            ..args.producing()?
        };
        let started = Producer::start(to.clone(), producing, args.persistence(), None);
        let welcomed = started.and_then(|producer| {
            let came = || self.ends.has_come();
            Ok(match connected(&producer, came)? {
                true => Some(producer),
                false => {
                    // The producer's thread may be waiting for a connection.
                    std::mem::forget(producer);
                    None
                }
            })
        });
        let producer = match welcomed {
            Ok(Some(producer)) => producer,
            Ok(None) => {
                return Err(Failure::wrong("ended before the server was reached"));
            }
            Err(error) => return Ok(Err(Why::Server(error))),
        };
        let mark = producer.status().settled.unwrap_or(0);
        let had = origin.as_ref().map_or(0, |origin| origin.had(server));
        let origin = match origin {
            Some(origin) if mark < had && !args.accept_loss => {
                let what = format!(
                    "{server} had acknowledged entries up to {had}, and has them only up to {mark} now"
                );
                if args.journalctl == "-" {
                    return Err(Failure::wrong(format!(
                        "{what}: the server has lost messages, or is another server, and \
                         standard input cannot be read from an earlier entry; --accept-loss goes \
                         on behind the acknowledged entries"
                    )));
                }
                let (origin, lost) = Source::rewound(args, &self.matches, origin, mark)?;
                self.lost += lost;
                let lost = match lost {
                    0 => String::new(),
                    n => format!(", but for {n} that the journal does not have any more"),
                };
                eprintln!(
                    "tidewire: {what}, as after a restore from a backup: the entries after that are sent again{lost}"
                );
                let mut servers = origin.servers.clone();
                servers.insert(server.to_owned(), mark);
                Some(Origin { servers, ..origin })
            }
            origin => origin,
        };
        self.is_begun = true;
        let mut source = Source::open(args, &self.matches, origin.as_ref())?;
        self.is_spent = source.child.is_none();
        let mut shipping = Shipping {
            producer: &producer,
            name: self.name.clone(),
            server,
            matches: self.matches.clone(),
            producer_name: self.producer_name.clone(),
            must_begin: origin.as_ref().map(|origin| origin.cursor.clone()),
            may_skip: source.child.is_none(),
            accept_loss: args.accept_loss,
            next: origin.as_ref().map_or(1, |origin| origin.id),
            is_saved: origin.is_some(),
            moved: origin.as_ref().map_or(0, |origin| origin.id),
            servers: origin.map_or_else(BTreeMap::new, |origin| origin.servers),
            moved_at: Instant::now(),
            mark,
            left_out: 0,
            sent: None,
            passed: Vec::new(),
            movable: None,
            most: producer.granted().payload_max as usize,
        };
        let ends = &self.ends;
        let (read, flushed) = self.watch.during(&producer, || {
            let read = shipping.read(&mut source, ends);
            (read, producer.flush())
        });
        shipping.move_origin();
        let saved = shipping.save_moved();
        if let Some(child) = &mut source.child {
            // The process may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.acknowledged += producer.status().acknowledged;
        self.left_out += shipping.left_out;
        if let Err(why) = saved {
            eprintln!("tidewire: {why}; the next start counts shipped entries from an older entry");
        }
        Ok(read.and(flushed.map_err(Why::Server)))
    }
}

/// Goes so many entries back from the origin, or as many as there are: the cursor of the last one, and how many it were.
fn count_back(
    from: &mut impl io::Read,
    origin: &Origin,
    steps: u64,
) -> Result<(String, u64), String> {
    let mut parser = Parser::default();
    let mut bytes = vec![0; CHUNK];
    let mut met: Option<(String, u64)> = None;
    loop {
        let n = match from.read(&mut bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            read => read.map_err(|e| format!("cannot read the journal: {e}"))?,
        };
        parser.push(&bytes[..n]);
        while let Some(entry) = parser.entry().map_err(|e| e.to_string())? {
            let cursor = entry.cursor().ok_or("an entry has no __CURSOR")?;
            let back = match &met {
                Some((_, back)) => back + 1,
                None if cursor == origin.cursor => 0,
                None => {
                    let wanted = &origin.cursor;
                    return Err(format!(
                        "the journal does not have the entry with the cursor {wanted} any more"
                    ));
                }
            };
            met = Some((cursor.to_owned(), back));
            if back == steps {
                return Ok((cursor.to_owned(), back));
            }
        }
        if n == 0 {
            return met.ok_or_else(|| "the journal has no entries".into());
        }
    }
}

fn load(name: &Path, matches: &[String]) -> Result<Option<Origin>, Failure> {
    let shown = name.display();
    let bytes = match fs::read(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::failed(format!("cannot read {shown}: {e}"))),
        Ok(bytes) => bytes,
    };
    let origin: Origin = serde_json::from_slice(&bytes).map_err(|e| {
        Failure::failed(format!(
            "{shown} is damaged: {e}; remove the file to ship the whole journal again"
        ))
    })?;
    if origin.matches != matches {
        return Err(Failure::failed(format!(
            "{shown} was made for the entries {:?}, which were counted, and not for {matches:?}: use \
             another --state",
            origin.matches
        )));
    }
    Ok(Some(origin))
}

/// The source of entries.
struct Source {
    child: Option<Child>,
    pipe: OwnedFd,
}

impl Source {
    fn open(args: &Args, matches: &[String], origin: Option<&Origin>) -> Result<Source, Failure> {
        if args.journalctl == "-" {
            let pipe = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|e| Failure::failed(format!("cannot read standard input: {e}")))?;
            return Ok(Source { child: None, pipe });
        }
        let mut command = Command::new(&args.journalctl);
        command.args(["--output=export", "--all", "--no-pager", "--quiet"]);
        match origin {
            Some(origin) => command.arg(format!("--cursor={}", origin.cursor)),
            None => command.arg("--no-tail"),
        };
        if !args.once {
            command.args(["--follow", "--no-tail"]);
        }
        command
            .args(matches)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|e| Failure::failed(format!("cannot run {}: {e}", args.journalctl)))?;
        let pipe = child.stdout.take().expect("it is piped").into();
        Ok(Source {
            child: Some(child),
            pipe,
        })
    }
}

impl Source {
    /// The entry behind a server's mark, found by counting back from the origin: it, with its id, and how many between the mark and it are not in the
    /// journal any more.
    fn rewound(
        args: &Args,
        matches: &[String],
        origin: Origin,
        mark: u64,
    ) -> Result<(Origin, u64), Failure> {
        let steps = origin.id.saturating_sub(mark.saturating_add(1));
        if steps == 0 {
            return Ok((origin, 0));
        }
        let mut child = Command::new(&args.journalctl)
            .args([
                "--output=export",
                "--all",
                "--no-pager",
                "--quiet",
                "--reverse",
            ])
            .arg(format!("--cursor={}", origin.cursor))
            .args(matches)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::failed(format!("cannot run {}: {e}", args.journalctl)))?;
        let mut pipe = child.stdout.take().expect("it is piped");
        let counted = count_back(&mut pipe, &origin, steps);
        // The process may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
        let (cursor, back) = counted.map_err(|why| {
            Failure::wrong(format!(
                "cannot find the journal's entry with which the server's messages end: {why}; --accept-loss goes on behind the acknowledged entries"
            ))
        })?;
        let id = origin.id - back;
        Ok((
            Origin {
                cursor,
                id,
                ..origin
            },
            steps - back,
        ))
    }

    /// The program that prints the journal has closed its output: whether the program ended well. Standard
    /// input does not tell.
    fn ended(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else {
            return Ok(());
        };
        let status = child.wait().map_err(|e| e.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!(
                "the program that prints the journal ended with {status}"
            )),
        }
    }
}

struct Shipping<'a> {
    producer: &'a Producer,
    name: PathBuf,
    /// The name of the server.
    server: &'a str,
    matches: Vec<String>,
    producer_name: String,
    /// The entry at which counting begins, until it was met.
    must_begin: Option<String>,
    /// Whether other entries may come before the entry.
    may_skip: bool,
    accept_loss: bool,
    /// The id of the next entry.
    next: u64,
    /// The origin is written down.
    is_saved: bool,
    /// The id at which the cursor stands.
    moved: u64,
    /// Up to where each server had acknowledged entries.
    servers: BTreeMap<String, u64>,
    /// The time at which the cursor was last moved.
    moved_at: Instant,
    /// The highest id that the server had.
    mark: u64,
    left_out: u64,
    /// The entry that was sent last of all that were read at once.
    sent: Option<(u64, String)>,
    /// Entries to which the origin may move when they are acknowledged; their number is bounded by what may
    /// be in flight.
    passed: Vec<(u64, String)>,
    /// The id and entry to which the cursor may move now.
    movable: Option<(u64, String)>,
    most: usize,
}

impl Shipping<'_> {
    fn read(&mut self, source: &mut Source, ends: &Signals) -> Result<(), Why> {
        let mut parser = Parser::default();
        let mut bytes = vec![0; CHUNK];
        loop {
            let mut fds = [
                PollFd::new(&source.pipe, PollFlags::IN),
                PollFd::new(ends, PollFlags::IN),
            ];
            // Acknowledgements move the origin even while no entry comes.
            let is_owed = !self.passed.is_empty() || self.movable.is_some();
            let most = Timespec::try_from(MOVED_EVERY).expect("it is short");
            match poll(&mut fds, is_owed.then_some(&most)) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(format!("cannot wait for the journal: {e}").into()),
                Ok(0) => {
                    if let Some(error) = self.producer.failure() {
                        return Err(Why::Server(error));
                    }
                    self.move_when_due();
                    continue;
                }
                Ok(_) if !fds[1].revents().is_empty() => return Ok(()),
                Ok(_) => {}
            }
            let n = match rustix::io::read(&source.pipe, &mut bytes) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(format!("cannot read the journal: {e}").into()),
                Ok(n) => n,
            };
            parser.push(&bytes[..n]);
            while let Some(entry) = parser.entry().map_err(|e| e.to_string())? {
                self.entry(&entry)?;
            }
            if n == 0 {
                // An entry without its empty line is whole only if the program that prints the journal
                // ended well.
                source.ended()?;
                if let Some(entry) = parser.end() {
                    self.entry(&entry)?;
                }
            }
            self.passed.extend(self.sent.take());
            if n == 0 {
                return Ok(self.ended()?);
            }
            self.move_when_due();
        }
    }

    fn ended(&self) -> Result<(), String> {
        match &self.must_begin {
            Some(cursor) => Err(format!(
                "the journal does not have the entry with the cursor {cursor}, behind which shipping goes \
                 on; feed the journal from there, or from before"
            )),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), Why> {
        let cursor = entry.cursor();
        let cursor = cursor.ok_or_else(|| Why::Other("an entry has no __CURSOR".into()))?;
        if let Some(wanted) = &self.must_begin {
            if cursor == wanted {
                self.must_begin = None;
            } else if self.may_skip {
                return Ok(());
            } else if self.accept_loss {
                self.must_begin = None;
                self.next = self.next.max(self.mark + 1);
            } else {
                return Err(format!(
                    "the journal does not have the entry with the cursor {wanted} any more, behind which \
                     shipping goes on: what came after it may have been removed as well, before it was \
                     shipped; --accept-loss goes on with the oldest there is, which may be stored already"
                )
                .into());
            }
        }
        let id = self.next;
        self.next += 1;
        if !self.is_saved {
            self.save(id, cursor)
                .map_err(|e| format!("cannot write {}: {e}", self.name.display()))?;
            self.is_saved = true;
        }
        if id == self.mark {
            self.passed.push((id, cursor.to_owned()));
        }
        if id <= self.mark {
            return Ok(());
        }
        let told = entry.to_json();
        if told.len() > self.most.min(ENTRY_MAX) {
            self.left_out += 1;
            return Ok(());
        }
        let sent = self.producer.send_as(id, told.as_bytes());
        sent.map_err(Why::Server)?;
        self.sent = Some((id, cursor.to_owned()));
        Ok(())
    }

    /// Has counting begin later, so that it is short, and what is no longer needed may be removed.
    fn move_when_due(&mut self) {
        self.move_origin();
        if self.moved_at.elapsed() >= MOVED_EVERY {
            // An older origin is as true, and counting from it takes longer.
            let _ = self.save_moved();
        }
    }

    /// Looks how far the origin may move.
    fn move_origin(&mut self) {
        let Some(settled) = self.producer.status().settled else {
            return;
        };
        let passed = self.passed.iter().rposition(|(id, _)| *id <= settled);
        if let Some(at) = passed {
            self.movable = self.passed.drain(..=at).next_back();
        }
    }

    /// Writes down where the origin has moved to.
    fn save_moved(&mut self) -> Result<(), String> {
        let Some((id, cursor)) = &self.movable else {
            return Ok(());
        };
        if *id > self.moved {
            self.servers.insert(self.server.to_owned(), *id);
            self.save(*id, cursor)
                .map_err(|e| format!("cannot write {}: {e}", self.name.display()))?;
            self.moved = *id;
            self.moved_at = Instant::now();
        }
        self.movable = None;
        Ok(())
    }

    fn save(&self, id: u64, cursor: &str) -> io::Result<()> {
        let origin = Origin {
            producer: self.producer_name.clone(),
            matches: self.matches.clone(),
            cursor: cursor.into(),
            id,
            server: Some(self.server.to_owned()),
            servers: self.servers.clone(),
        };
        let bytes = serde_json::to_vec(&origin).expect("it can be told in JSON");
        tidewire_ship::write_atomically(&self.name, &bytes)
    }
}
