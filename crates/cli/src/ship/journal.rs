//! The journal, by its export format.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidewire_ingest::client::{Error, Producer, Producing};
use tidewire_ship::journal::{Entry, Origin, Parser};
use tidewire_ship::{StateDirectory, journal::ENTRY_MAX};

use super::Args;
use crate::exit::Failure;
use crate::send::{Watch, server};
use crate::signals::Signals;

/// Read at a time.
const CHUNK: usize = 64 << 10;
/// How often the origin is moved forward.
const MOVED_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let directory = args.state()?;
    // Its lock keeps others out; files have their own checkpoint in it.
    let (_state, _) =
        StateDirectory::open(&directory).map_err(|e| Failure::usage(e.to_string()))?;
    let name = directory.join("journal.json");
    let matches: Vec<String> = args
        .what
        .iter()
        .map(|what| what.to_string_lossy().into_owned())
        .collect();
    let origin = load(&name, &matches)?;
    let signals = || {
        Signals::catch()
            .map_err(|e| Failure::usage(format!("cannot catch SIGTERM and SIGINT: {e}")))
    };
    let ends = signals()?;
    let watch = Watch::new(signals()?);
    let producer_name = match &origin {
        Some(origin) => origin.producer.clone(),
        None => format!("{}:journal#{:016x}", args.prefix()?, fastrand::u64(..)),
    };
    let producing = Producing {
        producer: producer_name.clone(),
        sparse: true,
        ..args.producing()?
    };
    // The journal is read once, in order: one server at a time, the first that can be reached.
    let mut last = None;
    let to = args.to.iter().map(|name| server(name, &args.tls));
    let to = to.collect::<Result<Vec<_>, Failure>>()?;
    let producer = to.into_iter().find_map(|to| {
        let connected = Producer::connect(to, producing.clone(), args.persistence());
        connected.map_err(|e| last = Some(e)).ok()
    });
    let producer = producer.ok_or_else(|| {
        let why = last.map_or_else(String::new, |e| e.to_string());
        Failure::usage(format!("nothing was shipped: {why}"))
    })?;
    let mark = producer.status().settled.unwrap_or(0);
    if let Some(origin) = &origin
        && mark + 1 < origin.id
        && !args.accept_loss
    {
        return Err(Failure::wrong(format!(
            "the server had acknowledged entries up to {}, and has them only up to {mark} now: it has \
             lost messages, or is another server; --accept-loss goes on behind what was acknowledged",
            origin.id - 1
        )));
    }
    let mut source = Source::open(args, &matches, origin.as_ref())?;
    let mut shipping = Shipping {
        producer: &producer,
        name,
        matches,
        producer_name,
        must_begin: origin.as_ref().map(|origin| origin.cursor.clone()),
        may_skip: source.child.is_none(),
        accept_loss: args.accept_loss,
        next: origin.as_ref().map_or(1, |origin| origin.id),
        is_saved: origin.is_some(),
        moved: origin.as_ref().map_or(0, |origin| origin.id),
        moved_at: Instant::now(),
        mark,
        left_out: 0,
        sent: None,
        passed: Vec::new(),
        movable: None,
        most: producer.granted().payload_max as usize,
    };
    let done = watch.during(&producer, || {
        let read = shipping.read(&mut source, &ends);
        (read, producer.flush())
    });
    shipping.move_origin();
    let saved = shipping.save_moved();
    if let Some(child) = &mut source.child {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = producer.status();
    let left_out = match shipping.left_out {
        0 => String::new(),
        n => format!(", {n} entries left out because they are too large"),
    };
    let summary = format!("{} entries acknowledged{left_out}", status.acknowledged);
    if let Err(why) = saved {
        eprintln!("tidewire: {why}; what was shipped is counted from an older entry next time");
    }
    match done {
        (Ok(()), Ok(())) => {
            eprintln!("{summary}");
            Ok(())
        }
        (Err(why), _) => Err(Failure::wrong(format!("{why}; {summary}"))),
        (_, Err(e)) => Err(Failure::wrong(format!("{e}; {summary}"))),
    }
}

fn load(name: &Path, matches: &[String]) -> Result<Option<Origin>, Failure> {
    let shown = name.display();
    let bytes = match fs::read(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Failure::usage(format!("cannot read {shown}: {e}"))),
        Ok(bytes) => bytes,
    };
    let origin: Origin = serde_json::from_slice(&bytes).map_err(|e| {
        Failure::usage(format!(
            "{shown} is damaged: {e}; without it, the journal is shipped anew"
        ))
    })?;
    if origin.matches != matches {
        return Err(Failure::usage(format!(
            "{shown} was made for the entries {:?}, which were counted, and not for {matches:?}: use \
             another --state",
            origin.matches
        )));
    }
    Ok(Some(origin))
}

/// Where entries come from.
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
                .map_err(|e| Failure::usage(format!("cannot read standard input: {e}")))?;
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
            .map_err(|e| Failure::usage(format!("cannot run {}: {e}", args.journalctl)))?;
        let pipe = child.stdout.take().expect("it is piped").into();
        Ok(Source {
            child: Some(child),
            pipe,
        })
    }
}

struct Shipping<'a> {
    producer: &'a Producer,
    name: PathBuf,
    matches: Vec<String>,
    producer_name: String,
    /// The entry at which counting begins, until it was met.
    must_begin: Option<String>,
    /// There may be others before it.
    may_skip: bool,
    accept_loss: bool,
    /// The id of the next entry.
    next: u64,
    /// The origin is written down.
    is_saved: bool,
    /// The id at which it stands.
    moved: u64,
    /// When it was moved last.
    moved_at: Instant,
    /// What the server had.
    mark: u64,
    left_out: u64,
    /// The entry that was sent last of all that were read at once.
    sent: Option<(u64, String)>,
    /// Entries to which the origin may move when they are acknowledged; not more than what may be on its way.
    passed: Vec<(u64, String)>,
    /// The one to which it may move now.
    movable: Option<(u64, String)>,
    most: usize,
}

impl Shipping<'_> {
    fn read(&mut self, source: &mut Source, ends: &Signals) -> Result<(), String> {
        let mut parser = Parser::default();
        let mut bytes = vec![0; CHUNK];
        loop {
            let mut fds = [
                PollFd::new(&source.pipe, PollFlags::IN),
                PollFd::new(ends, PollFlags::IN),
            ];
            // What is acknowledged while nothing comes moves the origin as well.
            let is_owed = !self.passed.is_empty() || self.movable.is_some();
            let most = Timespec::try_from(MOVED_EVERY).expect("it is short");
            match poll(&mut fds, is_owed.then_some(&most)) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(format!("cannot wait for the journal: {e}")),
                Ok(0) => {
                    self.move_when_due();
                    continue;
                }
                Ok(_) if !fds[1].revents().is_empty() => return Ok(()),
                Ok(_) => {}
            }
            let n = match rustix::io::read(&source.pipe, &mut bytes) {
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(format!("cannot read the journal: {e}")),
                Ok(n) => n,
            };
            parser.push(&bytes[..n]);
            while let Some(entry) = parser.entry().map_err(|e| e.to_string())? {
                self.entry(&entry)?;
            }
            if n == 0
                && let Some(entry) = parser.end()
            {
                self.entry(&entry)?;
            }
            self.passed.extend(self.sent.take());
            if n == 0 {
                return self.ended(source);
            }
            self.move_when_due();
        }
    }

    fn ended(&self, source: &mut Source) -> Result<(), String> {
        if let Some(child) = &mut source.child {
            let status = child.wait().map_err(|e| e.to_string())?;
            if !status.success() {
                return Err(format!("what prints the journal ended with {status}"));
            }
        }
        match &self.must_begin {
            Some(cursor) => Err(format!(
                "the journal does not have the entry with the cursor {cursor}, behind which shipping goes \
                 on; feed the journal from there, or from before"
            )),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<(), String> {
        let cursor = entry.cursor().ok_or("an entry has no __CURSOR")?;
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
                ));
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
        sent.map_err(|e: Error| e.to_string())?;
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
        };
        let bytes = serde_json::to_vec(&origin).expect("it can be told in JSON");
        tidewire_ship::write_atomically(&self.name, &bytes)
    }
}
