//! A log in memory for tests, whose commits, failures and full disks are the test's to decide.
//!
//! The log keeps every promise of [`Log`] and nothing but that; what is not committed can be lost
//! with
//! [`SteppedLog::crash`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tidewire_log::{
    Begin, Carried, Change, ChangeRefused, Committed, Credit, Failure, Frames, Log, Mark, Policy,
    ProducerId, Progress, Range, ReadError, Refused, Run, Selection, StreamId, StreamSettings,
    StreamStatus, Ticket, Wake, Watch,
};

use crate::classic::HEADER;
use crate::native::{IngestService, Settings};

/// A server of the native protocol over such a log, whose commits are immediate; for examples.
///
/// # Panics
/// If it cannot be started.
#[must_use]
pub fn server() -> tidewire::Running {
    let settings = Settings::default();
    let limits = settings.limits();
    let service = IngestService::new(Arc::new(SteppedLog::new().auto()), settings);
    let mut builder = tidewire::Builder::new();
    let service = builder.service_with(service, limits);
    builder.listen(service, tidewire::Listen::at("127.0.0.1:0"));
    builder.start().expect("it starts")
}

/// A log in memory. Clones are the same log.
#[derive(Clone)]
pub struct SteppedLog(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    wakes: Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>,
}

struct State {
    policy: Policy,
    payload_max: u32,
    /// Bytes that may wait for a commit.
    queue_max: usize,
    queued: usize,
    auto: bool,
    full: bool,
    busy_for_cursors: bool,
    run_max: usize,
    streams: Vec<(String, Vec<Record>, u64)>,
    producers: Vec<(StreamId, String, Mark)>,
    producers_max: usize,
    waiting: VecDeque<Batch>,
    progress: Progress,
    cursors: BTreeMap<(String, String), u64>,
    settings: BTreeMap<String, StreamSettings>,
    carries: Selection,
    appends: u64,
    appended: u64,
}

struct Batch {
    stream: StreamId,
    producer: ProducerId,
    bytes: Vec<u8>,
    ticket: Ticket,
    timestamp_us: u64,
}

/// A committed message.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// Producer of the message; empty for an anonymous one.
    pub producer: String,
    /// Id of the message.
    pub id: u64,
    /// When it was received: microseconds since the Unix epoch.
    pub timestamp_us: u64,
    /// What it says.
    pub payload: Vec<u8>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}:{}:{}",
            self.producer,
            self.id,
            self.payload.escape_ascii()
        )
    }
}

impl fmt::Debug for SteppedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SteppedLog({:?})", self.state().progress)
    }
}

impl Default for SteppedLog {
    fn default() -> SteppedLog {
        SteppedLog::new()
    }
}

impl SteppedLog {
    /// An empty log with the policy `sync`, payloads of up to 16 MiB and a queue of 64 MiB.
    #[must_use]
    pub fn new() -> SteppedLog {
        SteppedLog(Arc::new(Inner {
            state: Mutex::new(State {
                policy: Policy::Sync,
                payload_max: 16 << 20,
                queue_max: 64 << 20,
                queued: 0,
                auto: false,
                full: false,
                busy_for_cursors: false,
                run_max: usize::MAX,
                streams: Vec::new(),
                producers: Vec::new(),
                producers_max: usize::MAX,
                waiting: VecDeque::new(),
                progress: Progress::default(),
                cursors: BTreeMap::new(),
                settings: BTreeMap::new(),
                carries: Selection::default(),
                appends: 0,
                appended: 0,
            }),
            wakes: Mutex::default(),
        }))
    }

    /// Commits every batch as it is appended.
    #[must_use]
    pub fn auto(self) -> SteppedLog {
        self.state().auto = true;
        self
    }

    /// Has another policy.
    #[must_use]
    pub fn policy_of(self, policy: Policy) -> SteppedLog {
        self.state().policy = policy;
        self
    }

    /// Has a home for these streams alone.
    #[must_use]
    pub fn carries(self, streams: Selection) -> SteppedLog {
        self.state().carries = streams;
        self
    }

    /// Takes payloads up to this.
    #[must_use]
    pub fn payloads(self, max: u32) -> SteppedLog {
        self.state().payload_max = max;
        self
    }

    /// Has room for so many bytes that are not committed.
    #[must_use]
    pub fn queue(self, bytes: usize) -> SteppedLog {
        self.state().queue_max = bytes;
        self
    }

    /// Takes at most so many bytes in one batch.
    #[must_use]
    pub fn runs(self, bytes: usize) -> SteppedLog {
        self.state().run_max = bytes;
        self
    }

    /// Takes so many producers.
    #[must_use]
    pub fn producers(self, most: usize) -> SteppedLog {
        self.state().producers_max = most;
        self
    }

    /// Commits the next `batches` that wait, as one group.
    pub fn commit(&self, batches: usize) {
        self.state().commit(batches);
        self.wake();
    }

    /// Commits all that waits.
    pub fn commit_all(&self) {
        self.commit(usize::MAX);
    }

    /// From now on the disk is full, or no longer.
    pub fn disk_full(&self, yes: bool) {
        self.state().full = yes;
        self.wake();
    }

    /// From now on the queue has no room for cursors, or it has again.
    pub fn busy_for_cursors(&self, yes: bool) {
        self.state().busy_for_cursors = yes;
        self.wake();
    }

    /// Forgets the mark of a producer, as a log does that has not heard of it for long.
    pub fn forget(&self, producer: &str) {
        let mut state = self.state();
        let known = state.producers.iter_mut().filter(|p| p.1 == producer);
        known.for_each(|(_, _, mark)| {
            *mark = Mark {
                forgotten: true,
                ..Mark::default()
            };
        });
    }

    /// Fails for good. What waits is never committed.
    pub fn fail(&self, why: &str) {
        self.state().progress.failure = Some(Failure(why.into()));
        self.wake();
    }

    /// The log as it is found after a crash: what was committed, and nothing of the rest.
    #[must_use]
    pub fn crash(&self) -> SteppedLog {
        let new = SteppedLog::new();
        {
            let (old, mut state) = (self.state(), new.state());
            state.policy = old.policy;
            state.payload_max = old.payload_max;
            state.queue_max = old.queue_max;
            state.auto = old.auto;
            state.carries = old.carries.clone();
            state.streams = old.streams.clone();
            state.cursors = old.cursors.clone();
            for (stream, name, _) in &old.producers {
                let records = &old.streams[stream.0 as usize].1;
                let last = records.iter().rev().find(|r| r.producer == *name);
                let mark = Mark {
                    appended: last.map(|r| r.id),
                    ..Mark::default()
                };
                state.producers.push((*stream, name.clone(), mark));
            }
        }
        new
    }

    /// The committed records of a stream that are still kept.
    #[must_use]
    pub fn records(&self, stream: &str) -> Vec<Record> {
        let state = self.state();
        state.find(stream).map_or(Vec::new(), |s| {
            let (_, records, first) = &state.streams[s];
            records[*first as usize..].to_vec()
        })
    }

    /// Removes the records before this position.
    pub fn retain_from(&self, stream: &str, first: u64) {
        let mut state = self.state();
        if let Some(s) = state.find(stream) {
            state.streams[s].2 = first;
        }
    }

    /// Batches that wait for a commit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// Calls of [`Log::append`] that were not refused, and messages taken with them.
    #[must_use]
    pub fn taken(&self) -> (u64, u64) {
        let state = self.state();
        (state.appends, state.appended)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        let wakes: Vec<Wake> = {
            let mut wakes = self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner);
            wakes.retain(|w| w.strong_count() > 0);
            wakes.iter().filter_map(Weak::upgrade).collect()
        };
        for wake in wakes {
            wake();
        }
    }
}

impl State {
    fn find(&self, stream: &str) -> Option<usize> {
        self.streams.iter().position(|(name, ..)| name == stream)
    }

    fn name_of(&self, producer: ProducerId) -> String {
        match producer.0.checked_sub(1) {
            Some(at) => self.producers[at as usize].1.clone(),
            None => String::new(),
        }
    }

    /// Whether so many more bytes are taken.
    fn admit(&self, bytes: usize) -> Result<(), Refused> {
        if self.progress.failure.is_some() {
            return Err(Refused::Failed);
        }
        if self.full {
            let retry_after = Duration::from_millis(50);
            return Err(Refused::DiskFull { retry_after });
        }
        // A group larger than the queue would never get in.
        if self.queued > 0 && self.queued + bytes > self.queue_max {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    fn commit(&mut self, batches: usize) {
        if self.progress.failure.is_some() {
            return;
        }
        for _ in 0..batches.min(self.waiting.len()) {
            let batch = self.waiting.pop_front().expect("counted");
            self.queued -= batch.bytes.len();
            let producer = self.name_of(batch.producer);
            let records = &mut self.streams[batch.stream.0 as usize].1;
            for (id, payload) in messages(&batch.bytes) {
                records.push(Record {
                    producer: producer.clone(),
                    id,
                    timestamp_us: batch.timestamp_us,
                    payload: payload.to_vec(),
                });
            }
            self.progress.committed = batch.ticket;
            self.progress.written = batch.ticket;
        }
    }
}

/// The messages of a run.
fn messages(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let (head, rest) = bytes.split_at(HEADER);
        let (id, size) = head.split_at(8);
        let id = u64::from_le_bytes(id.try_into().expect("split there"));
        let size = u32::from_le_bytes(size.try_into().expect("split there"));
        let (payload, rest) = rest.split_at(size as usize);
        all.push((id, payload));
        bytes = rest;
    }
    all
}

impl Log for SteppedLog {
    /// Done at once.
    fn administer(&self, change: Change<'_>) -> Result<Ticket, ChangeRefused> {
        let mut state = self.state();
        state.admit(1)?;
        match change {
            Change::Create { stream, settings } => {
                if state.find(stream).is_some() {
                    return Err(ChangeRefused::Exists);
                }
                state.streams.push((stream.to_owned(), Vec::new(), 0));
                state.settings.insert(stream.to_owned(), settings);
            }
            Change::Set { stream, settings } => {
                state.find(stream).ok_or(ChangeRefused::NoStream)?;
                state.settings.insert(stream.to_owned(), settings);
            }
            Change::Delete { stream } => {
                let at = state.find(stream).ok_or(ChangeRefused::NoStream)?;
                // No name that a client can say.
                state.streams[at].0 = format!("\0{at}");
                state.settings.remove(stream);
                state.cursors.retain(|(of, _), _| of != stream);
            }
            Change::Trim { stream, .. } => {
                state.find(stream).ok_or(ChangeRefused::NoStream)?;
                return Err(ChangeRefused::Unsupported);
            }
            Change::DeleteCursor { stream, cursor } => {
                state.find(stream).ok_or(ChangeRefused::NoStream)?;
                let named = (stream.to_owned(), cursor.to_owned());
                let gone = state.cursors.remove(&named);
                gone.ok_or(ChangeRefused::NoCursor)?;
            }
        }
        Ok(state.progress.committed)
    }

    fn streams(&self, after: &str, most: usize) -> Vec<StreamStatus> {
        let state = self.state();
        let names = state.streams.iter().map(|(name, ..)| name.clone());
        let names = names.filter(|name| !name.starts_with('\0') && &**name > after);
        let mut names: Vec<_> = names.collect();
        drop(state);
        names.sort_unstable();
        names.truncate(most);
        let status = names.iter().filter_map(|name| self.stream_status(name));
        status.collect()
    }

    fn stream_status(&self, stream: &str) -> Option<StreamStatus> {
        let range = self.range(stream)?;
        let state = self.state();
        let cursors = state.cursors.keys().filter(|(of, _)| of == stream);
        Some(StreamStatus {
            name: stream.into(),
            range,
            bytes: 0,
            pins: 0,
            newest_us: 0,
            settings: state.settings.get(stream).copied().unwrap_or_default(),
            producers: 0,
            cursors: cursors.count(),
            lag: 0,
        })
    }

    fn policy(&self) -> Policy {
        self.state().policy
    }

    fn payload_max(&self) -> u32 {
        self.state().payload_max
    }

    fn stream(&self, name: &str) -> Result<StreamId, Refused> {
        assert!((1..=255).contains(&name.len()), "a stream called {name:?}");
        let mut state = self.state();
        if state.find(name).is_none() {
            state.admit(name.len())?;
        }
        let at = state.find(name).unwrap_or_else(|| {
            state.streams.push((name.to_owned(), Vec::new(), 0));
            state.streams.len() - 1
        });
        Ok(StreamId(at as u32))
    }

    fn producer(&self, stream: StreamId, name: &str) -> Result<ProducerId, Refused> {
        assert!(
            (1..=255).contains(&name.len()),
            "a producer called {name:?}"
        );
        let mut state = self.state();
        let known = |(s, n, _): &(StreamId, String, Mark)| *s == stream && n == name;
        let at = match state.producers.iter().position(known) {
            Some(at) => at,
            None if state.producers.len() >= state.producers_max => return Err(Refused::TooMany),
            None => {
                state.admit(name.len())?;
                let new = (stream, name.to_owned(), Mark::default());
                state.producers.push(new);
                state.producers.len() - 1
            }
        };
        Ok(ProducerId(at as u32 + 1))
    }

    fn mark(&self, producer: ProducerId) -> Mark {
        let at = producer.0.checked_sub(1);
        at.map_or(Mark::default(), |at| self.state().producers[at as usize].2)
    }

    fn append(&self, run: Run<'_>) -> Result<Ticket, Refused> {
        let messages = messages(run.frames);
        assert_eq!(messages.len(), run.count as usize, "{run:?}");
        assert!(run.count > 0, "an empty run");
        if run.producer != ProducerId::ANONYMOUS {
            assert_eq!(messages.last().map(|m| m.0), Some(run.last_id), "{run:?}");
            assert!(messages.is_sorted_by(|a, b| a.0 < b.0), "ids do not rise");
        }
        let (auto, ticket) = {
            let mut state = self.state();
            if run.frames.len() > state.run_max {
                return Err(Refused::TooLarge);
            }
            state.admit(run.frames.len())?;
            state.appends += 1;
            state.appended += u64::from(run.count);
            let ticket = Ticket(state.appends);
            if let Some(at) = run.producer.0.checked_sub(1) {
                let mark = &mut state.producers[at as usize].2;
                assert!(mark.appended < Some(run.last_id), "below the mark: {run:?}");
                *mark = Mark {
                    appended: Some(run.last_id),
                    ticket,
                    ..Mark::default()
                };
            }
            state.queued += run.frames.len();
            state.waiting.push_back(Batch {
                stream: run.stream,
                producer: run.producer,
                bytes: run.frames.to_vec(),
                ticket,
                timestamp_us: run.timestamp_us,
            });
            if state.auto {
                state.commit(usize::MAX);
            }
            (state.auto, ticket)
        };
        if auto {
            self.wake();
        }
        Ok(ticket)
    }

    fn comes_home(&self, stream: &str) -> bool {
        self.state().carries.takes(stream)
    }

    fn carried(&self, carried: Carried) {
        let mut state = self.state();
        state.progress.replicated = state.progress.replicated.max(carried.replicated);
        state.progress.replicates = carried.replicates;
        state.progress.seeks_home = carried.seeks_home;
        state.progress.away = carried.away;
        drop(state);
        self.wake();
    }

    fn progress(&self) -> Progress {
        self.state().progress.clone()
    }

    fn watch(&self, wake: Wake) -> Watch {
        let mut wakes = self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.push(Arc::downgrade(&wake));
        Watch::new(Keep(wake))
    }

    fn range(&self, stream: &str) -> Option<Range> {
        let state = self.state();
        state.find(stream).map(|s| {
            let (_, records, first) = &state.streams[s];
            Range {
                first: *first,
                next: records.len() as u64,
            }
        })
    }

    fn locate(&self, stream: &str, begin: Begin) -> Result<u64, ReadError> {
        let state = self.state();
        let Some(s) = state.find(stream) else {
            return Ok(0);
        };
        let (_, records, first) = &state.streams[s];
        Ok(match begin {
            Begin::Position(at) => at.max(*first),
            Begin::Tail => records.len() as u64,
            Begin::Timestamp(at) => {
                let early = records.iter().take_while(|r| r.timestamp_us < at).count();
                (early as u64).max(*first)
            }
        })
    }

    fn read(&self, stream: &str, from: u64, credit: Credit) -> Result<Committed, ReadError> {
        let state = self.state();
        let mut read = Committed {
            runs: Vec::new(),
            next: from,
        };
        let Some(s) = state.find(stream) else {
            return Ok(read);
        };
        let (_, records, first) = &state.streams[s];
        if from < *first {
            return Err(ReadError::Gone {
                asked: from,
                first: *first,
            });
        }
        let mut left = credit.0;
        for record in records.iter().skip(from as usize) {
            let len = HEADER + record.payload.len();
            if len > left && read.next > from {
                break;
            }
            left = left.saturating_sub(len);
            let same = |f: &&mut Frames| {
                *f.producer == *record.producer && f.timestamp_us == record.timestamp_us
            };
            let run = match read.runs.last_mut().filter(same) {
                Some(run) => run,
                None => {
                    read.runs.push(Frames {
                        first: read.next,
                        count: 0,
                        timestamp_us: record.timestamp_us,
                        producer: record.producer.as_str().into(),
                        bytes: Vec::new(),
                    });
                    read.runs.last_mut().expect("just pushed")
                }
            };
            run.count += 1;
            run.bytes.extend_from_slice(&record.id.to_le_bytes());
            let size = record.payload.len() as u32;
            run.bytes.extend_from_slice(&size.to_le_bytes());
            run.bytes.extend_from_slice(&record.payload);
            read.next += 1;
        }
        Ok(read)
    }

    fn cursor(&self, stream: &str, name: &str) -> Option<u64> {
        let key = (stream.to_owned(), name.to_owned());
        self.state().cursors.get(&key).copied()
    }

    fn set_cursor(&self, stream: &str, name: &str, position: u64) -> Result<(), Refused> {
        let key = (stream.to_owned(), name.to_owned());
        if self.state().busy_for_cursors {
            return Err(Refused::Busy);
        }
        self.state().cursors.insert(key, position);
        Ok(())
    }
}

/// Holds what a [`Watch`] keeps registered.
struct Keep(#[allow(dead_code, reason = "held, not read")] Wake);
