//! Removing what is old: segments by size and age, and the marks of idle producers.

use super::{Failed, Now, Writer};
use crate::catalog::Segment;
use crate::claims::CLAIMS_LENGTH;
use crate::disk::Disk;
use crate::format::{Needs, index_name, segment_name};
use crate::gather::Gather;

impl<D: Disk> Writer<D> {
    /// Forgets idle producers.
    pub(super) fn expire(&self, now: Now) {
        let mut gather = self.shared.gather();
        gather.lived_us = self.lived(now);
        self.expire_in(&mut gather);
    }

    pub(super) fn expire_in(&self, gather: &mut Gather) {
        let idle = self.shared.settings.producer_idle.as_micros() as u64;
        let settled = gather.settled;
        let lived_us = gather.lived_us;
        let since = lived_us.saturating_sub(idle);
        gather.state.expire(since, settled, lived_us);
    }

    /// Records in the log which records of streams are beyond their limits; returns whether any stream
    /// has such limits.
    pub(super) fn trim(&self, now: Now) -> bool {
        let settings = &self.shared.settings;
        let clocks = (now.unix_us, self.lived(now));
        let mut gather = self.shared.gather();
        let cuts = {
            let catalog = self.shared.catalog();
            let streams = gather.state.streams.iter();
            let limited = streams.filter(|(_, stream)| {
                stream.settings.retain_bytes.is_some() || stream.settings.retain_age.is_some()
            });
            let cut = limited.map(|(id, stream)| {
                let cut = catalog.cut(id, &stream.settings, stream.newest_us, clocks);
                let home = gather.backlog.as_ref().map(|backlog| backlog.home_of(id));
                let cut = cut.min(home.unwrap_or(u64::MAX));
                (id, cut)
            });
            cut.collect::<Vec<_>>()
        };
        for &(id, cut) in &cuts {
            // If the group has no room, trimming is tried again.
            let _ = gather.trim(id, cut, settings);
        }
        !cuts.is_empty()
    }

    /// Removes the oldest segments that the limits do not allow to stay.
    pub(super) fn retain(&mut self, now: Now) -> Result<(), Failed> {
        let early = self
            .shared
            .settings
            .mistakes
            .makes(|mistakes| mistakes.delete_early);
        while let Some((number, next)) = self.surplus(now, early) {
            if self.room_due.is_some() {
                // The disk has room now.
                self.room_due = Some(now.monotonic);
            }
            if next > self.durable && !early {
                // The next segment's checkpoint is all that will tell of what the removed segment
                // told. No later sync covers what this one syncs.
                self.sync(now)?;
                self.commit();
            }
            // First said, then done: if a sync of the directory fails, it is unknown whether the
            // name is gone for good, and it may come back when others after it are gone.
            let mistakes = self.shared.settings.mistakes;
            if !mistakes.makes(|mistakes| mistakes.trust_names) {
                self.claim_from(next, self.lived(now))?;
            }
            self.shared
                .change_catalog(|catalog| catalog.remove_segment(number));
            self.shared.account_freed();
            let name = segment_name(number);
            let removed = self.shared.disk.remove(&name);
            removed.map_err(|error| Failed(format!("{name}: cannot be removed: {error}")))?;
            self.shared.readers.forget(number);
            // The index is missing if the log was not closed since; it is of no use alone in any
            // case.
            let _ = self.shared.disk.remove(&index_name(number));
            // One segment at a time, so that a crash never leaves a hole between the remaining
            // segments.
            self.shared
                .disk
                .sync_directory()
                .map_err(|error| Failed(format!("sync of the log's directory failed: {error}")))?;
        }
        Ok(())
    }

    /// Removes what callers have said to be of no use, if they have said more since.
    pub(super) fn discard_when_asked(&mut self, now: Now) -> Result<bool, Failed> {
        if !std::mem::take(&mut self.shared.gather().discard_asked) {
            return Ok(false);
        }
        self.retain(now)?;
        if self.room_due.is_some() || self.shared.gather().looks_for_room() {
            // The disk may have room by now.
            self.keep_room(now.monotonic);
        }
        Ok(true)
    }

    /// The oldest segment, if it is to be removed, and the segment after it.
    fn surplus(&self, now: Now, early: bool) -> Option<(u64, u64)> {
        let settings = &self.shared.settings;
        let gather = self.shared.gather();
        let discarded = gather.discarded.clone();
        // The mistake is to make room for a segment that has only begun.
        let begun = self
            .active
            .as_ref()
            .filter(|_| early)
            .map_or(0, |active| active.length);
        let catalog = self.shared.catalog();
        let mut oldest = catalog.segments.iter();
        let ((&number, segment), (&next, _)) = (oldest.next()?, oldest.next()?);
        let backlog = gather.backlog.as_ref();
        if backlog.is_some_and(|backlog| backlog.holds(segment, &catalog)) {
            return None;
        }
        let too_large = settings.retention_bytes.is_some_and(|limit| {
            let active = self.active.as_ref().map(|active| active.number);
            let finished = catalog.segments.iter();
            let finished = finished.filter(|(number, _)| Some(**number) != active);
            let finished: u64 = finished.map(|(_, segment)| on_disk(segment)).sum();
            // The one in use and the spare, as long as they may become.
            let full = settings.segment_length(0);
            let active = self.active.as_ref().map_or(full, |it| it.length.max(full));
            let spare = self.spare.as_ref().map_or(active, |it| it.length.max(full));
            let reserve = self.shared.reserve.length();
            finished + active + spare + reserve + CLAIMS_LENGTH + begun > limit
        });
        let too_old = settings.retention_age.is_some_and(|age| {
            let age = age.as_micros() as u64;
            segment.is_older(age, (now.unix_us, self.lived(now)))
        });
        let is_of_no_use =
            |stream: u32, end: u64| discarded.get(&stream).is_some_and(|&before| end <= before);
        let mut extents = segment.index.extents();
        let mut gaps = segment.gaps.iter();
        let useless = !discarded.is_empty()
            && extents.all(|(stream, extent)| is_of_no_use(stream, extent.next))
            && gaps.all(|gap| is_of_no_use(gap.stream, gap.next));
        // A segment without records stays where streams have no limits: nothing else goes there.
        let has_limits = || gather.state.needs().has(Needs::STREAMS);
        let is_dead = (segment.index.streams() > 0 || has_limits()) && catalog.is_dead(segment);
        (too_large || too_old || useless || is_dead).then_some((number, next))
    }
}

/// Bytes on the disk of a finished segment and its index.
fn on_disk(segment: &Segment) -> u64 {
    let entries = segment.index.entries() + segment.index.streams() + segment.left_out as usize;
    segment.used + 128 + 40 * entries as u64
}
