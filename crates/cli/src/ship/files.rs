//! Files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tidewire_ingest::client::Level;
use tidewire_ship::{
    Bell, Counts, Disk, FileSystem, From, Oversized, Pattern, Servers, Settings, Shipper,
    StateDirectory, Store, WatchedDisk,
};

use super::status::Status;
use super::{Args, sent};
use crate::descriptors;
use crate::exit::Failure;
use crate::send::server;
use crate::signals::Signals;
use crate::status_line::StatusLine;

/// How long what was sent may take to be acknowledged after a signal, with nothing acknowledged.
const GRACE: Duration = Duration::from_secs(10);
/// How often progress is shown, and signals are looked for.
const EVERY: Duration = Duration::from_millis(200);
/// How often the same trouble is told.
const REPEATED: Duration = Duration::from_secs(60);
/// Descriptors that are kept for what is neither a file nor a connection: directories that are listed, files that are compared, the state.
const KEPT_BACK: u64 = 64;
/// Least and most bytes that one file may have on its way.
const WINDOW: (u64, u64) = (256 << 10, 32 << 20);

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let patterns = args
        .what
        .iter()
        .map(|what| pattern(what, Path::new(what).is_dir()))
        .collect::<Result<Vec<_>, Failure>>()?;
    let exclude = args
        .exclude
        .iter()
        .map(|what| excluded(what))
        .collect::<Result<Vec<_>, Failure>>()?;
    let (state, checkpoint) =
        StateDirectory::open(&args.state()?).map_err(|e| Failure::failed(e.to_string()))?;
    let descriptors = descriptors::raise_limit();
    let signals = Signals::catch()
        .map_err(|e| Failure::failed(format!("cannot catch SIGTERM and SIGINT: {e}")))?;
    let is_few = patterns.iter().all(|what| matches!(what, Pattern::File(_)));
    let lanes = match is_few {
        true => patterns.len().min(args.connections.into()),
        false => args.connections.into(),
    };
    let (lanes, open) = shared_out(descriptors, lanes);
    let from = match (args.from, &args.sent_by) {
        (Some(super::From::Start), _) => From::Start,
        (Some(super::From::End), _) => From::End,
        (None, Some(name)) => sent::behind(args, name, &patterns, &checkpoint, &signals)?,
        (None, None) => {
            sent::check(args, (&patterns, &exclude), &checkpoint, &signals)?;
            From::Start
        }
    };
    let settings = Settings {
        producer: args.prefix()?,
        servers: args.to.clone(),
        stream: args.stream.clone(),
        poll: args.poll.0,
        once: args.once,
        from,
        ignore_older: args.ignore_older.map(|age| age.0),
        rotate_wait: args.rotate_wait.0,
        linger: args.linger.0,
        partial_after: args.partial_after.map(|after| after.0),
        multiline_start: args.multiline_start.clone(),
        multiline_after: args.multiline_after.0,
        oversized: match args.oversized {
            super::Oversized::Split => Oversized::Split,
            super::Oversized::Skip => Oversized::Skip,
            super::Oversized::Fail => Oversized::Fail,
        },
        lanes,
        files: args.files,
        open,
        held: args.held.0,
        give_up: args.give_up(),
        // A server that acknowledges messages as received may lose them.
        accept_loss: args.accept_loss || args.level == Level::Received,
        ..Settings::default()
    };
    let mut producing = args.producing()?;
    producing.buffer.bytes = (args.memory.0 / lanes as u64).clamp(WINDOW.0, WINDOW.1);
    let bell = Bell::default();
    let to = |name: &String| Ok((name.clone(), server(name, &args.tls)?));
    let to = args.to.iter().map(to).collect::<Result<_, Failure>>()?;
    let servers = Servers::new(to, producing, args.persistence(), bell.clone());
    let status = args.status.as_deref().map(Status::start).transpose()?;
    let around = Surroundings {
        sought: args
            .what
            .iter()
            .map(|what| what.display().to_string())
            .collect(),
        once: args.once,
        signals,
        bell: bell.clone(),
        poll: settings.poll,
        status,
    };
    let watched = (args.watches > 0).then(|| WatchedDisk::new(args.watches, bell));
    let patterns = (patterns, exclude);
    match watched {
        Some(Ok(disk)) => {
            let outside = (disk, servers, state);
            around.ship(Shipper::new(outside, settings, patterns, checkpoint))
        }
        unwatched => {
            if let Some(Err(e)) = unwatched {
                eprintln!(
                    "tidewire: directories are not watched: {e}. Changes are seen at the next look (see --poll)"
                );
            }
            let outside = (Disk, servers, state);
            around.ship(Shipper::new(outside, settings, patterns, checkpoint))
        }
    }
}

/// How many connections and open files there may be with so many descriptors. A connection has a socket and what wakes its thread.
fn shared_out(descriptors: Option<u64>, lanes: usize) -> (usize, usize) {
    let Some(descriptors) = descriptors else {
        return (lanes, usize::MAX);
    };
    let kept_back = KEPT_BACK.max(descriptors / 8).min(descriptors / 2);
    let rest = usize::try_from(descriptors - kept_back).unwrap_or(usize::MAX);
    let lanes = lanes.min(rest / 4).max(1);
    (lanes, rest.saturating_sub(2 * lanes).max(1))
}

/// The parts that shipping needs beside the shipper.
struct Surroundings {
    sought: Vec<String>,
    once: bool,
    signals: Signals,
    bell: Bell,
    poll: Duration,
    status: Option<Status>,
}

impl Surroundings {
    fn ship<F: FileSystem, S: Store>(self, shipper: Shipper<F, Servers, S>) -> Result<(), Failure> {
        let shipping = Shipping {
            shipper,
            around: self,
            began: Instant::now(),
            line: StatusLine::new(),
            told: None,
            has_told_unmatched: false,
        };
        shipping.run()
    }
}

fn pattern(what: &Path, is_directory: bool) -> Result<Pattern, Failure> {
    let absolute = std::path::absolute(what);
    let absolute =
        absolute.map_err(|e| Failure::failed(format!("cannot follow {}: {e}", what.display())))?;
    // A file that is there is meant, whatever its name looks like.
    if absolute.is_file() {
        return Ok(Pattern::File(absolute));
    }
    Pattern::new(&absolute, is_directory).map_err(|e| Failure::usage(e.to_string()))
}

/// A pattern without a directory holds in all directories.
fn excluded(what: &str) -> Result<Pattern, Failure> {
    let path = match what.contains('/') {
        true => std::path::absolute(what).unwrap_or_else(|_| PathBuf::from(what)),
        false => PathBuf::from(format!("/**/{what}")),
    };
    Pattern::new(&path, false).map_err(|e| Failure::usage(e.to_string()))
}

struct Shipping<F: FileSystem, S> {
    shipper: Shipper<F, Servers, S>,
    around: Surroundings,
    began: Instant,
    line: StatusLine,
    told: Option<(Instant, String)>,
    has_told_unmatched: bool,
}

impl<F: FileSystem, S: Store> Shipping<F, S> {
    fn run(mut self) -> Result<(), Failure> {
        let mut shown = Instant::now();
        // When a signal came, and how many were acknowledged when that last changed.
        let mut ending: Option<(Instant, u64)> = None;
        let ended = loop {
            let step = match self.shipper.step(self.began.elapsed()) {
                Ok(step) => step,
                Err(fatal) => break Err(fatal.0),
            };
            for event in self.shipper.events() {
                self.say(&event);
            }
            if step.complete {
                break Ok(());
            }
            if !step.busy {
                self.around.bell.wait(self.around.poll.min(EVERY));
            }
            if shown.elapsed() < EVERY {
                continue;
            }
            shown = Instant::now();
            let came = self.around.signals.wait(Some(Duration::from_micros(1)));
            let acknowledged = self.shipper.counts().acknowledged;
            ending = match ending {
                None if came == 0 => None,
                None => {
                    self.shipper.stop();
                    Some((shown, acknowledged))
                }
                Some((since, _)) if came > 0 || since.elapsed() > GRACE => {
                    break Err("stopped before everything sent was acknowledged".into());
                }
                Some((_, before)) if acknowledged > before => Some((shown, acknowledged)),
                waiting => waiting,
            };
            if ending.is_some() && self.shipper.is_settled() {
                break match self.around.once {
                    true => Err("stopped before all entries and lines were shipped".into()),
                    false => Ok(()),
                };
            }
            self.progress();
        };
        if !self.shipper.save(self.began.elapsed()) {
            for event in self.shipper.events() {
                self.say(&event);
            }
        }
        self.conclude(ended)
    }

    fn say(&mut self, what: &str) {
        self.line.wipe();
        eprintln!("tidewire: {}", tidewire_ingest::client::printable(what));
    }

    /// The arguments that match no file.
    fn unmatched(&self) -> String {
        let unmatched = self.shipper.unmatched().iter();
        let names: Vec<&str> = unmatched.map(|&at| &*self.around.sought[at]).collect();
        names.join(", ")
    }

    /// Logs once which arguments match no file. Without `--once` this is no error: a file may appear
    /// later.
    fn say_unmatched(&mut self) {
        let unmatched = self.unmatched();
        if self.around.once || self.has_told_unmatched || unmatched.is_empty() {
            return;
        }
        self.has_told_unmatched = true;
        self.say(&format!(
            "no such file yet: {unmatched}; waiting until it exists"
        ));
    }

    fn progress(&mut self) {
        self.say_unmatched();
        if let Some(status) = &self.around.status {
            status.show(&self.shipper, self.began.elapsed());
        }
        let trouble = self.shipper.trouble().map(str::to_owned);
        let is_new = |told: &(Instant, String)| {
            trouble.as_ref() != Some(&told.1) || told.0.elapsed() > REPEATED
        };
        if let Some(trouble) = &trouble
            && self.told.as_ref().is_none_or(is_new)
        {
            self.say(&format!("waiting for {}: {trouble}", self.shipper.server()));
            self.told = Some((Instant::now(), trouble.clone()));
        }
        if self.line.is_seen() {
            let counts = self.shipper.counts();
            let line = format!("{}, {} bytes behind", self.summary(&counts), counts.behind);
            self.line.show(&line);
        }
    }

    fn summary(&self, counts: &Counts) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(1e-9);
        let skipped = match counts.skipped {
            0 => String::new(),
            n => format!(", {n} lines left out because they are too long"),
        };
        format!(
            "{} messages acknowledged of {} files, {:.0} MB in {seconds:.1} s{skipped}",
            counts.acknowledged,
            counts.files,
            counts.bytes as f64 / 1e6,
        )
    }

    fn conclude(&mut self, ended: Result<(), String>) -> Result<(), Failure> {
        self.line.wipe();
        let counts = self.shipper.counts();
        let summary = self.summary(&counts);
        if let Err(why) = ended {
            return Err(Failure::wrong(format!("{why}; {summary}")));
        }
        if counts.unterminated > 0 {
            eprintln!(
                "tidewire: {} bytes at the ends of files are lines without an end and were not \
                 shipped; see --partial-after",
                counts.unterminated
            );
        }
        // A pattern that has never matched a file is a mistake; one whose files are away for a while is
        // not.
        let unmatched = self.unmatched();
        if !self.around.once && !unmatched.is_empty() && counts.files == 0 {
            eprintln!("tidewire: nothing was shipped: there is no file {unmatched}");
            return Ok(());
        }
        if self.around.once && !unmatched.is_empty() {
            let what = format!("there is no file {unmatched}");
            return Err(match counts.acknowledged == 0 && counts.files == 0 {
                true => Failure::failed(format!("nothing was shipped: {what}")),
                false => Failure::wrong(format!("{what}; {summary}")),
            });
        }
        let left_out = match self.around.once {
            true => counts.left_out,
            false => 0,
        };
        match (counts.failed + left_out, counts.losses) {
            (0, 0) => {
                eprintln!("{summary}");
                Ok(())
            }
            (failed, losses) => Err(Failure::wrong(format!(
                "{failed} files or directories could not be shipped whole, and {losses} times \
                 bytes were lost before they were read; {summary}"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_left_for_connections_and_the_state() {
        for (descriptors, lanes, expected) in [
            (None, 16, (16, usize::MAX)),
            (Some(1024), 16, (16, 864)),
            (Some(128), 16, (16, 32)),
            (Some(1024), 1024, (224, 448)),
            (Some(64), 16, (8, 16)),
            (Some(4), 16, (1, 1)),
        ] {
            assert_eq!(shared_out(descriptors, lanes), expected);
        }
    }
}
