//! The keeper of snapshots: makes one when it is asked for or due, counts it, cuts the log behind it.
//!
//! The one idea: it is a state machine that is driven by steps and given the time, as the log's writer.
//! A thread drives it in production, a test on a simulated disk.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire_log::disk::Disk;
use tidewire_log::{EmbeddedLog, Log, Now, Step, Ticket, Watch};

use super::file::SnapshotFile;
use super::format::{Header, PART, moved, name};
use super::load::{Found, positions};
use super::told::{Ended, Snapshots};
use crate::durable::KvLog;
use crate::store::{Effects, Store, Walk};

/// Steps of the walk in one of the keeper's, unless a block is full before: a fraction of a millisecond.
const STEPS: usize = 4;
/// Bytes that the smallest snapshot takes, about.
const LEAST: u64 = 4 << 10;
/// Until a snapshot that has failed is tried again without being asked for.
const AGAIN: Duration = Duration::from_secs(60);
/// How often it is looked whether the log has done what was asked for, if nobody says so.
const LOOK: Duration = Duration::from_millis(100);

/// Makes the snapshots of a store.
pub struct Keeper<D: Disk> {
    log: Arc<EmbeddedLog<D>>,
    kv_log: Arc<KvLog>,
    store: Arc<Store>,
    told: Arc<Snapshots>,
    state: State<D>,
    /// What the walk writes that nobody wants.
    waste: Vec<u8>,
    /// Not before that without being asked for.
    pause_until: Duration,
    _watch: Watch,
}

impl<D: Disk> fmt::Debug for Keeper<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

/// A snapshot from its beginning.
#[derive(Clone, Copy, Debug)]
struct Begun {
    position: u64,
    /// Of the last unit that is in it.
    ticket: u64,
    /// Units of the log that it stands for, and their bytes.
    units: u64,
    logged: u64,
    at: Duration,
}

enum State<D: Disk> {
    Idle,
    Walking {
        begun: Begun,
        walk: Walk,
        file: SnapshotFile<D::File>,
    },
    /// It has failed, but the walk goes on to its end, after which all entries are of one epoch.
    Wasting {
        walk: Walk,
    },
    /// It is durable, and counts as soon as what it holds is committed.
    Waiting {
        begun: Begun,
        size: u64,
    },
}

/// What was attempted, and why it failed.
struct Failed(String);

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Failed {
    move |error| Failed(format!("{what}: {error}"))
}

impl<D: Disk> Keeper<D> {
    /// For a store that was opened from `log`. `found` is what [`open`](crate::durable::open) has found.
    #[must_use]
    pub fn new(
        log: Arc<EmbeddedLog<D>>,
        kv_log: Arc<KvLog>,
        store: Arc<Store>,
        found: Option<Found>,
    ) -> Keeper<D> {
        let told = kv_log.snapshots().clone();
        if let Some(found) = found {
            let ended = Ended {
                position: found.header.position,
                size: found.size,
            };
            told.lock().found(found.header.began_ms, ended);
        }
        let theirs = told.clone();
        let _watch = log.watch(Arc::new(move || {
            if theirs.awaits_log.load(Relaxed) {
                theirs.work.notify_all();
            }
        }));
        let keeper = Keeper {
            log,
            kv_log,
            store,
            told,
            state: State::Idle,
            waste: Vec::new(),
            pause_until: Duration::ZERO,
            _watch,
        };
        if let Some(found) = found {
            // Whoever made it may have been killed before it has done so.
            match keeper.name_anew(found.header.position) {
                Ok(()) => keeper.cut(found.header.position),
                Err(Failed(why)) => tracing::error!(%why, "the log is not cut behind its snapshot"),
            }
        }
        let parts = keeper.log.disk().list().unwrap_or_default();
        if parts.iter().any(|name| name == PART) {
            let _ = keeper.log.disk().remove(PART);
        }
        keeper
    }

    /// Asks and tells.
    #[must_use]
    pub fn told(&self) -> &Arc<Snapshots> {
        &self.told
    }

    /// Does one piece of work: walks a bit, writes a block, syncs. Blocks on the disk.
    pub fn step(&mut self, now: Now) -> Step {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => self.begin_if_due(now),
            State::Walking { begun, walk, file } => self.walk(begun, walk, file, now),
            State::Wasting { walk } => self.waste(walk),
            State::Waiting { begun, size } => self.wait(begun, size, now),
        }
    }

    /// Whether one is being made.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Whether there is time to leave the processor to others between steps: one is being made, and what was handed
    /// out before it changed will hold up nobody soon.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        let walks = matches!(self.state, State::Walking { .. } | State::Wasting { .. });
        walks && !self.store.is_half_handed_out()
    }

    /// Whether the log has grown so much that one is made without being asked for.
    fn is_due(&self) -> bool {
        let growth = self.told.growth();
        // And as much as it would write, so that what is written twice is not more than what is
        // written once.
        let size = self.told.lock().size;
        let logged = self.kv_log.logged();
        // When the disk is full, what is cut behind it is what the log goes on with.
        growth > 0 && logged > 0 && (logged >= growth.max(size) || self.kv_log.is_full())
    }

    /// Bytes that a snapshot is likely to take. It is made of what is in memory, which has room to grow and tables
    /// beside it, so it is mostly smaller. And it is made of the last one and what was logged since: what values have
    /// lost, or were given more than once, is too much in that, and only what a command makes of a few bytes (SETRANGE, COPY)
    /// is missing. Neither is a bound: the file takes more room while it is written, if there is some.
    fn expected(&self) -> u64 {
        let size = self.told.lock().size;
        let by_log = size.saturating_add(self.kv_log.logged());
        by_log.min(self.store.living_memory()).max(LEAST)
    }

    /// Why there is no snapshot: what it needs, and what there is.
    fn no_room(&self, expected: u64, spare: u64) -> Failed {
        let free = self.log.disk().free();
        let free = free.map_or_else(|| "too little is".to_owned(), |n| format!("{n} are"));
        let log = match spare {
            0 => String::new(),
            spare => format!(" and {spare} bytes for the log meanwhile"),
        };
        Failed(format!(
            "there is no room for a snapshot beside the last one: about {expected} bytes for it{log} have to be free, \
             and {free}. The log is not cut before: make room on the disk"
        ))
    }

    fn begin_if_due(&mut self, now: Now) -> Step {
        let asked = self.told.lock().is_scheduled();
        if !asked {
            if !self.is_due() {
                return Step::Idle;
            }
            if now.monotonic < self.pause_until {
                return Step::WaitUntil(self.pause_until);
            }
        }
        let now_ms = now.unix_us / 1000;
        self.told.lock().begin(now_ms);
        match self.begin(now) {
            Ok(state) => self.state = state,
            Err(why) => self.end(now.monotonic, now, Err(why)),
        }
        Step::Worked
    }

    /// Makes room first, so that nothing is disturbed when there is none.
    fn begin(&mut self, now: Now) -> Result<State<D>, Failed> {
        if self.kv_log.has_failed() {
            return Err(Failed("the log has failed".into()));
        }
        let disk = self.log.disk();
        let mut header = Header {
            log: self.log.identity(),
            position: 0,
            began_ms: now.unix_us / 1000,
            databases: 0,
        };
        let expected = self.expected();
        // The log has to go on meanwhile. One that takes nothing more as the disk is full is helped by the snapshot alone.
        let spare = match self.kv_log.is_full() {
            true => 0,
            false => self.kv_log.segment_bytes(),
        };
        let mut file = SnapshotFile::create(disk, expected, spare).map_err(|error| {
            if error.kind() == io::ErrorKind::StorageFull {
                self.no_room(expected, spare)
            } else {
                failed("making the file of the snapshot")(error)
            }
        })?;
        let (kv_log, store) = (&self.kv_log, &self.store);
        let begun = store.begin_epoch(|databases| {
            header.databases = databases;
            Begun {
                position: kv_log.position(),
                ticket: store.last_ticket(),
                units: kv_log.units(),
                logged: kv_log.logged(),
                at: now.monotonic,
            }
        });
        let Some(begun) = begun else {
            self.discard();
            return Err(Failed(
                "another snapshot is being made, or a script takes long".into(),
            ));
        };
        header.position = begun.position;
        let mistakes = kv_log.mistakes();
        if mistakes.makes(|mistakes| mistakes.cut_early) {
            self.cut(begun.position);
        }
        match file.begin(&header) {
            Ok(()) => Ok(State::Walking {
                begun,
                walk: Walk::default(),
                file,
            }),
            Err(error) => {
                let why = failed("writing the snapshot")(error);
                self.discard();
                self.end(begun.at, now, Err(why));
                Ok(State::Wasting {
                    walk: Walk::default(),
                })
            }
        }
    }

    fn walk(
        &mut self,
        begun: Begun,
        mut walk: Walk,
        mut file: SnapshotFile<D::File>,
        now: Now,
    ) -> Step {
        let mut more = true;
        for _ in 0..STEPS {
            more = self.store.walk(&mut walk, &mut file.items);
            if !more || file.is_full() {
                break;
            }
        }
        if let Err(error) = file.flush() {
            return self.fail(begun, walk, failed("writing the snapshot")(error), now);
        }
        self.told.lock().written = file.len();
        if more {
            self.state = State::Walking { begun, walk, file };
            return Step::Worked;
        }
        let keys = self.store.end_epoch(&walk);
        let finished = file.finish(keys).map_err(failed("syncing the snapshot"));
        match finished {
            Err(why) => {
                self.discard();
                self.end(begun.at, now, Err(why));
            }
            Ok(()) => {
                self.log.sync();
                let size = file.len();
                self.state = State::Waiting { begun, size };
            }
        }
        Step::Worked
    }

    /// Gives up, but not the walk.
    fn fail(&mut self, begun: Begun, walk: Walk, why: Failed, now: Now) -> Step {
        self.discard();
        self.end(begun.at, now, Err(why));
        self.state = State::Wasting { walk };
        Step::Worked
    }

    fn waste(&mut self, mut walk: Walk) -> Step {
        for _ in 0..STEPS {
            self.waste.clear();
            if !self.store.walk(&mut walk, &mut self.waste) {
                self.store.end_epoch(&walk);
                self.waste = Vec::new();
                return Step::Worked;
            }
        }
        self.state = State::Wasting { walk };
        Step::Worked
    }

    /// Counts the snapshot if everything in it is on the disk in the log as well: else a crash would take
    /// the log back behind what the snapshot has.
    fn wait(&mut self, begun: Begun, size: u64, now: Now) -> Step {
        let progress = self.log.progress();
        if progress.failure.is_some() || self.kv_log.has_failed() {
            self.told.awaits_log.store(false, Relaxed);
            self.discard();
            let why =
                Failed("the log has failed, so what is in memory may not be what counts".into());
            self.end(begun.at, now, Err(why));
            return Step::Worked;
        }
        let early = self
            .kv_log
            .mistakes()
            .makes(|mistakes| mistakes.count_early);
        let is_waiting = progress.durable < Ticket(begun.ticket) && !early;
        self.told.awaits_log.store(is_waiting, Relaxed);
        if is_waiting {
            self.state = State::Waiting { begun, size };
            return Step::WaitUntil(now.monotonic + LOOK);
        }
        let counted = self.count(begun).map(|()| Ended {
            position: begun.position,
            size,
        });
        if counted.is_ok() {
            self.kv_log.cut(begun.units, begun.logged);
            self.cut(begun.position);
        }
        self.end(begun.at, now, counted);
        Step::Worked
    }

    /// Gives it the name that counts.
    fn count(&self, begun: Begun) -> Result<(), Failed> {
        let disk = self.log.disk();
        if let Err(error) = disk.rename(PART, &name(begun.position)) {
            self.discard();
            return Err(failed("giving the snapshot its name")(error));
        }
        self.sync_names()?;
        if self.log.progress().failure.is_some() {
            // It may have had the answer that was meant for this.
            return Err(Failed("the log has failed".into()));
        }
        Ok(())
    }

    /// Makes the name of the snapshot that was found durable, by changing it: who gave it may have been killed
    /// before the directory was synced, or that has failed, and then a sync that comes later says nothing about it.
    fn name_anew(&self, position: u64) -> Result<(), Failed> {
        if self
            .kv_log
            .mistakes()
            .makes(|mistakes| mistakes.trust_names)
        {
            return Ok(());
        }
        let (disk, name, moved) = (self.log.disk(), name(position), moved(position));
        disk.rename(&name, &moved)
            .and_then(|()| disk.rename(&moved, &name))
            .map_err(failed("giving the snapshot its name anew"))?;
        self.sync_names()
    }

    fn sync_names(&self) -> Result<(), Failed> {
        self.log.disk().sync_directory().map_err(|error| {
            let why = format!("sync of the log's directory failed: {error}");
            // The log's own names are in doubt, too.
            self.log.fail(&why);
            Failed(why)
        })
    }

    /// Removes what a snapshot that counts stands for: older ones, and the log up to it.
    fn cut(&self, position: u64) {
        let disk = self.log.disk();
        for older in positions(disk).unwrap_or_default() {
            if older < position
                && let Err(error) = disk.remove(&name(older))
            {
                tracing::warn!(%error, snapshot = name(older), "an old snapshot cannot be removed");
            }
        }
        if let Some(stream) = self.kv_log.stream() {
            self.log.discard(stream, position);
        }
    }

    /// Removes what was written of one that does not count.
    fn discard(&self) {
        let _ = self.log.disk().remove(PART);
    }

    fn end(&mut self, began: Duration, now: Now, result: Result<Ended, Failed>) {
        let took = now.monotonic.saturating_sub(began);
        let mut status = self.told.lock();
        match &result {
            Ok(ended) => tracing::info!(
                position = ended.position,
                bytes = ended.size,
                seconds = took.as_secs_f64(),
                "snapshot made"
            ),
            Err(Failed(why)) => {
                self.pause_until = now.monotonic + AGAIN;
                tracing::error!(%why, "the snapshot has failed; the log goes on, and nothing is lost");
            }
        }
        let result = result.map_err(|Failed(why)| why.into());
        status.end(took, now.unix_us / 1000, result);
    }
}
