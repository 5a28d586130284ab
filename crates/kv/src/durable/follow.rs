//! A store that follows another server's by what its home holds, and takes it over.
//!
//! The one idea: in the home (Kafka) a store is one row of positions, whichever server owns it. A
//! follower stands at its next position, and an owner begins its own log at the position where the
//! home ends. So nothing has to be compared: the number of missing units is a difference of two
//! positions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidewire_log::disk::Disk;
use tidewire_log::{Committed, EmbeddedLog, Frames, Log, ProducerId, Refused, Run, Step};
use tidewire_replicate::{
    Answer, Ask, Held, Home, Owner, Record, Transaction, Words, begins, is_whole,
};

use super::player::Player;
use super::replay::{ReplayError, Replayed};
use super::{KvLog, STREAM};
use crate::store::{Mistakes, Reader, Store, Units};

/// Bytes of records that are applied at once.
const AT_ONCE: usize = 1 << 20;
/// Records that are applied at once.
const RECORDS: usize = 4096;

/// Why the records of a home cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A record is missing.
    #[error(
        "the home goes on at position {found} where {due} is due: its topic no longer has the \
         records between. The topic must keep everything (retention.ms=-1)"
    )]
    Gap {
        /// The position that is due.
        due: u64,
        /// The position that was found.
        found: u64,
    },
    /// One could not be read.
    #[error("the record at position {due} of the home cannot be read: {why}")]
    Unreadable {
        /// The position that is due.
        due: u64,
        /// The fault, in words.
        why: Arc<str>,
    },
    /// The topic was deleted, and is another one by now.
    #[error(
        "the home goes on at offset {found}, but this server has read up to offset {read}: the \
         topic was deleted and created again, and holds other records now"
    )]
    Remade {
        /// The position at which the home goes on.
        found: u64,
        /// Bytes that were read from the home.
        read: u64,
    },
    /// The home holds records of another kind.
    #[error(
        "the home holds a record of stream {0:?}: it is the home of messages, not of a key-value store"
    )]
    Stream(Arc<str>),
    /// A record cannot be run.
    #[error(transparent)]
    Replay(#[from] ReplayError),
}

/// The contents of a home, read in order.
pub trait Source: Send {
    /// The next event from the home. If `waits` is set and there is none, waits for it a moment.
    ///
    /// # Errors
    /// The home cannot be read now; it may be asked again, and then goes on where it was.
    fn next(&mut self, waits: bool) -> Result<Heard, Arc<str>>;
}

/// An event that a [`Source`] reports.
#[derive(Debug)]
pub enum Heard {
    /// The next record that is committed.
    Record(Record),
    /// No further record is there now.
    End,
    /// No unit has arrived so far.
    Nothing,
    /// A record cannot be read. The records behind the unreadable record come next.
    Unreadable(Arc<str>),
    /// The next record is at the first offset, before the second one, which was read already: so the
    /// home was made anew.
    Remade(u64, u64),
}

/// Puts what another server's store has logged into a store which clients may read meanwhile. Only whole units are ever
/// seen.
#[derive(Debug)]
pub struct Applier {
    store: Arc<Store>,
    reader: Reader,
    mistakes: Mistakes,
    next: u64,
    replayed: Replayed,
}

impl Applier {
    /// `store` holds all units below `next`, and its hook is a [`KvLog`] that
    /// [follows](KvLog::following).
    #[must_use]
    pub fn new(store: Arc<Store>, next: u64) -> Applier {
        Applier {
            store,
            reader: Reader::default(),
            mistakes: Mistakes::default(),
            next,
            replayed: Replayed::default(),
        }
    }

    /// Makes the planted mistakes.
    #[doc(hidden)]
    #[must_use]
    pub fn with_mistakes(self, mistakes: Mistakes) -> Applier {
        let reader = Reader::with_mistakes(mistakes);
        Applier {
            reader,
            mistakes,
            ..self
        }
    }

    /// The position that is due.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Units applied so far.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.replayed.units
    }

    /// Applies consecutive records. `now_ms` is milliseconds since 1970. If a script holds needed keys, calls `pause`,
    /// which waits a moment and says whether to go on. Returns whether all records were applied.
    ///
    /// # Errors
    /// See [`FollowError`]; the store is of no use then, but to be read.
    pub fn apply(
        &mut self,
        records: Vec<Record>,
        now_ms: u64,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<bool, FollowError> {
        let mut runs = Vec::with_capacity(records.len());
        for record in records {
            if &*record.stream != STREAM {
                return Err(FollowError::Stream(record.stream));
            }
            let next = record.first + u64::from(record.count);
            if next <= self.next {
                // The record was read before.
                continue;
            }
            if record.first != self.next {
                let (due, found) = (self.next, record.first);
                return Err(FollowError::Gap { due, found });
            }
            self.next = next;
            runs.push(Frames {
                first: record.first,
                count: record.count,
                timestamp_us: record.timestamp_us,
                producer: record.producer,
                bytes: record.frames,
            });
        }
        let next = self.next;
        let player = Player::new(&self.store, 0, now_ms);
        let stretch = player.prepare(
            Committed { runs, next },
            &mut self.reader,
            &mut self.replayed,
        )?;
        Ok(match self.store.is_loading() {
            true => player.play(&stretch, || Ok(true))?,
            false => player.play_beside(&stretch, pause)?,
        })
    }

    /// Drops a unit that was begun: no record will complete it.
    fn break_off(&mut self) {
        self.reader = Reader::with_mistakes(self.mistakes);
    }
}

/// The name under which the marks at home say how far the log of this number had come when another one took its store over.
#[must_use]
pub fn left_by(log: u64) -> Arc<str> {
    format!("{STREAM}@{log:016x}").into()
}

/// Whether a stream of a home is a store's, or says how far a former owner's had come.
#[must_use]
pub fn is_of_store(stream: &str) -> bool {
    let log = stream.rsplit_once('@').map(|(_, log)| log);
    let log = log.and_then(|log| u64::from_str_radix(log, 16).ok());
    stream == STREAM || log.is_some_and(|log| *left_by(log) == *stream)
}

/// Why a home is no store's, if it is none.
fn is_foreign(held: &Held) -> Option<Arc<str>> {
    if held.claim.is_some() {
        return Some("the home belongs to a fleet of ingest".into());
    }
    let mut streams = held.streams.keys();
    let other = streams.find(|stream| !is_of_store(stream))?;
    Some(
        format!(
            "the home holds stream {other:?}: it is the home of messages, not of a key-value store"
        )
        .into(),
    )
}

/// The settings of a follower.
#[derive(Clone, Debug)]
pub struct FollowSettings {
    /// How long an answer of the home is waited for when the store is taken over. Default 90 s.
    pub answer_within: Duration,
    /// How long to wait before a failed step is tried again. Default 200 ms.
    pub retry: Duration,
    /// How many times the follower tries to take the store over; then it follows again. Default 50.
    pub tries: u32,
}

impl Default for FollowSettings {
    fn default() -> FollowSettings {
        FollowSettings {
            answer_within: Duration::from_secs(90),
            retry: Duration::from_millis(200),
            tries: 50,
        }
    }
}

/// How a follower stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The follower follows.
    Follows,
    /// The follower takes the store over.
    TakesOver,
    /// This server owns the store from this position on, according to the home, and has applied all units before it. The caller
    /// now has to [go on there](go_on_at).
    Owns(u64),
}

/// Follows a home, step by step, and takes the store over when it is told to.
pub struct Follower {
    applier: Applier,
    settings: FollowSettings,
    state: State,
    /// The owner that takes the store over.
    owner: Option<Owner>,
    /// The log of the owner from which this follower takes over, once that was looked at. Two followers may be told to take
    /// over at once; only one of them finds the old owner still in place.
    from: Option<Option<u64>>,
    /// The notes that are left with the claim.
    words: Words,
    /// The first try opens the home at once: the caller has read the marks.
    has_looked: bool,
    tries: u32,
    /// The home may be claimed already: no answer has said that it is not.
    may_own: bool,
    is_wanted: bool,
    is_called_off: bool,
    asked: u64,
    at_end: bool,
    /// Why a record could not be read, since the last record that was applied.
    unreadable: Option<Arc<str>>,
    /// Why the store could not be taken over.
    refused: Option<Arc<str>>,
    mistakes: Mistakes,
}

#[derive(Debug)]
enum State {
    Following,
    /// The follower waits before it tries again.
    Waiting(Duration),
    /// Whether the home can be taken over: looking fences no owner.
    Looking(u64, Duration),
    Opening(u64, Duration),
    /// The follower claims the home, whose end it knows.
    Claiming(u64, Duration, u64),
    /// The follower reads up to this position.
    Reading(u64),
    Owner(u64),
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Follower({:?}, {:?})", self.state, self.applier.next)
    }
}

impl Follower {
    /// A follower that applies changes by `applier`.
    #[must_use]
    pub fn new(applier: Applier, settings: FollowSettings) -> Follower {
        Follower {
            mistakes: applier.mistakes,
            applier,
            settings,
            state: State::Following,
            owner: None,
            from: None,
            words: Words::new(),
            has_looked: false,
            tries: 0,
            may_own: false,
            is_wanted: true,
            is_called_off: false,
            asked: 0,
            at_end: false,
            unreadable: None,
            refused: None,
        }
    }

    /// The part that puts units into the store.
    #[must_use]
    pub fn applier(&self) -> &Applier {
        &self.applier
    }

    /// Whether all was applied that was at home a moment ago.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at_end
    }

    /// The present state of the follower.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.state {
            State::Following => Standing::Follows,
            State::Owner(end) => Standing::Owns(end),
            _ => Standing::TakesOver,
        }
    }

    /// Starts a promotion of this follower to `owner`, whose log does not exist yet: the former owner is fenced, and the rest of
    /// the home is read.
    pub fn take_over(&mut self, owner: Owner) {
        if let State::Following = self.state {
            (self.owner, self.tries, self.refused) = (Some(owner), 0, None);
            (self.from, self.words) = (None, Words::new());
            self.has_looked = false;
            (self.may_own, self.is_wanted) = (false, true);
            self.state = State::Waiting(Duration::ZERO);
        }
    }

    /// As [`take_over`](Follower::take_over), from the owner with this log and from no other one, `None` for a home that never
    /// had one. These words are left with the claim. A fenced attempt is repeated after `retry`.
    pub fn take_over_from(
        &mut self,
        owner: Owner,
        from: Option<u64>,
        words: Words,
        retry: Duration,
    ) {
        self.take_over(owner);
        if self.owner == Some(owner) {
            (self.from, self.words, self.settings.retry) = (Some(from), words, retry);
            // To look once more could be to wait until a transaction ends that a dead owner has left open.
            self.has_looked = true;
        }
    }

    /// Whether a client waits for the promotion, which is so until this is called. If none does,
    /// the promotion is cancelled with the next step, unless the home is claimed, or may be: the
    /// former owner would be none any more, and no other in its place. It goes on then.
    pub fn want(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    /// Whether the takeover was called off; true once for each call.
    pub fn take_called_off(&mut self) -> bool {
        std::mem::take(&mut self.is_called_off)
    }

    /// Cancels the promotion if no client waits for it and that is possible; returns whether it was
    /// cancelled.
    fn call_off(&mut self) -> bool {
        let is_under_way = !matches!(self.state, State::Following | State::Owner(_));
        let is_over = is_under_way && !self.is_wanted && !self.may_own;
        if is_over {
            self.state = State::Following;
            self.owner = None;
            self.is_called_off = true;
        }
        is_over
    }

    /// The store is not taken over after all: it is followed again.
    pub fn give_up(&mut self, why: Arc<str>) {
        self.state = State::Following;
        self.owner = None;
        self.refused = Some(why);
    }

    /// The number of the log of the owner from which the store is taken over, once that was looked at.
    #[must_use]
    pub fn from(&self) -> Option<u64> {
        self.from.flatten()
    }

    /// Why the store was not taken over; once.
    pub fn take_refusal(&mut self) -> Option<Arc<str>> {
        self.refused.take()
    }

    /// Does one piece of work. `now` is since any fixed moment, `now_ms` since 1970; `pause` as for [`Applier::apply`].
    ///
    /// # Errors
    /// The data in the home cannot be followed; a retry would not help.
    pub fn step(
        &mut self,
        now: Duration,
        now_ms: u64,
        source: &mut dyn Source,
        home: &mut dyn Home,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<Step, FollowError> {
        while let Some((number, answer)) = home.answer() {
            self.answered(number, answer, now, home);
        }
        self.call_off();
        match self.state {
            State::Waiting(until) if now >= until => match std::mem::take(&mut self.has_looked) {
                true => {
                    self.tries += 1;
                    self.open(now, home);
                }
                false => self.look(now, home),
            },
            State::Looking(_, within)
            | State::Opening(_, within)
            | State::Claiming(_, within, _)
                if now >= within =>
            {
                self.again("the home has not answered in time".into(), now);
            }
            State::Owner(_) => return Ok(Step::Idle),
            _ => {}
        }
        let read = self.read(now_ms, source, pause)?;
        if let State::Reading(end) = self.state {
            match self.applier.next {
                next if next == end => {
                    self.applier.break_off();
                    self.state = State::Owner(end);
                }
                next if next > end => {
                    self.give_up("another server has taken the store over meanwhile".into());
                }
                due => {
                    // The rest would be waited for in vain.
                    if let Some(why) = self.unreadable.clone().filter(|_| !read) {
                        return Err(FollowError::Unreadable { due, why });
                    }
                }
            }
            return Ok(Step::Worked);
        }
        Ok(match read {
            true => Step::Worked,
            false => Step::Idle,
        })
    }

    /// Reads and applies records; returns whether any came.
    fn read(
        &mut self,
        now_ms: u64,
        source: &mut dyn Source,
        pause: &mut dyn FnMut() -> bool,
    ) -> Result<bool, FollowError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let (mut at_end, mut is_passed) = (false, false);
        let end = match self.state {
            State::Reading(end) => end,
            _ => u64::MAX,
        };
        let mut next = self.applier.next;
        while bytes < AT_ONCE && records.len() < RECORDS && next < end {
            match source.next(records.is_empty()) {
                Ok(Heard::Record(record)) => {
                    bytes += record.frames.len();
                    next = record.first + u64::from(record.count);
                    records.push(record);
                    is_passed = true;
                }
                Ok(Heard::End) => {
                    at_end = true;
                    break;
                }
                Ok(Heard::Unreadable(why)) => {
                    self.unreadable = Some(why);
                    is_passed = false;
                }
                Ok(Heard::Remade(found, read)) => {
                    // Kafka's client begins again behind a record that it cannot read.
                    return Err(match self.unreadable.clone() {
                        Some(why) => FollowError::Unreadable { due: next, why },
                        None => FollowError::Remade { found, read },
                    });
                }
                Ok(Heard::Nothing) | Err(_) => break,
            }
        }
        let came = !records.is_empty();
        if came {
            let applied = self.applier.apply(records, now_ms, pause);
            applied.map_err(|error| match (error, &self.unreadable) {
                (FollowError::Gap { due, .. }, Some(why)) => {
                    let why = why.clone();
                    FollowError::Unreadable { due, why }
                }
                (error, _) => error,
            })?;
        }
        if came && is_passed {
            // No record of the store is missing: the record was foreign.
            self.unreadable = None;
        }
        self.at_end = at_end || (self.at_end && !came);
        Ok(came)
    }

    fn answered(&mut self, number: u64, answer: Answer, now: Duration, home: &mut dyn Home) {
        let awaited = match self.state {
            State::Looking(number, _) | State::Opening(number, _) | State::Claiming(number, ..) => {
                Some(number)
            }
            _ => None,
        };
        if awaited != Some(number) {
            return;
        }
        match (answer, &self.state) {
            (Answer::Held(held), State::Looking(..)) => {
                self.from.get_or_insert(held.owner.map(|owner| owner.log));
                match self.unfit(&held) {
                    Some(why) => self.give_up(why),
                    None => self.open(now, home),
                }
            }
            (Answer::Held(held), State::Opening(..)) => self.opened(&held, now, home),
            (Answer::Committed, &State::Claiming(_, _, end)) => {
                let early = self.mistakes.makes(|mistakes| mistakes.own_unread);
                self.state = match early {
                    true => State::Owner(end),
                    false => State::Reading(end),
                };
            }
            (Answer::Failed(why) | Answer::Fenced(why), _) => self.again(why, now),
            (Answer::Held(_) | Answer::Committed, _) => {
                self.again("the home has sent an unexpected answer".into(), now);
            }
        }
    }

    fn opened(&mut self, held: &Held, now: Duration, home: &mut dyn Home) {
        let Some(owner) = self.owner else {
            return self.give_up("no server may take the store over".into());
        };
        // The home may have become unfit since it was looked at; the former owner opens it again.
        if let Some(why) = self.unfit(held) {
            return self.give_up(why);
        }
        // A claim without an answer, if there was one.
        self.may_own = held.owner == Some(owner);
        if self.call_off() {
            return;
        }
        let end = held.streams.get(STREAM).map_or(0, |place| place.next);
        if end < self.applier.next {
            // The former owner has opened it again behind that, and gone on: the claim would find itself fenced.
            return self.again("the former owner keeps the store".into(), now);
        }
        let mut claim = Transaction::new(owner);
        claim.notes.clone_from(&self.words);
        if let (Some(former), Some(place)) = (held.owner, held.streams.get(STREAM)) {
            // Units that the former owner has behind this position are nowhere else.
            claim.streams.insert(left_by(former.log), *place);
        }
        // At once: until this is committed the former owner may open the home again.
        let number = self.ask(home, Ask::Carry(claim));
        self.may_own = true;
        self.state = State::Claiming(number, now + self.settings.answer_within, end);
    }

    /// Whether the home names another owner than at the beginning, and that is not this server.
    fn is_overtaken(&self, held: &Held) -> bool {
        let is_other = self
            .from
            .is_some_and(|from| held.owner.map(|owner| owner.log) != from);
        let is_own = held.owner.is_some() && held.owner == self.owner;
        is_other && !is_own && !self.mistakes.makes(|mistakes| mistakes.take_from_any)
    }

    /// Why the home cannot be taken over, if so.
    fn unfit(&self, held: &Held) -> Option<Arc<str>> {
        let is_part = !is_whole(&held.notes) || begins(&held.notes) > self.applier.next;
        if self.is_overtaken(held) {
            return Some(
                "another server has taken the store over meanwhile; repeat the request to take the store over from that server".into(),
            );
        }
        if let Some(why) = &held.hidden {
            return Some(why.clone());
        }
        is_foreign(held).or(is_part.then_some(
            "the home does not have the whole store yet: its owner sends a snapshot of the older \
             changes; this follower begins with the snapshot"
                .into(),
        ))
    }

    fn look(&mut self, now: Duration, home: &mut dyn Home) {
        self.tries += 1;
        let number = self.ask(home, Ask::Look);
        self.state = State::Looking(number, now + self.settings.answer_within);
    }

    fn open(&mut self, now: Duration, home: &mut dyn Home) {
        let number = self.ask(home, Ask::Open);
        self.state = State::Opening(number, now + self.settings.answer_within);
    }

    fn again(&mut self, why: Arc<str>, now: Duration) {
        if self.tries >= self.settings.tries {
            return self.give_up(why);
        }
        tracing::warn!(
            why = &*why,
            "taking the store over has failed, and is tried again"
        );
        self.state = State::Waiting(now + self.settings.retry);
    }

    fn ask(&mut self, home: &mut dyn Home, ask: Ask) -> u64 {
        self.asked += 1;
        home.ask(self.asked, ask);
        self.asked
    }
}

/// Has a store that was [taken over](Standing::Owns) continue with a log of its own, which was made for that: with the
/// [identity](tidewire_log::Settings::identity) of the claim, and its stream [beginning](tidewire_log::Settings::begins) at
/// the position. No change is taken before [`KvLog::own`], which must wait for a valid snapshot, and for the replicator to own
/// the home.
///
/// # Errors
/// The log is another one, or takes nothing now: [`Refused::Busy`] is to be tried again.
pub fn go_on_at<D: Disk>(
    kv_log: &KvLog,
    log: &Arc<EmbeddedLog<D>>,
    position: u64,
    now_ms: u64,
) -> Result<(), Refused> {
    let stream = log.stream(STREAM)?;
    // A unit that the former owner had begun in the home is never completed.
    let units = Units::break_off(now_ms);
    let placed = {
        let cost = units.cost();
        log.reserve(cost)?;
        let run = Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames: units.frames(),
            count: units.records(),
            last_id: units.stamp(),
            timestamp_us: units.stamp().saturating_mul(1000),
        };
        log.append_reserved(run, cost)?
    };
    if placed.first != position {
        return Err(Refused::Beyond);
    }
    kv_log.take_over(log, stream, position);
    Ok(())
}
