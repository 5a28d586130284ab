//! Segments: writing a batch to the one in use, beginning the next, keeping one in reserve.
//!
//! The one idea: space is reserved before the records that need it are accepted. Groups are small at
//! first and grow with the load, and so does the reserved space: in the segment in use, and in a spare
//! file when a quarter of the segment is full. While neither could hold a group in flight and one that
//! gathers, nothing is accepted.

use std::io::{self, IoSlice};
use std::time::Duration;

use super::active::{Active, SPARE, Spare};
use super::{Failed, Now, Writer};
use crate::catalog::{BatchNotes, Index, Segment};
use crate::disk::{Disk, DiskFile, has_no_descriptor};
use crate::format::{
    BATCH_HEADER, BatchHeader, Flags, Needs, SEGMENT_HEADER, SegmentHeader, VERSION, padding,
    put_missing, segment_name,
};
use crate::gather::{Another, Gate, Larger};
use crate::index::Saved;
use crate::reserve::RESERVE;
use crate::{Failure, Kind, Policy};

/// Bytes with which the disk is to begin at once.
const BEGIN_EVERY: u64 = 1 << 20;

/// Most bytes of changes of streams that are taken while the disk is full.
const CHANGES_ROOM: u64 = 64 << 10;

impl<D: Disk> Writer<D> {
    /// Writes the group in hand to the segment in use, which has room for it.
    pub(super) fn write_batch(&mut self, now: Now) -> Result<(), Failed> {
        self.write(&[], None, Flags::default(), now)
    }

    pub(super) fn write_closing(&mut self, now: Now) -> Result<(), Failed> {
        self.write(&[], None, Flags::CLOSING, now)?;
        if let Some(active) = &mut self.active {
            active.closed = true;
        }
        Ok(())
    }

    pub(super) fn ends_closed(&self) -> bool {
        self.active.as_ref().is_none_or(|active| active.closed)
    }

    /// Begins the next segment with the group in hand and a checkpoint.
    pub(super) fn roll(&mut self, checkpoint: &[u8], needs: Needs, now: Now) -> Result<(), Failed> {
        self.finish_segment(now)?;
        let number = self.next_batch;
        let name = segment_name(number);
        let filled = self.shared.zeros.end();
        let Some(mut spare) = self.spare.take() else {
            return Err(Failed(format!("{name}: no room was reserved for it")));
        };
        self.shared.reserve.no_spare();
        spare.length = spare.length.max(filled);
        let whole = SEGMENT_HEADER + self.taken.bytes.len() + checkpoint.len();
        let length = spare.length.max((whole + 2 * crate::format::ALIGN) as u64);
        if length > spare.length {
            spare.file.reserve(length).map_err(|error| {
                Failed(format!(
                    "{name}: cannot be made {length} bytes long: {error}"
                ))
            })?;
        }
        self.shared
            .disk
            .rename(SPARE, &name)
            .map_err(|error| Failed(format!("{name}: cannot be given its name: {error}")))?;
        self.names_changed = true;
        let active = Active {
            number,
            version: VERSION,
            needs,
            file: spare.file,
            used: 0,
            length,
            begun: 0,
            unsynced: true,
            closed: false,
        };
        let before = self.active.replace(active);
        let empty = Segment {
            used: 0,
            newest_us: 0,
            lived_us: 0,
            index: Index::default(),
            gaps: Vec::new(),
            left_out: 0,
        };
        self.shared
            .change_catalog(|catalog| catalog.add_segment(number, empty));
        if self
            .shared
            .settings
            .mistakes
            .makes(|mistakes| mistakes.delete_early)
        {
            self.retain(now)?;
        }
        let header = SegmentHeader {
            version: VERSION,
            needs,
            log: self.log,
            number,
            kind: self.kind,
        }
        .encode();
        self.write(&header, Some(checkpoint), Flags::CHECKPOINT, now)?;
        if let Some(before) = before {
            self.seal(&before, now);
        }
        Ok(())
    }

    /// Writes the group in hand as a batch behind `front`, and empties it.
    fn write(
        &mut self,
        front: &[u8],
        checkpoint: Option<&[u8]>,
        flags: Flags,
        now: Now,
    ) -> Result<(), Failed> {
        let lived_us = self.lived(now);
        let active = self.active.as_mut().expect("a segment is in use");
        let group = &mut self.taken;
        let checkpoint_run = checkpoint.unwrap_or_default();
        let (mut gap_run, mut flags) = (Vec::new(), flags);
        if let Some(gap) = group.gap {
            put_missing(&mut gap_run, self.next_batch, &[gap]);
            flags = Flags(flags.0 | Flags::GAP.0);
        }
        let unpadded = group.bytes.len() + gap_run.len() + checkpoint_run.len();
        let pad = [0; crate::format::ALIGN];
        let pad = &pad[..padding(unpadded)];
        let length = unpadded + pad.len();
        let header = BatchHeader {
            log: self.log,
            segment: active.number,
            number: self.next_batch,
            durable_through: self.durable,
            written_us: now.unix_us,
            length: length as u32,
            runs: group.runs + u32::from(group.gap.is_some()) + u32::from(checkpoint.is_some()),
            records: group.records,
            body_crc: [&gap_run[..], checkpoint_run]
                .into_iter()
                .fold(group.body_crc, crc32c::crc32c_append),
            flags,
            header: BATCH_HEADER,
            epoch: self.epoch,
            lived_us,
        };
        group.bytes[..BATCH_HEADER].copy_from_slice(&header.encode());
        let parts = [front, &group.bytes, &gap_run, checkpoint_run, pad].map(IoSlice::new);
        active.unsynced = true;
        active.closed = false;
        active.file.write_at(&parts, active.used).map_err(|error| {
            let (name, at) = (segment_name(active.number), active.used);
            Failed(format!(
                "{name}: write of {length} bytes at byte {at} failed: {error}"
            ))
        })?;
        let offset = active.used + front.len() as u64;
        active.used = offset + length as u64;
        self.pending.push(BatchNotes {
            offset,
            length: length as u64,
            newest_us: group.newest_us,
            lived_us,
            notes: group.notes.clone(),
            turns: group.turns.clone(),
        });
        self.next_batch += 1;
        self.written = self.written.max(group.last);
        group.clear(&self.shared.settings);
        Ok(())
    }

    /// Gives back the room that a finished segment did not use, and saves its index.
    fn seal(&self, segment: &Active<D::File>, now: Now) {
        let (log, number) = (self.log, segment.number);
        let header = SegmentHeader {
            version: segment.version,
            needs: segment.needs,
            log,
            number,
            kind: None,
        };
        let view = self.shared.catalog().segments.get(&number).cloned();
        let next_batch = self
            .active
            .as_ref()
            .map_or(self.next_batch, |active| active.number);
        // If one of these fails, the room stays taken or the next opening reads the segment:
        // nothing else is wrong.
        let _ = segment.file.truncate(segment.used);
        if let Some(view) = view {
            let _ = Saved {
                header,
                next_batch,
                epoch: self.epoch,
                lived_us: self.lived(now),
                view,
            }
            .save(&self.shared.disk);
        }
    }

    /// Reserves as much space as may be needed: for a group in flight and one that gathers, and for growing
    /// beyond the limit if any caller ever did, in the segment in use or in the next one. If there is no
    /// space, tries again later.
    pub(crate) fn keep_room(&mut self, monotonic: Duration) {
        let shared = self.shared.clone();
        let settings = &shared.settings;
        let (limit, wanted, checkpoint, wants_segment, wants_growth, asked) = {
            let gather = self.shared.gather();
            let wanted = gather.wanted.clamp(gather.limit, settings.group_bytes);
            let checkpoint = gather.state.encoded_len();
            let segment = matches!(gather.another, Another::Wanted | Another::Blocked);
            let growth = gather.growth.is_wanted;
            let asked = gather.looks_asked;
            (gather.limit, wanted, checkpoint, segment, growth, asked)
        };
        // Twice as much, for a while of quiet; the power of two keeps the calls few.
        let wanted = match wanted > limit {
            true => wanted
                .next_power_of_two()
                .max(2 * limit)
                .min(settings.group_bytes),
            false => limit,
        };
        // An error other than a full disk.
        let mut other = None;
        let (limit, secured) = match self.secure(wanted, 0, checkpoint) {
            Ok(()) => (wanted, Ok(())),
            Err(error) if wanted > limit => {
                keep_other(error, &mut other);
                (limit, self.secure(limit, 0, checkpoint))
            }
            Err(error) => (limit, Err(error)),
        };
        let (limit, mut secured) = match secured {
            Err(error) if is_full(&error) => self.secure_less(limit, checkpoint, error),
            secured => (limit, secured),
        };
        let is_blocked_by_other = other.is_some();
        let mut has_reserve = match &secured {
            Err(error) if is_full(error) => self.secure_from_reserve(limit, checkpoint),
            _ => false,
        };
        let largest = settings.group_bytes as u64;
        let mut is_growth_blocked = false;
        let room = wants_growth.then(|| {
            // Behind the other room: callers that do not grow are to do without.
            let room = match &secured {
                Ok(()) => self.secure(limit, largest, checkpoint),
                Err(_) => return false,
            };
            if let Err(error) = room {
                is_growth_blocked = keep_other(error, &mut other);
                return false;
            }
            true
        });
        let full = settings.segment_length(checkpoint);
        let least = settings.segment_least(checkpoint, limit).min(full);
        let mut another = Another::Unasked;
        if wants_segment && let Err(error) = self.have_spare(least, full) {
            // Changes of streams wait for a segment of their own. Removals of keys do not.
            let is_for_changes = settings.kind != Some(Kind::Keys) && is_full(&error);
            let has_one = is_for_changes && self.take_reserve(limit, 0, checkpoint);
            if has_one {
                // From now on for what makes room alone.
                has_reserve = true;
                secured = secured.and(Err(error));
            } else {
                another = match keep_other(error, &mut other) {
                    true => Another::Blocked,
                    false => Another::DiskFull,
                };
            }
        }
        let is_refused = limit < wanted || secured.is_err() || room == Some(false);
        let is_segment_blocked = another == Another::Blocked;
        if is_refused || is_segment_blocked || self.fears_end {
            self.room_due = Some(monotonic + self.shared.settings.full_retry);
        } else {
            self.room_due = None;
        }
        let mut gather = self.shared.gather();
        if wants_segment {
            gather.another = another;
        }
        gather.has_spare = self.spare.is_some();
        gather.ready_for = match (&self.spare, &self.active) {
            (None, Some(active)) => active.needs,
            _ => Needs::KNOWN,
        };
        let has_more = room == Some(true) && gather.growth.room != room;
        let grown = limit > gather.limit || (wants_segment && !is_segment_blocked) || has_more;
        gather.growth.room = room;
        gather.growth.is_blocked = is_growth_blocked;
        gather.fears_end = self.fears_end;
        // A caller that has made room since then asks once more. What is to be removed makes room: it is looked for behind that.
        if !gather.discard_asked {
            gather.looks_done = asked;
        }
        gather.limit = limit;
        gather.larger = match limit < wanted {
            false => Larger::Free,
            true if is_blocked_by_other => Larger::Blocked,
            true => Larger::DiskFull,
        };
        if gather.larger == Larger::Free {
            gather.wanted = 0;
        }
        let gate = match gather.gate {
            Gate::Shut => return,
            _ => match &secured {
                Ok(()) => Gate::Open,
                Err(error) if !is_full(error) => Gate::Blocked,
                Err(_) if has_reserve => Gate::Reserve,
                Err(_) => Gate::DiskFull,
            },
        };
        let has_changed = gate != gather.gate;
        gather.gate = gate;
        let may_grow = if room == Some(true) {
            settings.group_bytes
        } else {
            0
        };
        let taken = BATCH_HEADER + gather.group.gathered() + gather.reserved + may_grow;
        gather.room_left = (self.left_for_changes() as usize).saturating_sub(2 * taken);
        drop(gather);
        if let Err(error) = secured {
            keep_other(error, &mut other);
        }
        let blocked = other.map(|error| {
            let advice = match has_no_descriptor(&error) {
                true => {
                    ": the process has as many files and connections open as it may: raise its limit (ulimit -n), or \
                     lower --max-connections"
                }
                false => "",
            };
            let text = format!("no room can be reserved for the log: {error}{advice}");
            Failure(text.into())
        });
        let mut progress = self.shared.progress();
        progress.blocked = blocked;
        progress.is_full = matches!(gate, Gate::DiskFull | Gate::Reserve);
        drop(progress);
        if has_changed || grown {
            self.shared.watchers.wake();
        }
    }

    /// Room in the segment in use, if it may hold changes of streams.
    fn left_for_changes(&self) -> u64 {
        let active = self.active.as_ref();
        let active = active.filter(|active| active.needs.has(Needs::STREAMS));
        active.map_or(0, |active| active.left().min(CHANGES_ROOM))
    }

    /// Reserves the room for groups of this size, one of which may be larger by `growth`.
    fn secure(&mut self, group: usize, growth: u64, checkpoint: u64) -> io::Result<()> {
        self.have_claims()?;
        let shared = self.shared.clone();
        let settings = &shared.settings;
        let full = settings.segment_length(checkpoint);
        let batch = settings.batch_of(group);
        let room = 2 * batch + growth;
        let least = (settings.segment_least(checkpoint, group) + growth).min(full);
        self.hold_reserve(group, checkpoint)?;
        let mut left = 0;
        if let Some(active) = self
            .active
            .as_mut()
            .filter(|active| active.version == VERSION)
        {
            let needs = active.used + room;
            if active.length < needs && needs <= full {
                // Twice as long if there is space, so that this is seldom done.
                let generous = (2 * active.length).clamp(needs, full);
                let file = active.file.clone();
                let (taken, idle) = (active.length, active.length - active.used);
                let spare = self.spare.as_ref().map_or(0, |spare| spare.length);
                let reserve = |length: u64| {
                    shared.may_take(length - taken, idle + spare, true)?;
                    file.reserve(length).map(|()| length)
                };
                match reserve(generous).or_else(|_| reserve(needs)) {
                    Ok(length) => active.length = length,
                    // If the segment cannot grow, the space is reserved in the next one.
                    Err(error) if self.spare.is_none() => return Err(error),
                    Err(_) => {}
                }
            }
            left = active.left();
            // While much of the segment is unused, the next one can wait.
            let is_young = active.used < full / 4 && full - active.used >= 2 * batch + room;
            if left >= room && is_young && self.spare.is_none() {
                self.fears_end = false;
                return Ok(());
            }
        }
        let secured = self.have_spare(least, full);
        self.fears_end = secured.as_ref().is_err_and(is_full);
        if left >= room { Ok(()) } else { secured }
    }

    /// Reserves space for groups of the initial size, where there is none for groups of `limit`
    /// bytes: the next segment needs less space then, which matters where segments are a large part
    /// of the disk.
    fn secure_less(
        &mut self,
        limit: usize,
        checkpoint: u64,
        error: io::Error,
    ) -> (usize, io::Result<()>) {
        let first = self.shared.settings.first_group();
        let has_spare = self.spare.is_some();
        let is_lent = self.shared.reserve.is_lent();
        if is_lent || (limit <= first && !has_spare) || !self.promises_nothing() {
            return (limit, Err(error));
        }
        // The spare holds nothing, and what is left free for it is as much again.
        let was_reserve = self.shared.reserve.is_spare();
        if was_reserve && has_spare && !self.return_reserve() {
            return (limit, Err(error));
        }
        let mut secured = self.secure(first, 0, checkpoint);
        if secured.as_ref().is_err_and(is_full) && has_spare && !was_reserve {
            self.drop_spare();
            secured = self.secure(first, 0, checkpoint);
        }
        match secured {
            Ok(()) => (first, Ok(())),
            Err(_) => (limit, Err(error)),
        }
    }

    /// Holds a next segment for what makes room, if that is asked for: while there is none, nothing else is taken.
    fn hold_reserve(&self, group: usize, checkpoint: u64) -> io::Result<()> {
        let settings = &self.shared.settings;
        if !settings.holds_reserve {
            return Ok(());
        }
        let full = settings.segment_length(checkpoint);
        let group = settings.reserve_group(group);
        let least = settings.segment_least(checkpoint, group).min(full);
        let idle = self.idle();
        let may_take = |more| self.shared.may_take(more, idle, false);
        self.shared.reserve.hold(&self.shared.disk, least, may_take)
    }

    /// Whether there is space for groups of this size in what is left or, as the last resort, in the reserve.
    fn secure_from_reserve(&mut self, group: usize, checkpoint: u64) -> bool {
        let shared = self.shared.clone();
        let settings = &shared.settings;
        if !settings.holds_reserve {
            return false;
        }
        // A caller that has begun to grow has its space in any case.
        let grows = shared.gather().growth.grown.is_some();
        let growth = if grows {
            settings.group_bytes as u64
        } else {
            0
        };
        let room = 2 * settings.batch_of(settings.reserve_group(group)) + growth;
        let left = self.active.as_ref().map_or(0, Active::left);
        if shared.reserve.wants_spare() && self.promises_nothing() {
            shared.reserve.give_spare();
            self.drop_spare();
            return left >= room;
        }
        left >= room || self.take_reserve(group, growth, checkpoint)
    }

    /// Makes the reserve the next segment, unless there is one; returns whether there is one now.
    fn take_reserve(&mut self, group: usize, growth: u64, checkpoint: u64) -> bool {
        let shared = self.shared.clone();
        let settings = &shared.settings;
        if !settings.holds_reserve {
            return false;
        }
        let group = settings.reserve_group(group);
        let least = settings.segment_least(checkpoint, group) + growth;
        let least = least.min(settings.segment_length(checkpoint));
        if self
            .spare
            .as_ref()
            .is_some_and(|spare| spare.length >= least)
        {
            return true;
        }
        // A spare that is too short is empty; the rename removes it.
        self.shared.zeros.end();
        match shared.reserve.take(&shared.disk, least, SPARE) {
            Ok(Some((file, length))) => {
                self.spare = Some(Spare { file, length });
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// Makes the spare, which was made of the reserve, the reserve again; returns whether it is.
    fn return_reserve(&mut self) -> bool {
        self.shared.zeros.end();
        if self.shared.disk.rename(SPARE, RESERVE).is_err() {
            return false;
        }
        if let Some(spare) = self.spare.take() {
            self.shared.reserve.put_back(spare.file, spare.length);
        }
        true
    }

    /// Whether nothing was promised that may need room; from here on callers wait until the gate is set anew.
    fn promises_nothing(&self) -> bool {
        let mut gather = self.shared.gather();
        if !gather.group.is_empty() || gather.reserved > 0 || gather.growth.grown.is_some() {
            return false;
        }
        if gather.gate != Gate::Shut {
            gather.gate = Gate::Looking;
        }
        true
    }

    /// Bytes that are taken of the disk for what is still to come.
    fn idle(&self) -> u64 {
        let active = self.active.as_ref();
        let active = active.map_or(0, |active| active.length.saturating_sub(active.used));
        active + self.spare.as_ref().map_or(0, |spare| spare.length)
    }

    /// Has a next segment of this length at least.
    fn have_spare(&mut self, least: u64, full: u64) -> io::Result<()> {
        let idle = self.idle();
        match &mut self.spare {
            Some(spare) if spare.length >= least => {}
            Some(spare) => {
                self.shared.may_take(least - spare.length, idle, true)?;
                spare.file.reserve(least)?;
                spare.length = least;
            }
            None => {
                self.shared.may_take(least, idle, true)?;
                let file = reserve(&self.shared.disk, least)?;
                let length = least;
                self.spare = Some(Spare { file, length });
                // Opened once more: each open file is told of a lost write once, and the one that
                // the writer syncs must be.
                if let Ok(file) = self.shared.disk.open(SPARE) {
                    self.shared.zeros.begin(file, full);
                    self.keep_up();
                }
            }
        }
        Ok(())
    }

    /// Has zeros written to the spare, as far as the segment in use is filled. The first segment of
    /// a log gets no zeros: it is unknown yet whether it will hold more than a little. A log that
    /// is not synced for each group gets none either: no caller waits for its syncs, and every byte
    /// would be written twice.
    pub(super) fn keep_up(&self) {
        let waits = self.shared.settings.policy == Policy::Sync;
        if let Some(active) = self.active.as_ref().filter(|_| waits) {
            let full = self.shared.settings.segment_length(0);
            self.shared.zeros.keep_up(active.used, full);
        }
    }

    /// Has the disk begin to write, if there is enough: otherwise a later sync would have to write everything at once,
    /// and appended records would gather in memory meanwhile.
    pub(super) fn begin_writing(&mut self) {
        if let Some(active) = &mut self.active
            && active.used - active.begun >= BEGIN_EVERY
        {
            let length = active.used - active.begun;
            active.file.begin_writing(active.begun, length);
            active.begun = active.used;
        }
    }

    /// Makes the spare the reserve, if the reserve was used.
    pub(super) fn leave_reserve(&mut self) {
        let is_used = self.shared.settings.holds_reserve && !self.shared.reserve.is_there();
        if is_used && self.spare.is_some() {
            self.shared.zeros.end();
            // If the rename fails, the file is removed as any other spare.
            if self.shared.disk.rename(SPARE, RESERVE).is_ok() {
                self.spare = None;
            }
        }
        self.drop_spare();
    }

    pub(super) fn drop_spare(&mut self) {
        self.shared.zeros.end();
        self.shared.reserve.no_spare();
        if self.spare.take().is_some() {
            // The spare holds nothing, and opening the log removes it.
            let _ = self.shared.disk.remove(SPARE);
        }
    }
}

/// Whether the system says that there is no room, which others may make.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// Keeps an error that is not a full disk, and returns whether the error was one.
fn keep_other(error: io::Error, other: &mut Option<io::Error>) -> bool {
    let is_other = !is_full(&error);
    if is_other {
        *other = Some(error);
    }
    is_other
}

fn reserve<D: Disk>(disk: &D, length: u64) -> io::Result<D::File> {
    let file = disk.create(SPARE)?;
    if let Err(error) = file.reserve(length) {
        drop(file);
        disk.remove(SPARE)?;
        return Err(error);
    }
    Ok(file)
}
