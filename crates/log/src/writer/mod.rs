//! The writer: takes the gathered group, writes it, syncs it according to the policy, notifies
//! callers.
//!
//! The one idea: the writer is a state machine that is driven by steps and given the time. A thread
//! drives it in production, a test on a simulated disk. After the log was opened, only the writer
//! changes its files.

mod active;
mod awaiting;
mod claim;
mod commit;
mod retention;
mod segments;

use std::sync::Arc;
use std::time::Duration;

use crate::ahead;
use crate::catalog::BatchNotes;
use crate::claims::ClaimsFile;
use crate::disk::{Disk, DiskFile};
use crate::gather::{Gate, Group};
use crate::shared::Shared;
use crate::{Kind, Policy, Ticket};
pub(crate) use active::{Active, SPARE};
use active::{Spare, checkpoint};
use awaiting::{Awaiting, hold_of};

/// The time of the log's clocks at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Since any fixed moment; never goes back.
    pub monotonic: Duration,
    /// The wall clock, in microseconds since the Unix epoch.
    pub unix_us: u64,
}

/// The result of one step of the writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The step did nothing; the writer has no work until a caller appends.
    Idle,
    /// The step did some work; there may be more at once.
    Worked,
    /// The step did nothing; at this monotonic time there will be work.
    WaitUntil(Duration),
}

/// How often retention by age and idle producers are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(60);
/// How often the retention of streams is looked at, where there is any.
const TRIMMING: Duration = Duration::from_secs(1);

/// A bound of the bytes that a gap takes in its batch.
const GAP_RUN: u64 = 64;

/// The writer of a log.
#[derive(Debug)]
pub struct Writer<D: Disk> {
    shared: Arc<Shared<D>>,
    /// The group in hand; empty between steps.
    taken: Group,
    /// The random number of the log.
    log: u64,
    /// The kind of data in the log: messages or keys.
    kind: Option<Kind>,
    /// The number of this opening of the log.
    epoch: u32,
    /// The log's own clock: its value when the log was opened, and the monotonic clock's value at
    /// the first step.
    lived_us: u64,
    began: Option<Duration>,
    /// The claims file; `None` while the disk has no room for it.
    claims: Option<ClaimsFile<D::File>>,
    /// When to claim durable batches, if no group comes before.
    claim_due: Option<Duration>,
    /// The segment that is being written; `None` before the first batch of a new log.
    active: Option<Active<D::File>>,
    spare: Option<Spare<D::File>>,
    /// The disk had no room for the spare.
    fears_end: bool,
    /// When to try again to reserve room, if there was not enough.
    room_due: Option<Duration>,
    /// The number of the next batch.
    next_batch: u64,
    /// All batches up to this one are durable.
    durable: u64,
    /// Written but not committed; empty between steps except with [`Policy::Interval`].
    pending: Vec<BatchNotes>,
    /// When the oldest group was taken that is not committed.
    taken_at: Option<Duration>,
    /// When the oldest group was taken that was committed since a sync was asked for.
    committed_from: Option<Duration>,
    /// When the oldest committed group must be synced.
    sync_due: Option<Duration>,
    /// The event for which the next group waits.
    awaiting: Awaiting,
    written: Ticket,
    groups: u64,
    /// Finished segments that were not synced, with [`Policy::Os`], in their order.
    unsynced: Vec<u64>,
    /// How many finished segments there were at the previous housekeeping: the system has written most of their pages,
    /// and they are synced one by one when there is nothing else to do.
    settled: usize,
    /// Bytes that earlier openings have written and that are not known to be durable, with
    /// [`Policy::Os`]: the segment, and up to where. As long as there is some, a sync proves nothing.
    unproven: Vec<(u64, u64)>,
    /// Names were changed since the directory was synced.
    names_changed: bool,
    housekeeping_due: Duration,
    failed: bool,
}

/// The parts of a writer that recovery leaves behind.
pub(crate) struct Recovered<D: Disk> {
    pub(crate) shared: Arc<Shared<D>>,
    pub(crate) log: u64,
    pub(crate) kind: Option<Kind>,
    pub(crate) epoch: u32,
    pub(crate) lived_us: u64,
    pub(crate) claims: Option<ClaimsFile<D::File>>,
    pub(crate) active: Option<Active<D::File>>,
    pub(crate) next_batch: u64,
    pub(crate) durable: u64,
    /// Finished segments with batches that are not known to be durable.
    pub(crate) unsynced: Vec<u64>,
    pub(crate) unproven: Vec<(u64, u64)>,
}

/// A write or a sync failed: what was attempted, and why.
struct Failed(String);

impl<D: Disk> Writer<D> {
    pub(crate) fn new(recovered: Recovered<D>) -> Writer<D> {
        let Recovered {
            shared,
            log,
            kind,
            epoch,
            lived_us,
            claims,
            active,
            next_batch,
            durable,
            unsynced,
            unproven,
        } = recovered;
        let taken = Group::new(&shared.settings);
        Writer {
            shared,
            taken,
            log,
            kind,
            epoch,
            lived_us,
            began: None,
            claims,
            claim_due: None,
            active,
            spare: None,
            fears_end: false,
            room_due: None,
            next_batch,
            durable,
            pending: Vec::new(),
            taken_at: None,
            committed_from: None,
            sync_due: None,
            awaiting: Awaiting::default(),
            written: Ticket(0),
            groups: 0,
            unsynced,
            settled: 0,
            unproven,
            names_changed: false,
            housekeeping_due: Duration::ZERO,
            failed: false,
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared<D>> {
        &self.shared
    }

    /// Does one piece of work: a group of batches, a sync that is due, or housekeeping. Blocks on
    /// the disk. A step of a failed log does nothing.
    pub fn step(&mut self, now: Now) -> Step {
        // Another thread may have found that the disk cannot be trusted.
        self.failed |= self.shared.progress().failure.is_some();
        if self.failed {
            self.shared.gather().ask_nothing();
            return Step::Idle;
        }
        self.began.get_or_insert(now.monotonic);
        let worked = self.try_step(now).unwrap_or_else(|failed| {
            self.fail(failed);
            true
        });
        if worked {
            return Step::Worked;
        }
        let due = [
            self.room_due,
            self.sync_due,
            self.awaiting.due(),
            self.claim_due,
            Some(self.housekeeping_due),
        ];
        due.into_iter()
            .flatten()
            .min()
            .map_or(Step::Idle, Step::WaitUntil)
    }

    /// When the writer took the oldest batch that it has committed since the last call, if there was
    /// one.
    pub(crate) fn committed_from(&mut self) -> Option<Duration> {
        self.committed_from.take()
    }

    fn try_step(&mut self, now: Now) -> Result<bool, Failed> {
        if self.room_due.is_some_and(|due| now.monotonic >= due) {
            self.keep_room(now.monotonic);
            if self.room_due.is_none() {
                return Ok(true);
            }
        }
        if self.sync_due.is_some_and(|due| now.monotonic >= due) {
            self.sync(now)?;
            self.commit();
            return Ok(true);
        }
        if std::mem::take(&mut self.shared.gather().is_changed) {
            self.housekeeping_due = Duration::ZERO;
        }
        // While one group follows another, the writer is never idle.
        if now.monotonic >= self.housekeeping_due + TRIMMING {
            return self.keep_house(now);
        }
        if self.sync_when_asked(now)? || self.write_group(now)? {
            return Ok(true);
        }
        if self.discard_when_asked(now)? {
            return Ok(true);
        }
        if self.claim_due.is_some_and(|due| now.monotonic >= due) {
            self.claim_in_silence(now)?;
            return Ok(true);
        }
        if self.sync_settled(now)? {
            return Ok(true);
        }
        if now.monotonic >= self.housekeeping_due {
            return self.keep_house(now);
        }
        Ok(false)
    }

    fn keep_house(&mut self, now: Now) -> Result<bool, Failed> {
        // A producer that is to be forgotten soon is not kept for longer than that.
        let idle = self.shared.settings.producer_idle;
        let idle = idle.max(Duration::from_secs(1));
        let is_administered = self.trim(now);
        let often = if is_administered {
            TRIMMING
        } else {
            HOUSEKEEPING
        };
        self.housekeeping_due = now.monotonic + often.min(idle);
        self.expire(now);
        self.retain(now)?;
        self.settled = self.unsynced.len();
        Ok(true)
    }

    /// Takes the gathered records, if any, and writes them as one group.
    fn write_group(&mut self, now: Now) -> Result<bool, Failed> {
        let mut gather = self.shared.gather();
        gather.lived_us = self.lived(now);
        if self.awaiting.holds(&mut gather, now.monotonic) {
            return Ok(false);
        }
        if gather.group.is_empty() && !gather.begins_segment {
            let wants_more = gather.wants_more();
            drop(gather);
            if wants_more {
                self.keep_room(now.monotonic);
            }
            return Ok(wants_more);
        }
        gather.take(&mut self.taken);
        self.awaiting.took(self.taken.runs);
        self.groups += 1;
        let length = self.taken.bytes.len() as u64;
        let needs = gather.state.needs();
        let length = length + if self.taken.gap.is_some() { GAP_RUN } else { 0 };
        let fits = !std::mem::take(&mut gather.begins_segment)
            && (self.active.as_ref())
                .is_some_and(|active| active.left() >= length + 8 && active.needs.has(needs));
        // The checkpoint tells what is so after this group, and others append as soon as the lock
        // is released.
        let checkpoint = (!fits).then(|| {
            // The next spare segment is taken with the reserve.
            (gather.ready_for, gather.has_spare) = (needs, false);
            self.expire_in(&mut gather);
            checkpoint(&gather.state)
        });
        if self
            .shared
            .settings
            .mistakes
            .makes(|mistakes| mistakes.trust_index)
        {
            ahead::save(&self.shared.disk, &gather.state, self.next_batch + 1)
                .map_err(|error| Failed(format!("writing the marks: {error}")))?;
        }
        let room_made = std::mem::take(&mut gather.refused);
        drop(gather);
        if room_made {
            self.shared.watchers.wake();
        }
        match checkpoint {
            None => {
                self.write_batch(now)?;
                self.settle(now)?;
            }
            Some((checkpoint, needs)) => {
                self.roll(&checkpoint, needs, now)?;
                self.settle(now)?;
                // Before room is reserved for the next one: the limit of the log's size holds while that is done, too.
                self.retain(now)?;
            }
        }
        self.keep_room(now.monotonic);
        self.keep_up();
        Ok(true)
    }

    /// Called when a batch was written: commits it, or makes sure that it will be committed.
    fn settle(&mut self, now: Now) -> Result<(), Failed> {
        self.taken_at.get_or_insert(now.monotonic);
        let mistakes = self.shared.settings.mistakes;
        match self.shared.settings.policy {
            Policy::Sync => {
                if mistakes.makes(|mistakes| mistakes.ack_before_sync) {
                    self.commit();
                }
                self.sync(now)?;
                self.commit();
                let wait = self.shared.settings.group_wait;
                self.awaiting.begin(&self.shared.gather(), wait);
            }
            Policy::Interval(interval) => {
                // The first of the group may have come as long ago as a group is held.
                let due = now.monotonic + interval - hold_of(interval);
                self.sync_due.get_or_insert(due);
                self.awaiting.begin_large(interval);
                self.begin_writing();
                let mut progress = self.shared.progress();
                (progress.written, progress.groups) = (self.written, self.groups);
                drop(progress);
                self.shared.watchers.wake();
            }
            Policy::Os => self.commit(),
        }
        Ok(())
    }

    /// Settles everything that was taken, and ends the log in order: with a batch that says that
    /// all before it is durable. After `close` the log takes no records.
    pub fn close(mut self, now: Now) {
        self.shared.gather().gate = Gate::Shut;
        let closed = self.try_close(now);
        if let Err(failed) = closed {
            self.fail(failed);
        }
    }

    fn try_close(&mut self, now: Now) -> Result<(), Failed> {
        if self.failed {
            return Ok(());
        }
        // At most two groups: one that gathered before new batches were refused, and an empty one.
        while self.write_group(now)? {}
        self.sync(now)?;
        self.commit();
        let last = self.next_batch - 1;
        let has_room = self
            .active
            .as_ref()
            .is_some_and(|active| active.left() >= 128);
        if has_room && self.durable == last && !self.ends_closed() {
            self.write_closing(now)?;
            self.sync(now)?;
            self.commit();
        }
        self.claim(now)?;
        match self.room_due {
            None => {
                self.drop_spare();
                self.shared.reserve.drop_file(&self.shared.disk);
            }
            // On a full disk the next opening is to have it at once.
            Some(_) => self.leave_reserve(),
        }
        if let Some(active) = &self.active {
            // The reserved space is given back; a failure does no harm.
            let _ = active.file.truncate(active.used);
        }
        Ok(())
    }

    fn fail(&mut self, Failed(why): Failed) {
        self.failed = true;
        self.shared.fail(why.into());
    }
}
