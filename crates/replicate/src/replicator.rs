//! The replicator: reads what is committed, fills transactions with it, and moves the watermark.
//!
//! The one idea: starting, and going on after any failure, are one procedure: open the home and believe its marks.
//! State in memory is then discarded, and read from the log again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewire_log::{
    Carried, Change, Credit, Failure, Frames, Log, ReadError, Step, Tenure, Ticket,
};

use crate::cursors::Sending;
use crate::cut::{from, print};
use crate::filling::Filling;
use crate::hold::Hold;
use crate::home::{Answer, Ask, Claim, Held, Home, Marks, Moves, Owner, Place, Words};
use crate::lanes::Lanes;
use crate::lease::Lease;
use crate::notes::{CARRIED, Notes, SNAPSHOT, carried, is_whole};
use crate::seen::Seen;
use crate::settings::Settings;
use crate::share::Share;
use crate::status::{Phase, Shown};
use crate::tenancy::Tenancy;

/// The cursor of each stream that stores, in the log itself, how far the stream is in the home: so a node that
/// starts without its home knows which records it has to keep. The home's own answer counts more.
pub const CURSOR: &str = "@home";

/// The cursor of each stream that says which records a fleet member need not keep any more: records
/// before it whose tenure is over, though they are not in the home. An operator has released the
/// records before this position.
pub const RELEASED: &str = "@released";

/// How often [`CURSOR`] is written, at most.
pub(crate) const CURSOR_EVERY: Duration = Duration::from_secs(1);
/// Bytes read from the log at a time, at most.
const READ: usize = 1 << 20;

/// Carries what one log has committed to a home, step by step.
pub struct Replicator {
    log: Arc<dyn Log>,
    settings: Settings,
    share: Share,
    owner: Owner,
    /// Claim of a partition of a fleet that was opened.
    claim: Option<Claim>,
    /// The partition as producers see it: visible to them only after the claim.
    hold: Option<Arc<Hold>>,
    /// Up to where the log's own are at home; it reads from where others may have left something.
    own_home: BTreeMap<Arc<str>, u64>,
    /// Records of tenures that were met; only by the share of what is the log's own.
    seen: Seen,
    state: State,
    lanes: Lanes,
    filling: Filling,
    /// The number of the last ask.
    asked: u64,
    /// The home was opened, and has had a transaction of this session since.
    has_claimed: bool,
    replicated: Option<Ticket>,
    retry: Duration,
    /// Pause after another process has opened the home.
    fenced: Duration,
    remembered: BTreeMap<Arc<str>, u64>,
    /// More is at home than is remembered.
    forgetful: bool,
    remember_due: Duration,
    shown: Shown,
    /// How much was ever carried to the home.
    carried: u64,
    /// Whether the home has all records.
    is_whole: bool,
    /// Hears that the home has another owner.
    when_lost: Option<Box<dyn Fn(Arc<str>) + Send>>,
    notes: Notes,
    /// Cursors of a whole log.
    cursors: Sending,
    /// Proves that this process owns its home, for a while.
    tenancy: Tenancy,
    /// Since when the replicator leaves, if it leaves.
    leaving: Option<Duration>,
    /// The home has the log of another server, according to the last look.
    is_foreign: bool,
}

/// The event that the replicator waits for.
#[derive(Debug)]
enum State {
    Away {
        until: Duration,
    },
    /// For an answer of the home, until then.
    Looking(u64, Duration),
    Opening(u64, Duration),
    Home(Option<Box<Carrying>>),
    Over,
}

/// A transaction that is committed now.
#[derive(Debug)]
struct Carrying {
    number: u64,
    /// The time before the request was sent.
    sent: Duration,
    within: Duration,
    /// When to report a late answer; `None` once it was reported.
    slow: Option<Duration>,
    streams: BTreeMap<Arc<str>, Place>,
    producers: Marks,
    covers: Option<Ticket>,
    notes: Words,
    cursors: Moves,
    bytes: usize,
    messages: u64,
    /// The total of carried records after this transaction.
    carried: u64,
    /// The request that a planted mistake sends again.
    again: Option<Ask>,
}

impl std::fmt::Debug for Replicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Replicator {
            share,
            state,
            replicated,
            ..
        } = self;
        write!(f, "Replicator({share}, {state:?}, {replicated:?})")
    }
}

impl Replicator {
    /// A replicator for `log`, whose random number is `identity`; `session` is drawn anew for each
    /// process. The log must sync its commits; otherwise its home would remember records that the
    /// log has lost.
    pub fn new(log: Arc<dyn Log>, identity: u64, session: u64, settings: Settings) -> Replicator {
        Replicator::of(Share::Whole, log, identity, session, settings)
    }

    /// A replicator for one share of a fleet's member. Such a replicator reports nothing to the
    /// log; `session` is drawn anew for each one.
    pub(crate) fn of(
        share: Share,
        log: Arc<dyn Log>,
        identity: u64,
        session: u64,
        settings: Settings,
    ) -> Replicator {
        let owner = Owner {
            log: identity,
            session,
        };
        let mut replicator = Replicator {
            retry: settings.retry_first,
            fenced: settings.after_fenced,
            tenancy: Tenancy::new(owner, &settings),
            leaving: None,
            is_foreign: false,
            settings,
            share,
            owner,
            claim: None,
            hold: None,
            own_home: BTreeMap::new(),
            seen: Seen::default(),
            state: State::Away {
                until: Duration::ZERO,
            },
            lanes: Lanes::default(),
            filling: Filling::new(owner, None),
            asked: 0,
            has_claimed: false,
            replicated: None,
            remembered: BTreeMap::new(),
            forgetful: false,
            remember_due: Duration::ZERO,
            shown: Shown::default(),
            carried: 0,
            is_whole: true,
            when_lost: None,
            notes: Notes::default(),
            cursors: Sending::default(),
            log,
        };
        for stream in replicator.log.streams("", usize::MAX) {
            let Some(home) = replicator.log.cursor(&stream.name, CURSOR) else {
                continue;
            };
            if replicator.log.comes_home(&stream.name) {
                replicator.lanes.remember(stream.name, home);
            } else {
                // A cursor that is left there would only seem to fall behind.
                let (stream, cursor) = (&*stream.name, CURSOR);
                let _ = replicator
                    .log
                    .administer(Change::DeleteCursor { stream, cursor });
            }
        }
        if replicator.makes(|mistakes| mistakes.promise_unread) {
            replicator.replicated = Some(Ticket(0));
        }
        replicator.tell(None);
        replicator
    }

    /// Has `lost` called when the home turns out to have another owner, before the log is told.
    #[must_use]
    pub fn when_lost(mut self, lost: impl Fn(Arc<str>) + Send + 'static) -> Replicator {
        self.when_lost = Some(Box::new(lost));
        self
    }

    /// The notes in the home beside the records.
    pub fn notes(&self) -> Notes {
        self.notes.clone()
    }

    /// The lease of the replicator's home, where [`Settings::lease`] asks for a lease.
    pub fn lease(&self) -> Lease {
        self.tenancy.lease()
    }

    /// Ends the replicator in order: a lease is released, so that the next owner need not wait for its end. This process
    /// may not answer from its memory any more. Keep stepping the replicator until [`has_left`](Replicator::has_left).
    pub fn leave(&mut self, now: Duration) {
        self.leaving.get_or_insert(now);
        self.tenancy.end();
    }

    /// Whether the replicator has left: no work remains for which it waits.
    pub fn has_left(&self, now: Duration) -> bool {
        let is_late = |since| now >= since + self.settings.release_within;
        let can_release = matches!(self.state, State::Home(_)) && self.tenancy.is_to_be_released();
        self.leaving
            .is_some_and(|since| is_late(since) || !can_release)
    }

    fn say_lost(&self, why: &str) {
        if let Some(lost) = &self.when_lost {
            lost(why.into());
        }
    }

    /// The bounds on the producers of its partition, once the partition is claimed.
    pub(crate) fn hold(&self) -> Option<&Arc<Hold>> {
        let is_claimed = self.has_claimed || self.makes(|mistakes| mistakes.promise_unread);
        self.hold.as_ref().filter(|_| is_claimed && !self.is_over())
    }

    /// The hold, in whatever state.
    pub(crate) fn hold_of_any(&self) -> Option<&Arc<Hold>> {
        self.hold.as_ref()
    }

    /// Whether another process has opened the replicator's home.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Whether the replicator's home is open.
    pub(crate) fn is_home(&self) -> bool {
        matches!(self.state, State::Home(_))
    }

    /// Whether the home has committed a transaction of this replicator.
    pub(crate) fn has_claimed(&self) -> bool {
        self.has_claimed
    }

    /// Up to where each stream is at home, or holds nothing of this share.
    pub(crate) fn homes(&self) -> BTreeMap<Arc<str>, u64> {
        self.lanes.homes()
    }

    /// All of this share up to this ticket is at home.
    pub(crate) fn replicated(&self) -> Option<Ticket> {
        self.replicated
    }

    /// The tenures of the records that were read.
    pub(crate) fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }

    /// The replicator's state, for the metrics.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Does one piece of work. Reads the log, which may block on the disk; does not wait for the home. `now` is
    /// since any fixed moment, and never goes back.
    pub fn step(&mut self, now: Duration, home: &mut dyn Home) -> Step {
        while let Some((number, answer)) = home.answer() {
            if self.answered(number, answer, now, home) {
                return Step::Worked;
            }
        }
        match &self.state {
            State::Over => Step::Idle,
            State::Away { until } if now < *until => Step::WaitUntil(*until),
            State::Away { .. } => {
                let number = self.ask(home, Ask::Look);
                self.state = State::Looking(number, now + self.settings.answer_within);
                self.show();
                Step::Worked
            }
            State::Looking(_, within) | State::Opening(_, within) if now < *within => {
                Step::WaitUntil(*within)
            }
            State::Home(Some(carrying)) if now >= carrying.within => {
                self.failed("the home has not answered in time".into(), now, home);
                Step::Worked
            }
            State::Looking(..) | State::Opening(..) => {
                self.failed("the home has not answered in time".into(), now, home);
                Step::Worked
            }
            State::Home(_) => self.carry(now, home),
        }
    }

    /// Handles an answer of the home; returns whether the answer changed the state.
    fn answered(
        &mut self,
        number: u64,
        answer: Answer,
        now: Duration,
        home: &mut dyn Home,
    ) -> bool {
        let awaited = match &self.state {
            State::Looking(number, _) | State::Opening(number, _) => Some(*number),
            State::Home(Some(carrying)) => Some(carrying.number),
            State::Home(None) | State::Away { .. } | State::Over => None,
        };
        if awaited != Some(number) {
            // The transaction was given up, and settled by opening the home anew.
            return false;
        }
        match (answer, &self.state) {
            (Answer::Held(held), State::Looking(..)) => self.looked(&held, now, home),
            (Answer::Held(held), State::Opening(..)) => self.opened(held, now, home),
            (Answer::Committed, State::Home(_)) => self.committed(now),
            (Answer::Failed(why), _) => self.failed(why, now, home),
            (Answer::Fenced(why), _) => {
                // The home itself may have fenced it, which ends what takes too long: the marks
                // tell.
                self.failed(why, now, home);
                self.make_way(now);
            }
            (Answer::Held(_) | Answer::Committed, _) => {
                self.failed("the home has sent an unexpected answer".into(), now, home);
            }
        }
        true
    }

    fn looked(&mut self, held: &Held, now: Duration, home: &mut dyn Home) {
        if self.is_overtaken(held) {
            // Opening the home again would fence the other process, which would then open it again
            // in turn.
            return self.end(held);
        }
        self.is_foreign = self.is_of_another(held);
        if let Err(why) = self.fits(held) {
            return self.failed(why, now, home);
        }
        if self.makes(|mistakes| mistakes.promise_unread) {
            self.claim_of(held);
        }
        let number = self.ask(home, Ask::Open);
        self.state = State::Opening(number, now + self.settings.answer_within);
        self.show();
    }

    fn opened(&mut self, held: Held, now: Duration, home: &mut dyn Home) {
        if matches!(self.share, Share::Partition { .. }) && self.is_overtaken(&held) {
            return self.end(&held);
        }
        // A transaction that was open at the look may have been committed since.
        if let Err(why) = self.fits(&held) {
            return self.failed(why, now, home);
        }
        self.tenancy.opened(&held, self.has_claimed, now);
        self.carried = carried(&held.notes);
        let mut places = self.places(&held);
        let begun = self.begun(&places);
        self.is_whole = begun.is_empty() && is_whole(&held.notes);
        places.extend(begun.clone());
        let is_same = held.owner.is_some_and(|owner| owner.log == self.owner.log);
        match self.share {
            Share::Whole => self.lanes.begin(&places),
            Share::Partition { .. } if !is_same && !self.makes(|mistakes| mistakes.carry_past) => {
                self.lanes.begin_now(&*self.log);
            }
            Share::Partition { .. } => self.lanes.go_on(&places),
            Share::Own { .. } => {
                // Streams that were not seen in this life may have records of an ended tenure.
                self.lanes.go_on(&BTreeMap::new());
                let homes = places.into_iter().map(|(name, place)| (name, place.next));
                self.own_home = homes.collect();
            }
        }
        if !self.makes(|mistakes| mistakes.promise_unread) {
            self.claim_of(&held);
        }
        self.cursors.begin(&held.cursors);
        self.filling = Filling::claiming(self.owner, self.claim);
        if let Some(first) = begun.values().map(|place| place.next).max() {
            // The note is written with the claim, so that neither is ever found without the other.
            self.notes.put_begins(first);
            self.filling.transaction.streams = begun;
        }
        self.state = State::Home(None);
        let (carried, needs_snapshot) = (self.carried, !self.is_whole);
        self.shown.change(|status| {
            status.carried = carried;
            status.needs_snapshot = needs_snapshot;
        });
        self.show();
    }

    /// Where streams begin whose first records are in no record any more, and of which nothing is at home.
    fn begun(&self, places: &BTreeMap<Arc<str>, Place>) -> BTreeMap<Arc<str>, Place> {
        if !self.settings.needs_all {
            return BTreeMap::new();
        }
        let streams = self.log.streams("", usize::MAX).into_iter();
        let begun = streams.filter(|it| it.range.first > 0 && !places.contains_key(&it.name));
        begun
            .map(|stream| {
                let next = stream.range.first;
                (stream.name, Place { next, print: 0 })
            })
            .collect()
    }

    fn is_overtaken(&self, held: &Held) -> bool {
        self.has_claimed && held.owner != Some(self.owner)
    }

    fn end(&mut self, held: &Held) {
        let why = match held.owner {
            Some(_) if self.share == Share::Whole => {
                "another process has opened the home since, with a copy of this log or in its place"
            }
            Some(_) => "another node has opened the home of this share since",
            None => "the home has lost the marks of this log",
        };
        self.state = State::Over;
        self.tenancy.end();
        self.say_lost(why);
        self.tell(Some(
            format!("{why}: nothing is replicated from this server any more").into(),
        ));
    }

    /// The tenure that begins, or goes on, with what is held, and the marks of its producers.
    fn claim_of(&mut self, held: &Held) {
        let Share::Partition { number, count } = self.share else {
            return;
        };
        let before = held.claim.map_or(0, |claim| claim.tenure);
        let is_same = held.owner.is_some_and(|owner| owner.log == self.owner.log);
        let tenure = if is_same { before } else { before + 1 };
        self.claim = Some(Claim {
            tenure,
            partitions: count,
        });
        let tenure = Tenure {
            partition: number,
            number: tenure,
        };
        match &self.hold {
            Some(hold) if hold.tenure() == tenure => hold.learn(&held.producers),
            _ => self.hold = Some(Arc::new(Hold::new(tenure, &held.producers))),
        }
    }

    /// How far this log has come, as far as it is to go on there.
    fn places(&self, held: &Held) -> BTreeMap<Arc<str>, Place> {
        match (self.share, held.owner, held.claim) {
            (Share::Partition { .. }, Some(owner), Some(claim)) if owner.log == self.owner.log => {
                let own = held.places.get(&(owner.log, claim.tenure));
                own.cloned().unwrap_or_default()
            }
            (Share::Partition { .. }, ..) => BTreeMap::new(),
            (Share::Whole | Share::Own { .. }, ..) => held.streams.clone(),
        }
    }

    fn is_of_another(&self, held: &Held) -> bool {
        let is_other = held.owner.is_some_and(|owner| owner.log != self.owner.log);
        is_other && self.share == Share::Whole
    }

    /// Whether the records of the home are of this log.
    fn fits(&self, held: &Held) -> Result<(), Arc<str>> {
        self.share.fits(held)?;
        if let Some(owner) = held.owner.filter(|_| self.is_of_another(held)) {
            self.say_lost("the home has the log of another server");
            return Err(format!(
                "the home holds the records of another log ({:016x}; this one is {:016x}): this \
                 log is not replicated until it has a home of its own, or is the log that was \
                 restored from there",
                owner.log, self.owner.log
            )
            .into());
        }
        if let Some(why) = &held.hidden {
            return Err(why.clone());
        }
        let places = self.places(held);
        if self.share == Share::Whole && held.has_records {
            self.agrees(&places)?;
        }
        if self.settings.needs_all {
            self.reaches(&places)?;
        }
        for (stream, place) in places {
            self.fits_in(&stream, place)?;
        }
        Ok(())
    }

    /// Whether nothing is missing between what the home holds, if that is anything, and what the log does.
    fn reaches(&self, places: &BTreeMap<Arc<str>, Place>) -> Result<(), Arc<str>> {
        for stream in self.log.streams("", usize::MAX) {
            let Some(&Place { next: home, .. }) = places.get(&stream.name) else {
                continue;
            };
            let first = stream.range.first;
            if first > home {
                return Err(format!(
                    "this log begins at position {first} of stream {:?}, and the home ends at \
                     {home}: the records between are lost, and nothing is replicated without \
                     them",
                    stream.name
                )
                .into());
            }
        }
        Ok(())
    }

    /// Whether the home has the marks of what this log remembers to be there: it would all be carried twice without them.
    fn agrees(&self, places: &BTreeMap<Arc<str>, Place>) -> Result<(), Arc<str>> {
        if self.makes(|mistakes| mistakes.trust_marks) {
            return Ok(());
        }
        for stream in self.log.streams("", usize::MAX) {
            let known = self.log.cursor(&stream.name, CURSOR).unwrap_or(0);
            let home = places.get(&stream.name).map_or(0, |place| place.next);
            let from = home.max(stream.range.first);
            if from >= known || !self.log.comes_home(&stream.name) {
                continue;
            }
            // Records that are gone are not replicated again.
            let read = self.log.read(&stream.name, from, Credit(1));
            let first = read.ok().and_then(|read| Some(read.runs.first()?.first));
            if first.is_some_and(|first| first < known) {
                return Err(format!(
                    "the marks at home say that stream {:?} is there up to position {home}, and by the cursor {CURSOR} of this log it \
                     was there up to {known}: marks were lost (is their topic compacted and nothing else?), or their topic was made anew. \
                     Nothing is replicated twice: give the log a topic of its own, or, where records may be there twice, delete the \
                     cursors {CURSOR} on a server without --replicate",
                    stream.name
                )
                .into());
            }
        }
        Ok(())
    }

    fn fits_in(&self, stream: &str, place: Place) -> Result<(), Arc<str>> {
        if self.makes(|mistakes| mistakes.trust_positions) {
            return Ok(());
        }
        // A stream that was deleted here stays there.
        let Some(range) = self.log.range(stream) else {
            return Ok(());
        };
        let Place { next, print: left } = place;
        if next > range.next {
            return Err(format!(
                "the home holds records of stream {stream:?} up to position {next}, this log \
                 only up to {}: the log is an older copy",
                range.next
            )
            .into());
        }
        if next == 0 || next <= range.first {
            return Ok(());
        }
        let read = match self.log.read(stream, next - 1, Credit(1)) {
            Ok(read) => read,
            // Nothing is there that could be compared.
            Err(ReadError::Gone { .. } | ReadError::Missing { .. }) => return Ok(()),
            Err(error) => return Err(error.to_string().into()),
        };
        let run = read.runs.first();
        if run.is_some_and(|run| print(&run.bytes, run.timestamp_us) != left) {
            return Err(format!(
                "the record before position {next} of stream {stream:?} differs between this log \
                 and the home: this log is a copy that has gone another way"
            )
            .into());
        }
        Ok(())
    }

    /// Reads records, or sends the records that have been read.
    fn carry(&mut self, now: Duration, home: &mut dyn Home) -> Step {
        let is_free = matches!(self.state, State::Home(None));
        let due = self.filling.due(&self.settings);
        if self.look_for_cursors(now) || self.say_if_late(now) {
            return Step::Worked;
        }
        let has_words = self.notes.are_pending() || self.cursors.are_pending();
        let proof = self.tenancy.due();
        let is_due = |due: Option<Duration>| due.is_some_and(|due| due <= now);
        if is_free && (is_due(due) || is_due(proof) || has_words) {
            self.send(now, home);
            return Step::Worked;
        }
        if self.leaving.is_none() && self.filling.room(&self.settings) > 0 {
            match self.fill(now) {
                Ok(true) => return Step::Worked,
                Ok(false) => {}
                Err(why) => {
                    self.failed(why, now, home);
                    return Step::Worked;
                }
            }
        }
        if self.remember(now) {
            return Step::Worked;
        }
        let within = match &self.state {
            State::Home(Some(carrying)) => carrying.slow.or(Some(carrying.within)),
            _ => due.into_iter().chain(proof).min(),
        };
        let remembers = self.forgetful.then_some(self.remember_due);
        let due = [within, remembers, self.cursors_due()]
            .into_iter()
            .flatten()
            .min();
        due.map_or(Step::Idle, Step::WaitUntil)
    }

    /// Says that an answer is late, when it is; whether it has just said so.
    fn say_if_late(&mut self, now: Duration) -> bool {
        let State::Home(Some(carrying)) = &mut self.state else {
            return false;
        };
        if carrying.slow.is_none_or(|slow| now < slow) {
            return false;
        }
        carrying.slow = None;
        let seconds = self.settings.slow_after.as_secs();
        self.tell(Some(
            format!("the home has not answered for {seconds} s").into(),
        ));
        true
    }

    /// When cursors are to be looked for; cursors of a fleet's streams stay with the log.
    fn cursors_due(&self) -> Option<Duration> {
        let due = || self.cursors.due(&*self.log);
        (self.share == Share::Whole).then(due).flatten()
    }

    /// Looks which cursors have moved, now and then; whether there are any.
    fn look_for_cursors(&mut self, now: Duration) -> bool {
        let is_due = self.cursors_due().is_some_and(|due| due <= now);
        let every = self.settings.cursors_every;
        is_due && (self.cursors).look(now, every, &*self.log, &self.lanes.record_ends())
    }

    /// Reads once; returns whether there was work.
    fn fill(&mut self, now: Duration) -> Result<bool, Arc<str>> {
        let Some((stream, from)) = self.lanes.next() else {
            let has_moved = self.lanes.covered().is_some() && self.cover();
            return Ok(self.lanes.look(&*self.log) || has_moved);
        };
        let credit = Credit(self.filling.room(&self.settings).min(READ));
        match self.log.read(&stream, from, credit) {
            // The stream was deleted.
            Ok(read) if read.runs.is_empty() => self.lanes.ends(&stream),
            Err(ReadError::Beyond { .. }) => self.lanes.ends(&stream),
            Ok(read) => {
                let mut reached = read.next;
                for run in read.runs {
                    let end = run.first + u64::from(run.count);
                    if let Some(run) = self.takes(&stream, run) {
                        let next = self.filling.put(&stream, run, now, &self.settings);
                        self.lanes.put(&stream, next);
                        if next < end {
                            // The transaction is full; later records are read again for the next one.
                            reached = next;
                            break;
                        }
                    }
                }
                self.lanes.read(&stream, reached);
                self.show_held();
            }
            Err(ReadError::Gone { first, .. }) => self.skip(&stream, from, first),
            Err(ReadError::Missing { next, .. }) => self.skip(&stream, from, next),
            Err(error @ (ReadError::Damaged(_) | ReadError::Failed(_))) => {
                return Err(error.to_string().into());
            }
        }
        Ok(true)
    }

    /// The form of a run in the home, if the run belongs to this share.
    fn takes(&mut self, stream: &Arc<str>, run: Frames) -> Option<Frames> {
        if self.share == Share::Whole {
            return Some(run);
        }
        let (producer, tenure) = Tenure::split(&run.producer);
        match (self.share, tenure, self.claim) {
            (Share::Own { .. }, None, _) => {
                from(run, self.own_home.get(stream).copied().unwrap_or(0))
            }
            (Share::Own { .. }, Some(tenure), _) => {
                self.seen.note(tenure, stream, &run);
                None
            }
            (Share::Partition { number, .. }, Some(tenure), Some(claim))
                if tenure.partition == number
                    && (tenure.number == claim.tenure
                        || self.makes(|mistakes| mistakes.carry_past)) =>
            {
                let producer = producer.into();
                Some(Frames { producer, ..run })
            }
            _ => None,
        }
    }

    /// Skips records that are removed or lost: later records go home.
    fn skip(&mut self, stream: &str, from: u64, next: u64) {
        if from == 0 {
            // These records were removed before there was a home.
            self.lanes.read(stream, next);
            return;
        }
        tracing::warn!(
            stream,
            from,
            next,
            "records are lost or removed, and are not replicated"
        );
        self.shown
            .change(|status| status.lost += next.saturating_sub(from));
        self.lanes.read(stream, next);
    }

    /// Everything up to the last look is in transactions: its ticket goes with the last of them, or is in the home
    /// already. Returns whether the watermark has moved.
    fn cover(&mut self) -> bool {
        let ticket = self.lanes.covered();
        match &mut self.state {
            _ if !self.filling.is_empty() => self.filling.covers = ticket,
            State::Home(Some(carrying)) => carrying.covers = ticket,
            _ if self.replicated < ticket => {
                self.replicated = ticket;
                self.tell(None);
                return true;
            }
            _ => {}
        }
        false
    }

    fn send(&mut self, now: Duration, home: &mut dyn Home) {
        let mut filled = std::mem::replace(&mut self.filling, Filling::new(self.owner, self.claim));
        let streams = filled.transaction.streams.clone();
        let producers = match self.share {
            Share::Partition { .. } => filled.transaction.producers.clone(),
            Share::Whole | Share::Own { .. } => Marks::new(),
        };
        if self.makes(|mistakes| mistakes.marks_apart) {
            self.filling.transaction.streams = std::mem::take(&mut filled.transaction.streams);
        }
        let notes = self.notes.pending();
        filled.transaction.notes = notes.clone();
        let (lanes, places) = (&self.lanes, &streams);
        let is_ahead = self.makes(|mistakes| mistakes.cursors_ahead);
        let cursors = self.cursors.take(|stream| match is_ahead {
            true => u64::MAX,
            false => lanes.end_with(stream, places),
        });
        filled.transaction.cursors = cursors.clone();
        let carried = self.carried + filled.bytes as u64;
        if self.settings.needs_all && filled.bytes > 0 {
            let word = carried.to_le_bytes()[..].into();
            filled.transaction.notes.insert(CARRIED.into(), word);
        }
        (self.tenancy).put_word(now, &mut filled.transaction.notes);
        let ask = Ask::Carry(filled.transaction);
        let repeats = self.makes(|mistakes| mistakes.repeat_unsettled);
        let again = repeats.then(|| ask.clone());
        let number = self.ask(home, ask);
        self.state = State::Home(Some(Box::new(Carrying {
            number,
            sent: now,
            within: now + self.settings.answer_within,
            slow: Some(now + self.settings.slow_after),
            streams,
            producers,
            covers: filled.covers,
            notes,
            cursors,
            bytes: filled.bytes,
            messages: filled.messages,
            carried,
            again,
        })));
        if self.makes(|mistakes| mistakes.early_watermark) && filled.covers.is_some() {
            self.replicated = filled.covers;
            self.tell(None);
        }
    }

    fn committed(&mut self, now: Duration) {
        let State::Home(Some(carried)) = std::mem::replace(&mut self.state, State::Home(None))
        else {
            unreachable!("it is what was waited for");
        };
        (self.retry, self.fenced) = (self.settings.retry_first, self.settings.after_fenced);
        self.has_claimed = true;
        self.tenancy.proved(carried.sent, now);
        self.carried = carried.carried;
        self.lanes.arrived(&carried.streams);
        self.is_whole |= carried.notes.contains_key(SNAPSHOT);
        self.notes.arrived(carried.notes);
        self.cursors
            .arrived(carried.cursors, !carried.streams.is_empty());
        if let Some(hold) = &self.hold {
            hold.learn(&carried.producers);
        }
        self.forgetful |= self.share == Share::Whole && !carried.streams.is_empty();
        self.replicated = self.replicated.max(carried.covers);
        let is_whole = self.is_whole;
        self.shown.change(|status| {
            status.transactions += 1;
            status.messages += carried.messages;
            status.bytes += carried.bytes as u64;
            status.carried = carried.carried;
            status.needs_snapshot &= !is_whole;
        });
        self.tell(None);
    }

    /// An operation failed with unknown outcome: everything begins anew.
    fn failed(&mut self, why: Arc<str>, now: Duration, home: &mut dyn Home) {
        self.shown.change(|status| status.failures += 1);
        if let State::Home(Some(carrying)) = &mut self.state
            && let Some(again) = carrying.again.clone()
        {
            carrying.within = now + self.settings.answer_within;
            self.asked += 1;
            carrying.number = self.asked;
            return home.ask(self.asked, again);
        }
        self.filling = Filling::new(self.owner, self.claim);
        self.state = State::Away {
            until: now + self.retry,
        };
        self.retry = (2 * self.retry).min(self.settings.retry_last);
        self.tell(Some(why));
    }

    /// Opening the home at once would fence a process that is about to leave its name there, and
    /// that would open the home again in turn.
    fn make_way(&mut self, now: Duration) {
        if let (State::Away { until }, Share::Whole) = (&mut self.state, self.share) {
            *until = (now + self.fenced).max(*until);
            self.fenced = (2 * self.fenced).min(4 * self.settings.after_fenced);
        }
    }

    fn ask(&mut self, home: &mut dyn Home, ask: Ask) -> u64 {
        self.asked += 1;
        home.ask(self.asked, ask);
        self.asked
    }

    /// Writes down how far streams are at home, now and then; whether it did.
    fn remember(&mut self, now: Duration) -> bool {
        if !self.forgetful || now < self.remember_due {
            return false;
        }
        self.forgetful = false;
        let homes = self.lanes.homes();
        self.remember_due = now + CURSOR_EVERY;
        for (stream, &home) in &homes {
            if self.remembered.get(stream) != Some(&home) && self.log.comes_home(stream) {
                // A cursor that is refused only costs records that are kept too long after a start
                // without a home.
                let _ = self.log.set_cursor(stream, CURSOR, home);
            }
        }
        self.remembered = homes;
        true
    }

    /// Tells the log and the status how far it is.
    fn tell(&mut self, trouble: Option<Arc<str>>) {
        let before = self.shown.status().trouble;
        let share = self.share;
        match (&before, &trouble) {
            (_, Some(why)) if before != trouble => {
                tracing::warn!(%share, why = &**why, "replication is interrupted");
            }
            (Some(_), None) => tracing::info!(%share, "replication goes on"),
            _ => {}
        }
        if let Some(hold) = &self.hold {
            hold.reached(self.replicated);
        }
        if share == Share::Whole {
            self.log.carried(Carried {
                home: self.lanes.homes(),
                replicated: self.replicated,
                replicates: (self.has_claimed
                    && !self.is_over()
                    && self.may_promise()
                    && self.tenancy.has_begun())
                    || self.makes(|mistakes| mistakes.promise_unread),
                seeks_home: self.seeks_home(),
                away: trouble.clone().map(Failure),
            });
        }
        let home = self.lanes.homes();
        self.shown.change(|status| {
            status.home = home;
            status.trouble = trouble;
        });
        self.show();
    }

    /// Whether the replicator may still get its home, and never had it.
    pub(crate) fn seeks_home(&self) -> bool {
        !self.has_claimed && !self.is_over() && !self.is_foreign
    }

    /// Whether acknowledged records could be restored from the home alone.
    fn may_promise(&self) -> bool {
        self.is_whole || self.makes(|mistakes| mistakes.promise_part)
    }

    fn show_held(&self) {
        let carried = match &self.state {
            State::Home(Some(carrying)) => carrying.bytes,
            _ => 0,
        };
        let held = (self.filling.bytes + carried) as u64;
        self.shown.change(|status| status.held = held);
    }

    fn show(&self) {
        self.show_held();
        let phase = match self.state {
            State::Away { .. } => Phase::Away,
            State::Looking(..) => Phase::Looking,
            State::Opening(..) => Phase::Opening,
            State::Home(_) => Phase::Carrying,
            State::Over => Phase::Over,
        };
        self.shown.change(|status| status.phase = phase);
    }

    fn makes(&self, which: impl Fn(&crate::Mistakes) -> bool) -> bool {
        self.settings.mistakes.makes(which)
    }
}
