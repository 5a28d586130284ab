//! What all connections of one run share: when to send, what was counted, what went wrong.

use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst,
};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidewire::LoopHandle;

use super::pattern::Pattern;
use super::run::Failure;
use crate::histogram::Latencies;

/// What connections are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Connect and wait for the others.
    Gathering,
    /// Send.
    Sending,
    /// Send nothing new; wait for what is outstanding.
    Ending,
}

/// One run.
pub(super) struct Stage {
    phase: AtomicU8,
    measuring: AtomicBool,
    opened: AtomicUsize,
    done: AtomicUsize,
    pub(super) pattern: Pattern,
    books: Mutex<Books>,
    news: Condvar,
}

#[derive(Default)]
struct Books {
    loops: Vec<LoopHandle<()>>,
    open: Vec<Arc<Tally>>,
    settled: Counts,
    latencies: Latencies,
    rounds: Vec<Round>,
    failure: Option<Failure>,
}

/// What was answered so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) bytes: u64,
}

/// The counts of one loop, its only writer.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Tally {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    fn add_to(&self, sum: &mut Counts) {
        sum.requests += self.requests.load(Relaxed);
        sum.bytes += self.bytes.load(Relaxed);
    }
}

/// One round of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Round {
    /// The connection, from 0.
    pub connection: u64,
    /// Messages sent and acknowledged.
    pub messages: u64,
    /// From the first send to the last acknowledgement.
    pub elapsed: Duration,
}

impl Stage {
    pub(super) fn new() -> Arc<Stage> {
        Arc::new(Stage {
            phase: AtomicU8::new(Phase::Gathering as u8),
            measuring: AtomicBool::new(false),
            opened: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            pattern: Pattern::new(),
            books: Mutex::default(),
            news: Condvar::new(),
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- For connections ----

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(SeqCst) {
            0 => Phase::Gathering,
            1 => Phase::Sending,
            _ => Phase::Ending,
        }
    }

    /// One more connection is established.
    pub(super) fn opened(&self) {
        self.opened.fetch_add(1, SeqCst);
        self.tell();
    }

    /// One more connection has sent all it had to, and all of it was answered.
    pub(super) fn done(&self) {
        self.done.fetch_add(1, SeqCst);
        self.tell();
    }

    pub(super) fn round(&self, round: Round) {
        self.books().rounds.push(round);
    }

    /// Something went wrong; only the first counts.
    pub(super) fn fail(&self, failure: Failure) {
        self.books().failure.get_or_insert(failure);
        self.news.notify_all();
    }

    fn tell(&self) {
        // Taking the lock once makes sure that a waiter does not miss it between look and wait.
        drop(self.books());
        self.news.notify_all();
    }

    // ---- For the run ----

    /// Moves on and tells every loop.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, SeqCst);
        for at in &self.books().loops {
            at.signal();
        }
    }

    pub(super) fn measure(&self, on: bool) {
        self.measuring.store(on, Relaxed);
    }

    pub(super) fn opened_count(&self) -> usize {
        self.opened.load(SeqCst)
    }

    pub(super) fn done_count(&self) -> usize {
        self.done.load(SeqCst)
    }

    pub(super) fn failed(&self) -> bool {
        self.books().failure.is_some()
    }

    /// Waits until `over` says so, something fails, or the time has come; whether `over` did.
    pub(super) fn wait_until(&self, deadline: Instant, over: impl Fn(&Stage) -> bool) -> bool {
        let mut books = self.books();
        loop {
            if over(self) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || books.failure.is_some() {
                return false;
            }
            let waited = self.news.wait_timeout(books, left);
            books = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let books = self.books();
        let mut sum = books.settled;
        for tally in &books.open {
            tally.add_to(&mut sum);
        }
        sum
    }

    pub(super) fn take_failure(&self) -> Option<Failure> {
        self.books().failure.take()
    }

    /// What was gathered; complete only when the loops have ended.
    pub(super) fn close(&self) -> (Latencies, Vec<Round>) {
        let mut books = self.books();
        (
            std::mem::take(&mut books.latencies),
            std::mem::take(&mut books.rounds),
        )
    }
}

/// A loop's own part of the stage.
pub(super) struct Desk {
    pub(super) stage: Arc<Stage>,
    tally: Arc<Tally>,
    latencies: Latencies,
}

impl Desk {
    pub(super) fn new(stage: &Arc<Stage>, at: LoopHandle<()>) -> Desk {
        let tally = Arc::new(Tally::default());
        let mut books = stage.books();
        books.loops.push(at);
        books.open.push(tally.clone());
        Desk {
            stage: stage.clone(),
            tally,
            latencies: Latencies::new(),
        }
    }

    /// Counts requests that were answered, or bytes that were taken.
    #[inline]
    pub(super) fn count(&mut self, requests: u64, bytes: u64) {
        // Not read-modify-writes: `&mut self` makes this the only writer.
        let tally = &self.tally;
        tally
            .requests
            .store(tally.requests.load(Relaxed) + requests, Relaxed);
        tally
            .bytes
            .store(tally.bytes.load(Relaxed) + bytes, Relaxed);
    }

    /// Whether the load has begun.
    #[inline]
    pub(super) fn is_sending(&self) -> bool {
        self.stage.phase() >= Phase::Sending
    }

    /// Whether latencies count now.
    #[inline]
    pub(super) fn measuring(&self) -> bool {
        self.stage.measuring.load(Relaxed)
    }

    #[inline]
    pub(super) fn latency(&mut self, took: Duration, requests: u64) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.record_many(ns, requests);
    }
}

impl Desk {
    /// The loop has ended: what it gathered goes to the others'.
    pub(super) fn close(self) {
        let mut books = self.stage.books();
        let books = &mut *books;
        self.tally.add_to(&mut books.settled);
        books.open.retain(|open| !Arc::ptr_eq(open, &self.tally));
        books.latencies.merge(&self.latencies);
    }
}
