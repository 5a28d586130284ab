//! The keeper of snapshots: makes a snapshot when it is asked for or due, renames it to its valid
//! name, and cuts the log behind it.
//!
//! The one idea: like the log's writer, the keeper is a state machine that is driven by steps and given
//! the time. A thread drives it in production, a test on a simulated disk.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidewire_log::disk::Disk;
use tidewire_log::{EmbeddedLog, Log, Now, Room, Step, Ticket, Watch};

use super::file::SnapshotFile;
use super::format::{Header, PART, moved, name};
use super::load::{Found, positions};
use super::told::{Ended, Relief, Snapshots};
use crate::durable::KvLog;
use crate::store::{Effects, Store, Walk};

/// Steps of the walk in one of the keeper's, unless a block is full before: a fraction of a millisecond.
const STEPS: usize = 4;
/// Until a snapshot that has failed is tried again without being asked for.
const AGAIN: Duration = Duration::from_secs(60);
/// Until one is tried again that could not begin because a script keeps keys.
const KEPT: Duration = Duration::from_millis(5);
/// Pause where there was no room for the snapshot, or where it has not helped a log without room.
const SOON: Duration = Duration::from_secs(1);
/// How often, and for how long at most, it is looked whether the log has given the room that it holds for what makes room.
const BORROWS: Duration = Duration::from_millis(10);
const BORROWS_MAX: Duration = Duration::from_secs(1);
/// Between two lines about a disk that is full.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// How often the keeper checks whether the log has carried out a request, if no signal says so.
const LOOK: Duration = Duration::from_millis(100);

/// Makes the snapshots of a store.
pub struct Keeper<D: Disk> {
    log: Arc<EmbeddedLog<D>>,
    kv_log: Arc<KvLog>,
    store: Arc<Store>,
    told: Arc<Snapshots>,
    state: State<D>,
    /// Output of the walk that is not needed.
    waste: Vec<u8>,
    /// Not before that without being asked for.
    pause_until: Duration,
    /// Bytes that were logged when the last snapshot that should free log space ended; it is not
    /// known yet whether it has freed any.
    relieved: Option<u64>,
    /// Changes that had waited when the snapshot that is being made was begun.
    waits: u64,
    /// Bytes of the last snapshot, and of the keys in memory when it was begun.
    last: Option<(u64, u64)>,
    /// When a full disk was last reported; `None` while the disk is not full.
    told_full: Option<Duration>,
    /// When the log's reserve was lent to the snapshot in progress; `None` while it is not lent.
    lent_at: Option<Duration>,
    /// Until when changes wait for the log to hold again what it had lent.
    owed_until: Duration,
    _watch: Watch,
}

impl<D: Disk> fmt::Debug for Keeper<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").finish_non_exhaustive()
    }
}

/// A snapshot that is being written.
#[derive(Clone, Copy, Debug)]
struct Begun {
    position: u64,
    /// Ticket of the last unit in the snapshot.
    ticket: u64,
    /// Units of the log that it stands for, and their bytes.
    units: u64,
    logged: u64,
    /// Bytes of the keys in memory.
    living: u64,
    at: Duration,
}

/// Whether a snapshot is made without being asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    No,
    /// The log has grown.
    Grown,
    /// The log has no room, and has it behind a snapshot.
    Relieves,
    /// The log has no room, and a snapshot does not help, or there is none for that either.
    Hopeless,
}

enum State<D: Disk> {
    Idle,
    Walking {
        begun: Begun,
        walk: Walk,
        file: SnapshotFile<D::File>,
    },
    /// The snapshot has failed, but the walk goes on to its end, after which all entries are of one
    /// epoch.
    Wasting {
        walk: Walk,
    },
    /// The snapshot is durable, and counts as soon as what it holds is committed.
    Waiting {
        begun: Begun,
        size: u64,
    },
}

/// An attempt that failed, and why.
struct Failed(String);

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> Failed {
    move |error| Failed(format!("{what}: {error}"))
}

impl<D: Disk> Keeper<D> {
    /// Makes the keeper of a store that was opened from `log`. `found` is the snapshot that
    /// [`open`](crate::durable::open) has found.
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
            told.ended(found.size);
        }
        told.set_relief(Relief::Open);
        let room = told.clone();
        log.leave_free(move || room.expected());
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
            relieved: None,
            waits: 0,
            last: None,
            told_full: None,
            lent_at: None,
            owed_until: Duration::ZERO,
            _watch,
        };
        if let Some(found) = found {
            // The process that made the snapshot may have been killed before it did so.
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

    /// Whether the thread may leave the processor to others between steps: a snapshot is in
    /// progress, values that were handed out will not soon delay a command, and the log does not
    /// need space.
    #[must_use]
    pub fn may_rest(&self) -> bool {
        let walks = matches!(self.state, State::Walking { .. } | State::Wasting { .. });
        walks && !self.store.is_half_handed_out() && !self.told.is_relieving()
    }

    /// Whether one is to be made without being asked for.
    fn due(&self, room: Room) -> Due {
        let growth = self.told.growth();
        let (logged, size) = (self.kv_log.logged(), self.told.lock().size);
        let may_be = growth > 0 && logged > 0;
        // The log must also have grown by the size of a snapshot, so that at most half of all
        // writes are snapshots.
        let has_grown = logged >= growth.max(size);
        match room {
            Room::Enough | Room::Unknown if may_be && has_grown => Due::Grown,
            Room::Enough | Room::Unknown => Due::No,
            // Behind the new snapshot the log can be cut, and goes on in the freed space: so much space that a snapshot is
            // worth it, or all the space that is missing.
            Room::Ending | Room::Short if may_be && self.is_worth_it(room, logged, size) => {
                match self.has_room() {
                    true => Due::Relieves,
                    false => Due::Hopeless,
                }
            }
            Room::Short => Due::Hopeless,
            Room::Ending => Due::No,
        }
    }

    fn is_worth_it(&self, room: Room, logged: u64, size: u64) -> bool {
        let segment = self.kv_log.segment_bytes();
        // Removals have used up what was held for them: without a snapshot nothing more can be removed.
        let is_used_up = room == Room::Short && self.log.reserve_bytes() == 0;
        if logged >= segment / 2 || is_used_up {
            return true;
        }
        let Some(free) = self.log.disk().free().filter(|_| room == Room::Short) else {
            return false;
        };
        // By what the log goes by when it looks again.
        let likely = self.likely();
        let cut = self.log.usage().used_bytes.saturating_sub(segment);
        let then = (free + size + cut).saturating_sub(likely);
        then >= likely + 2 * segment
    }

    /// The likely size of a snapshot of the present keys, if they pack as well as in the last one;
    /// bytes.
    fn likely(&self) -> u64 {
        let expected = self.told.expected();
        let (Some((size, then)), Some(now)) = (self.last, self.store.living_memory_at_once())
        else {
            return expected;
        };
        let likely = u128::from(size) * u128::from(now) / u128::from(then.max(1));
        let likely = u64::try_from(likely).unwrap_or(u64::MAX);
        // The estimate is raised a little, because it is no bound.
        expected.min(likely.saturating_add(likely / 16 + (64 << 10)))
    }

    /// Whether there is room for a snapshot, with what the log holds for what makes room.
    fn has_room(&self) -> bool {
        let free = self.log.disk().free();
        let held = self.log.reserve_bytes();
        free.is_none_or(|free| free.saturating_add(held) >= self.likely())
    }

    /// Whether room is awaited that the log holds for what makes room, without which there is too little for a snapshot.
    fn borrows(&mut self, now: Duration) -> bool {
        let free = self.log.disk().free();
        let is_enough = free.is_none_or(|free| free >= self.likely());
        if is_enough || !self.has_room() {
            return false;
        }
        match self.lent_at {
            // The promised room is not used: the snapshot is tried all the same, and reports the room that it
            // needs.
            Some(since) => now < since + BORROWS_MAX,
            None => {
                self.lent_at = Some(now);
                self.log.lend_reserve();
                true
            }
        }
    }

    /// Has the log reserve the bytes again that it has lent.
    fn give_back(&mut self, now: Duration) {
        if self.lent_at.take().is_some() {
            self.owed_until = now + BORROWS_MAX;
            self.log.hold_reserve();
        }
    }

    /// Logs, now and then, how much space the log needs.
    fn tell_full(&mut self, now: Duration) {
        if self.told_full.is_some_and(|told| now < told + TOLD_AGAIN) {
            return;
        }
        self.told_full = Some(now);
        let free = self.log.disk().free().unwrap_or(0);
        let (snapshot, segment) = (self.told.expected(), self.kv_log.segment_bytes());
        tracing::warn!(
            free,
            snapshot,
            log = 2 * segment,
            keys = self.told.living(),
            "the disk of the key-value store is full: changes that make it larger are refused. To go on, about so many bytes have to \
             be free for the next snapshot and for the log; removals (DEL, UNLINK, FLUSHALL, EXPIRE) are taken: remove keys or \
             make room on the disk"
        );
    }

    /// Why a snapshot has no room: the bytes that it needs, and the free bytes.
    fn no_room(&self, expected: u64) -> Failed {
        let free = self.log.disk().free();
        let free = free.map_or_else(|| "too little is".to_owned(), |n| format!("{n} are"));
        // A log that takes nothing more is helped by the snapshot alone.
        let log = match self.log.room() {
            Room::Short => String::new(),
            _ => format!(
                " and {} bytes for the log meanwhile",
                self.kv_log.segment_bytes()
            ),
        };
        Failed(format!(
            "there is no room for a snapshot beside the last one: about {expected} bytes for it{log} have to be free, \
             and {free}. The log is not cut before: make room on the disk"
        ))
    }

    fn begin_if_due(&mut self, now: Now) -> Step {
        if let Some(living) = self.store.living_memory_at_once() {
            self.told.set_living(living);
        }
        let asked = self.told.lock().is_scheduled();
        let room = self.log.room();
        if room == Room::Unknown && !asked {
            // The log's writer is about to say how much room there is.
            self.told.awaits_log.store(true, Relaxed);
            return Step::WaitUntil(now.monotonic + LOOK);
        }
        self.told.awaits_log.store(false, Relaxed);
        if let Some(logged) = self.relieved
            && (room != Room::Short || self.kv_log.logged() > logged)
        {
            (self.relieved, self.pause_until) = (None, Duration::ZERO);
        }
        // A large change finds no room where small ones still do: it waits for what helps it, and for nothing else.
        let room = match room {
            Room::Ending if self.told.waits() > self.waits => Room::Short,
            room => room,
        };
        let mut due = self.due(room);
        let pauses = now.monotonic < self.pause_until;
        if pauses && due == Due::Relieves && room == Room::Short {
            due = Due::Hopeless;
        }
        if !asked && due != Due::Relieves {
            self.give_back(now.monotonic);
        }
        if due == Due::Hopeless {
            self.tell_full(now.monotonic);
        } else if room != Room::Short {
            self.told_full = None;
        }
        self.told.set_relief(match due {
            // Removals wait for the space that is about to be reserved for them again.
            Due::Hopeless if self.log.is_reserve_owed() && now.monotonic < self.owed_until => {
                Relief::Open
            }
            Due::Hopeless => Relief::None,
            Due::Relieves if room == Room::Short => Relief::Coming,
            Due::No | Due::Grown | Due::Relieves => Relief::Open,
        });
        self.waits = self.told.waits();
        if !asked {
            match due {
                Due::No => return Step::Idle,
                Due::Hopeless => return Step::WaitUntil(now.monotonic + LOOK),
                Due::Grown | Due::Relieves if pauses => {
                    return Step::WaitUntil(self.pause_until);
                }
                Due::Grown | Due::Relieves => {}
            }
        }
        if room == Room::Short && self.has_room() {
            self.told.set_relief(Relief::Coming);
        }
        if self.borrows(now.monotonic) {
            return Step::WaitUntil(now.monotonic + BORROWS);
        }
        let now_ms = now.unix_us / 1000;
        self.told.lock().begin(now_ms);
        match self.begin(now) {
            Ok(Some(state)) => self.state = state,
            // A script keeps keys for a while. That is no failure: what waits for the snapshot goes on waiting.
            Ok(None) if !asked => {
                self.told.lock().put_off();
                return Step::WaitUntil(now.monotonic + KEPT);
            }
            Ok(None) => {
                let why = "another snapshot is being made, or a script takes long";
                self.end(now.monotonic, now, Err(Failed(why.into())));
            }
            Err(why) => self.end(now.monotonic, now, Err(why)),
        }
        Step::Worked
    }

    /// Makes room first, so that nothing is disturbed when there is none.
    fn begin(&mut self, now: Now) -> Result<Option<State<D>>, Failed> {
        if self.kv_log.has_failed() {
            return Err(Failed("the log has failed".into()));
        }
        let mut header = Header {
            log: self.log.identity(),
            position: 0,
            began_ms: now.unix_us / 1000,
            databases: 0,
        };
        let mut file = self.file()?;
        let living = self.store.living_memory();
        let (kv_log, store) = (&self.kv_log, &self.store);
        let begun = store.begin_epoch(|databases| {
            header.databases = databases;
            Begun {
                position: kv_log.position(),
                ticket: store.last_ticket(),
                units: kv_log.units(),
                logged: kv_log.logged(),
                living,
                at: now.monotonic,
            }
        });
        let Some(begun) = begun else {
            self.discard();
            return Ok(None);
        };
        header.position = begun.position;
        let mistakes = kv_log.mistakes();
        if mistakes.makes(|mistakes| mistakes.cut_early) {
            self.cut(begun.position);
        }
        match file.begin(&header) {
            Ok(()) => Ok(Some(State::Walking {
                begun,
                walk: Walk::default(),
                file,
            })),
            Err(error) => {
                let why = failed("writing the snapshot")(error);
                self.discard();
                self.end(begun.at, now, Err(why));
                Ok(Some(State::Wasting {
                    walk: Walk::default(),
                }))
            }
        }
    }

    /// Makes the file, with room for what is expected; the log has to go on meanwhile, if there is so much, and waits where there
    /// is not.
    fn file(&mut self) -> Result<SnapshotFile<D::File>, Failed> {
        let (expected, likely) = (self.told.expected(), self.likely());
        let beside = self.kv_log.segment_bytes();
        let tries = [(expected, beside), (expected, 0), (likely, 0)];
        for (bytes, spare) in tries {
            match SnapshotFile::create(self.log.disk(), bytes, spare) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
                made => return made.map_err(failed("making the file of the snapshot")),
            }
        }
        Err(self.no_room(expected))
    }

    fn walk(
        &mut self,
        begun: Begun,
        mut walk: Walk,
        mut file: SnapshotFile<D::File>,
        now: Now,
    ) -> Step {
        if self.told.waits() > self.waits {
            // Changes wait for the relief by now.
            self.told.set_relief(Relief::Coming);
        }
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

    /// Gives the snapshot up, but not the walk.
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
            let why = Failed(
                "the log has failed, so the memory may hold changes that were not committed".into(),
            );
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
            self.last = Some((size, begun.living));
            self.told.ended(size);
            self.kv_log.cut(begun.units, begun.logged);
            self.cut(begun.position);
        }
        self.end(begun.at, now, counted);
        Step::Worked
    }

    /// Renames the finished snapshot, so that it counts.
    fn count(&self, begun: Begun) -> Result<(), Failed> {
        let disk = self.log.disk();
        if let Err(error) = disk.rename(PART, &name(begun.position)) {
            self.discard();
            return Err(failed("giving the snapshot its name")(error));
        }
        self.sync_names()?;
        if self.log.progress().failure.is_some() {
            // The other waiter may have received the answer that was meant for this one.
            return Err(Failed("the log has failed".into()));
        }
        Ok(())
    }

    /// Makes the name of the found snapshot durable, by renaming the file. The process that gave
    /// the snapshot its name may have been killed before the directory was synced, or the sync has
    /// failed; a later sync would not report that.
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
            .map_err(failed("giving the snapshot its name again"))?;
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

    /// Removes what a valid snapshot replaces: older snapshots, and the log up to it.
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
        self.log.look_for_room();
    }

    /// Removes the file of a snapshot that does not count.
    fn discard(&self) {
        let _ = self.log.disk().remove(PART);
    }

    fn end(&mut self, began: Duration, now: Now, result: Result<Ended, Failed>) {
        let took = now.monotonic.saturating_sub(began);
        if self.told.is_relieving() && result.is_ok() {
            // A snapshot that does not help is not made over and over.
            self.relieved = Some(self.kv_log.logged());
            self.pause_until = now.monotonic + (4 * took).clamp(SOON, AGAIN);
        }
        self.give_back(now.monotonic);
        self.log.look_for_room();
        let mut status = self.told.lock();
        match &result {
            Ok(ended) => tracing::info!(
                position = ended.position,
                bytes = ended.size,
                seconds = took.as_secs_f64(),
                "snapshot made"
            ),
            Err(Failed(why)) => {
                self.pause_until = now.monotonic
                    + if self.told.is_relieving() {
                        SOON
                    } else {
                        AGAIN
                    };
                tracing::error!(%why, "the snapshot has failed; the log goes on, and no change is lost");
            }
        }
        let result = result.map_err(|Failed(why)| why.into());
        status.end(took, now.unix_us / 1000, result);
    }
}
