//! State that all connections of one run share: when to send, counts, failures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{self, Duration};

use serde::{Deserialize, Serialize};
use tidewire::{Instant, LoopHandle};

use super::arrivals::Arrivals;
use super::failure::Failure;
use super::findings::{Findings, Moved};
use super::pattern::Pattern;
use super::rounds::Rounds;
use crate::histogram::Latencies;

/// The phase of a run, which says what connections do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Connect, and wait for the other connections.
    Gathering,
    /// Send.
    Sending,
    /// Send no new message; wait for the outstanding replies.
    Ending,
}

/// One run.
pub(super) struct Stage {
    phase: AtomicU8,
    /// The measured time, in nanoseconds of the clock that loops have; `u64::MAX` has not come.
    measured_from: AtomicU64,
    measured_until: AtomicU64,
    pub(super) arrivals: Arrivals,
    opened: AtomicUsize,
    done: AtomicUsize,
    /// The places that are between two connections, and when the request of the next one is due.
    between: Mutex<BTreeMap<u64, Instant>>,
    pub(super) pattern: Pattern,
    /// How often loops were asked to show what they have taken so far.
    looks: AtomicU64,
    books: Mutex<Books>,
    news: Condvar,
    /// Where messages are sent in rounds that the caller opens.
    rounds: Option<Rounds>,
}

#[derive(Default)]
struct Books {
    loops: Vec<LoopHandle<()>>,
    open: Vec<Arc<Tally>>,
    /// The latencies that each loop has shown last.
    shown: Vec<(Arc<Tally>, Latencies)>,
    settled: Counts,
    taken: Taken,
    rounds: Vec<Round>,
    failure: Option<Failure>,
}

/// Counts of answered messages.
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
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// The connection, from 0.
    pub connection: u64,
    /// Messages sent and acknowledged.
    pub messages: u64,
    /// From the first send to the last acknowledgement.
    pub elapsed: Duration,
}

impl Stage {
    pub(super) fn new(arrivals: Arrivals) -> Arc<Stage> {
        Stage::with(arrivals, None)
    }

    /// A run whose messages are sent in rounds.
    pub(super) fn in_rounds() -> Arc<Stage> {
        Stage::with(Arrivals::Closed, Some(Rounds::default()))
    }

    fn with(arrivals: Arrivals, rounds: Option<Rounds>) -> Arc<Stage> {
        Arc::new(Stage {
            phase: AtomicU8::new(Phase::Gathering as u8),
            measured_from: AtomicU64::new(u64::MAX),
            measured_until: AtomicU64::new(u64::MAX),
            arrivals,
            opened: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            between: Mutex::default(),
            pattern: Pattern::new(),
            looks: AtomicU64::new(0),
            books: Mutex::default(),
            news: Condvar::new(),
            rounds,
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

    /// One more connection has sent all its messages, and all were answered.
    pub(super) fn done(&self) {
        self.done.fetch_add(1, SeqCst);
        self.tell();
    }

    /// A connection of this place will follow an ended one, for a request that is due at `due`.
    pub(super) fn asleep(&self, place: u64, due: Instant) {
        self.between().insert(place, due);
        self.tell();
    }

    /// The connection that was to follow is there.
    pub(super) fn awake(&self, place: u64) {
        self.between().remove(&place);
    }

    fn between(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        self.between.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The rounds, where messages are sent in rounds.
    #[inline]
    pub(super) fn rounds(&self) -> Option<&Rounds> {
        self.rounds.as_ref()
    }

    /// All messages of one connection are answered.
    #[inline]
    pub(super) fn all_answered(&self) {
        if let Some(rounds) = &self.rounds {
            rounds.answered();
            self.tell();
        }
    }

    /// Whether a connection that last sent in round `last` may send: always, unless messages are sent in rounds.
    #[inline]
    pub(super) fn may_send(&self, last: &mut u64) -> bool {
        let Some(rounds) = &self.rounds else {
            return true;
        };
        let begins = rounds.begin(last);
        if begins && rounds.is_awaited() {
            self.tell();
        }
        begins
    }

    // ---- For the run ----

    /// Wakes every loop; how many there are.
    pub(super) fn signal(&self) -> usize {
        let books = self.books();
        for at in &books.loops {
            at.signal();
        }
        books.loops.len()
    }

    /// Moves on and tells every loop.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, SeqCst);
        for at in &self.books().loops {
            at.signal();
        }
    }

    /// Asks every loop to report its latencies; returns the reports to the previous request.
    pub(super) fn look(&self) -> Latencies {
        self.looks.fetch_add(1, SeqCst);
        let books = self.books();
        let mut all = Latencies::new();
        for (_, latencies) in &books.shown {
            all.merge(latencies);
        }
        for at in &books.loops {
            at.signal();
        }
        all
    }

    /// Sets when the measured time begins or ends.
    pub(super) fn measure_from(&self, at: Instant) {
        self.measured_from.store(at.as_nanos(), SeqCst);
    }

    pub(super) fn measure_until(&self, at: Instant) {
        self.measured_until.store(at.as_nanos(), SeqCst);
    }

    /// Places that send nothing and wait for nothing: done for good, or between two connections of
    /// which the next would come too late to be measured. A message that is due before the end is
    /// still sent, or counted as unsent, by the next connection.
    pub(super) fn settled_count(&self) -> usize {
        let until = self.measured_until.load(Relaxed);
        let late = |due: &&Instant| until == u64::MAX || due.as_nanos() >= until;
        self.done_count() + self.between().values().filter(late).count()
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
    pub(super) fn wait_until(
        &self,
        deadline: time::Instant,
        over: impl Fn(&Stage) -> bool,
    ) -> bool {
        let mut books = self.books();
        loop {
            if over(self) {
                return true;
            }
            let left = deadline.saturating_duration_since(time::Instant::now());
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

    /// Everything that was gathered; complete only when the loops have ended.
    pub(super) fn close(&self) -> (Taken, Vec<Round>) {
        let mut books = self.books();
        (
            std::mem::take(&mut books.taken),
            std::mem::take(&mut books.rounds),
        )
    }
}

/// A loop's own part of the stage.
pub(super) struct Desk {
    pub(super) stage: Arc<Stage>,
    tally: Arc<Tally>,
    taken: Taken,
    /// The looks at the latencies that were answered.
    looks: u64,
    /// The phase that connections were told last.
    told: Phase,
    /// When a reply last arrived during the measurement.
    answered: Instant,
    /// The round that connections were told of last, and the question about output that was answered last.
    round: u64,
    asked: u64,
}

/// The times that were taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Taken {
    /// From the send to the reply.
    pub(super) latencies: Latencies,
    /// The state of an open-loop load; large, one for each loop.
    pub(super) scheduled: Option<Box<Scheduled>>,
    /// Other findings.
    pub(super) findings: Findings,
}

/// The times of messages that are sent by the clock.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Scheduled {
    /// Latency from the time at which a message was to be sent to its reply; for messages not sent,
    /// to the end.
    pub(super) latencies: Latencies,
    /// From the time at which they could have been sent to the send.
    pub(super) slip: Latencies,
    /// Messages that were due and not sent when the measured time was over.
    pub(super) unsent: u64,
}

impl Taken {
    pub(super) fn merge(&mut self, other: &Taken) {
        self.latencies.merge(&other.latencies);
        self.findings.merge(&other.findings);
        if let Some(more) = &other.scheduled {
            let scheduled = self.scheduled.get_or_insert_default();
            scheduled.latencies.merge(&more.latencies);
            scheduled.slip.merge(&more.slip);
            scheduled.unsent += more.unsent;
        }
    }
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
            taken: Taken {
                latencies: Latencies::new(),
                scheduled: stage.arrivals.rate().map(|_| Box::default()),
                findings: Findings::default(),
            },
            answered: Instant::from_nanos(0),
            looks: 0,
            told: Phase::Gathering,
            round: 0,
            asked: 0,
        }
    }

    /// Whether connections were not told yet what to do now; from now on they count as told.
    pub(super) fn is_news(&mut self) -> bool {
        let phase = self.stage.phase();
        std::mem::replace(&mut self.told, phase) != phase
    }

    /// Whether a round was opened that connections have not been told of yet; from now on they have. A question whether the
    /// output of earlier turns is with the kernel is answered: by now it is.
    pub(super) fn is_new_round(&mut self) -> bool {
        let Some(rounds) = self.stage.rounds() else {
            return false;
        };
        let (asked, round) = (rounds.asked(), rounds.number());
        if std::mem::replace(&mut self.asked, asked) != asked {
            rounds.flushed();
            self.stage.tell();
        }
        std::mem::replace(&mut self.round, round) != round
    }

    /// Shows the latencies so far, if that was asked for.
    pub(super) fn show(&mut self) {
        let looks = self.stage.looks.load(SeqCst);
        if std::mem::replace(&mut self.looks, looks) == looks {
            return;
        }
        let taken = &self.taken;
        let felt = taken.scheduled.as_ref();
        let felt = felt.map_or(&taken.latencies, |by| &by.latencies);
        let mut books = self.stage.books();
        let mine = |(whose, _): &&mut (Arc<Tally>, Latencies)| Arc::ptr_eq(whose, &self.tally);
        match books.shown.iter_mut().find(mine) {
            Some((_, shown)) => shown.clone_from(felt),
            None => books.shown.push((self.tally.clone(), felt.clone())),
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

    /// Whether messages are sent by the clock.
    #[inline]
    pub(super) fn is_open_loop(&self) -> bool {
        self.taken.scheduled.is_some()
    }

    /// Whether the measurement is on, for a load in which each reply leads to the next message.
    #[inline]
    pub(super) fn measuring(&self) -> bool {
        self.stage.measured_from.load(Relaxed) != u64::MAX && self.end_of_measuring().is_none()
    }

    /// When the measurement has ended, if it has.
    pub(super) fn end_of_measuring(&self) -> Option<Instant> {
        let until = self.stage.measured_until.load(Relaxed);
        (until != u64::MAX).then(|| Instant::from_nanos(until))
    }

    /// Whether a message that was to be sent at this time counts, whenever it is answered.
    #[inline]
    pub(super) fn counts(&self, intended: Instant) -> bool {
        let from = self.stage.measured_from.load(Relaxed);
        let until = self.stage.measured_until.load(Relaxed);
        (from..until).contains(&intended.as_nanos())
    }

    /// Something was answered now: how long nothing was, while it is measured.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant) {
        let from = Instant::from_nanos(self.stage.measured_from.load(Relaxed));
        let gap = now.since(self.answered.max(from));
        self.findings_mut().gap(gap);
        self.answered = now;
    }

    /// The load ends, and something is owed.
    pub(super) fn owed_at_end(&mut self) {
        let from = self.stage.measured_from.load(Relaxed);
        if let Some(end) = self.end_of_measuring() {
            let begin = self.answered.max(Instant::from_nanos(from));
            self.findings_mut().gap(end.since(begin));
        }
    }

    /// Counts reads that found something, and reads that found nothing.
    #[inline]
    pub(super) fn read(&mut self, hits: u64, misses: u64) {
        if self.measuring() {
            self.findings_mut().reads.add(hits, misses);
        }
    }

    /// A connection goes on as another one.
    pub(super) fn moved(&mut self, moved: &Moved) {
        self.findings_mut().reconnects.moved(moved);
    }

    /// A connection was lost, with so many messages, and another one takes its place.
    pub(super) fn lost(&mut self, messages: u64) {
        self.findings_mut().reconnects.lost(messages);
    }

    fn findings_mut(&mut self) -> &mut Findings {
        &mut self.taken.findings
    }

    #[inline]
    pub(super) fn latency(&mut self, took: Duration, requests: u64) {
        self.taken.latencies.record_many(nanos(took), requests);
    }

    #[inline]
    pub(super) fn latency_intended(&mut self, took: Duration, requests: u64) {
        if let Some(scheduled) = &mut self.taken.scheduled {
            scheduled.latencies.record_many(nanos(took), requests);
        }
    }

    pub(super) fn slip(&mut self, late: Duration) {
        if let Some(scheduled) = &mut self.taken.scheduled {
            scheduled.slip.record(nanos(late));
        }
    }

    /// Counts messages that were due and are not sent, with the time that they have waited.
    pub(super) fn unsent(&mut self, waited: Duration, messages: u64) {
        if let Some(scheduled) = &mut self.taken.scheduled {
            scheduled.latencies.record_many(nanos(waited), messages);
            scheduled.unsent = scheduled.unsent.saturating_add(messages);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Desk {
    #[cfg(test)]
    pub(super) fn taken(&self) -> &Taken {
        &self.taken
    }

    /// The loop has ended: adds its results to the results of the other loops.
    pub(super) fn close(self) {
        let mut books = self.stage.books();
        let books = &mut *books;
        self.tally.add_to(&mut books.settled);
        books.open.retain(|open| !Arc::ptr_eq(open, &self.tally));
        books.taken.merge(&self.taken);
    }
}
