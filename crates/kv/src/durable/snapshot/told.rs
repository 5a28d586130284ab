//! Requests for snapshots and facts about them, shared by the keeper and the loops.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The state of a store's snapshots.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// Start of the snapshot in progress, in milliseconds since 1970; 0 if none is.
    pub began_ms: u64,
    /// Bytes of the present snapshot that are written.
    pub written: u64,
    /// Time at which the last snapshot became valid, in milliseconds since 1970. For a snapshot that was
    /// found at the start: when it was begun. 0 if there is none.
    pub last_ms: u64,
    /// How long the last one took, whatever became of it.
    pub last_took: Option<Duration>,
    /// Bytes of the last complete snapshot; 0 if there is none.
    pub size: u64,
    /// The first record of the log that is not in the last one that counts.
    pub position: u64,
    /// How many were made since the start.
    pub made: u64,
    /// Why the last attempt failed, if it failed.
    pub failure: Option<Arc<str>>,
    /// Asked for, begun and ended: each number belongs to a requester.
    asked: u64,
    begun: u64,
    ended: u64,
    /// The last request whose snapshot is complete.
    kept: u64,
    stopping: bool,
}

impl Status {
    /// Whether one is being made.
    #[must_use]
    pub fn in_progress(&self) -> bool {
        self.began_ms != 0
    }

    /// Whether one was asked for that is not begun.
    #[must_use]
    pub fn is_scheduled(&self) -> bool {
        self.asked > self.begun
    }

    /// The result of the request with this number, which [`Snapshots::ask`] returned; `None` while
    /// the snapshot is not finished.
    #[must_use]
    pub fn outcome(&self, asked: u64) -> Option<bool> {
        (self.ended >= asked).then_some(self.kept >= asked)
    }
}

/// Snapshots of a store: asks for them, and tells of them.
#[derive(Debug, Default)]
pub struct Snapshots {
    status: Mutex<Status>,
    /// Signalled when the keeper may have work.
    pub(super) work: Condvar,
    /// The keeper waits for the log: no other thread need tell it that the log has moved.
    pub(super) awaits_log: AtomicBool,
    /// Bytes of the log from which one is made without being asked for; 0 for never.
    growth: AtomicU64,
    /// Bytes of units that are not in one yet.
    pub(in crate::durable) logged: AtomicU64,
    room: Room,
}

/// Estimates of the space that the next snapshot takes, and of the space that it frees.
#[derive(Debug)]
struct Room {
    /// Bytes of the last one; 0 for none.
    size: AtomicU64,
    /// Bytes that the keys take in memory, as of when so many bytes were logged.
    living: AtomicU64,
    living_at: AtomicU64,
    /// A [`Relief`].
    relief: AtomicU8,
    /// How often a change had to wait for one, as the disk was full.
    waits: AtomicU64,
}

impl Default for Room {
    fn default() -> Room {
        Room {
            size: AtomicU64::new(0),
            living: AtomicU64::new(u64::MAX),
            living_at: AtomicU64::new(0),
            relief: AtomicU8::new(Relief::None as u8),
            waits: AtomicU64::new(0),
        }
    }
}

/// Whether a log that has filled its disk goes on behind the next snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Relief {
    /// No snapshot is made, or a snapshot would not help.
    None,
    /// The state is about to be looked at.
    Open,
    /// A snapshot is being made that helps.
    Coming,
}

/// Bytes that the smallest snapshot takes, about.
const LEAST: u64 = 4 << 10;

impl Snapshots {
    pub(super) fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present state.
    #[must_use]
    pub fn status(&self) -> Status {
        self.lock().clone()
    }

    /// Asks for a snapshot that has everything done so far; for [`Status::outcome`].
    pub fn ask(&self) -> u64 {
        let mut status = self.lock();
        // One waiting snapshot serves all requesters.
        if status.asked == status.begun {
            status.asked += 1;
        }
        self.work.notify_all();
        status.asked
    }

    /// Bytes that the log may grow behind a snapshot before the next one is made; 0 for never.
    #[must_use]
    pub fn growth(&self) -> u64 {
        self.growth.load(Relaxed)
    }

    /// Changes that.
    pub fn set_growth(&self, bytes: u64) {
        self.growth.store(bytes, Relaxed);
        self.work.notify_all();
    }

    /// Whether a change that finds the disk full is to wait for the snapshot behind which the log
    /// goes on; wakes the keeper.
    pub(in crate::durable) fn relieves(&self) -> bool {
        let relieves = self.room.relief.load(Relaxed) != Relief::None as u8;
        if relieves {
            self.room.waits.fetch_add(1, Relaxed);
            self.nudge();
        }
        relieves
    }

    /// Whether changes wait for one that is being made because the disk is full.
    #[must_use]
    pub fn is_relieving(&self) -> bool {
        self.room.relief.load(Relaxed) == Relief::Coming as u8
    }

    /// How often a change had to wait for one, as the disk was full.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.room.waits.load(Relaxed)
    }

    pub(super) fn set_relief(&self, relief: Relief) {
        self.room.relief.store(relief as u8, Relaxed);
    }

    /// Bytes that the keys take in memory now, with room to grow and tables.
    pub(super) fn set_living(&self, bytes: u64) {
        self.room
            .living_at
            .store(self.logged.load(Relaxed), Relaxed);
        self.room.living.store(bytes, Relaxed);
    }

    pub(super) fn living(&self) -> u64 {
        self.room.living.load(Relaxed)
    }

    /// Bytes that a snapshot is likely to take at most: the smaller one of two estimates. The first estimate is the memory of
    /// the keys; a snapshot is mostly smaller, because memory has spare room and tables. The second is the last snapshot plus
    /// the bytes logged since. This sum counts removed and overwritten values too, and misses only values that a command
    /// makes of a few bytes (SETRANGE, COPY). Neither is a bound: the file takes more space while it is written, if there is
    /// some.
    pub(super) fn expected(&self) -> u64 {
        let (room, logged) = (&self.room, self.logged.load(Relaxed));
        let by_log = room.size.load(Relaxed).saturating_add(logged);
        let since = logged.saturating_sub(room.living_at.load(Relaxed));
        let by_memory = room.living.load(Relaxed).saturating_add(since);
        by_log.min(by_memory).max(LEAST)
    }

    pub(super) fn ended(&self, size: u64) {
        self.room.size.store(size, Relaxed);
    }

    /// Notes that `logged` bytes of the log are in a snapshot that counts.
    pub(in crate::durable) fn cut(&self, logged: u64) {
        self.logged.fetch_sub(logged, Relaxed);
        let at = &self.room.living_at;
        at.store(at.load(Relaxed).saturating_sub(logged), Relaxed);
    }

    /// Wakes the keeper.
    pub(in crate::durable) fn nudge(&self) {
        let _status = self.lock();
        self.work.notify_all();
    }
}

impl Status {
    pub(super) fn begin(&mut self, now_ms: u64) {
        self.begun = self.asked;
        self.began_ms = now_ms.max(1);
        self.written = 0;
    }

    /// The one that was begun has done nothing, and is begun again.
    pub(super) fn put_off(&mut self) {
        self.began_ms = 0;
    }

    pub(super) fn end(&mut self, took: Duration, now_ms: u64, result: Result<Ended, Arc<str>>) {
        self.ended = self.begun;
        self.last_took = Some(took);
        match result {
            Ok(ended) => {
                self.kept = self.begun;
                self.made += 1;
                self.last_ms = now_ms;
                self.size = ended.size;
                self.position = ended.position;
                self.failure = None;
            }
            Err(why) => self.failure = Some(why),
        }
        self.began_ms = 0;
    }

    pub(super) fn found(&mut self, began_ms: u64, ended: Ended) {
        self.last_ms = began_ms;
        self.size = ended.size;
        self.position = ended.position;
    }

    pub(super) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }
}

/// A snapshot that counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) position: u64,
    pub(super) size: u64,
}
