//! Syncing, and telling callers and readers how far the log has come.

use std::io;
use std::time::Duration;

use super::awaiting::Awaiting;
use super::claim::SILENCE;
use super::{Failed, Now, Writer};
use crate::Policy;
use crate::disk::{Disk, DiskFile};
use crate::format::segment_name;
use crate::recovery::prove_late;

impl<D: Disk> Writer<D> {
    /// Makes everything written durable. After an error it is unknown what is durable, and asking
    /// again would prove nothing.
    pub(super) fn sync(&mut self, now: Now) -> Result<(), Failed> {
        self.sync_due = None;
        let mistakes = self.shared.settings.mistakes;
        if mistakes.makes(|mistakes| mistakes.claim_early) {
            self.durable = self.next_batch - 1;
            self.claim(now)?;
        }
        self.settled = 0;
        for number in std::mem::take(&mut self.unsynced) {
            self.sync_finished(number)?;
        }
        let Some(active) = &self.active else {
            return Ok(());
        };
        if active.unsynced {
            let name = segment_name(active.number);
            let file = active.file.clone();
            self.twice_by_mistake(|| file.sync_data())
                .map_err(|error| {
                    let durable = self.durable;
                    Failed(format!(
                        "{name}: sync failed, after batch {durable} was durable: {error}"
                    ))
                })?;
        }
        self.sync_names()?;
        if let Some(active) = &mut self.active {
            active.unsynced = false;
        }
        if !self.unproven.is_empty() {
            return Ok(());
        }
        self.durable = self.next_batch - 1;
        if self.is_newest_unsaid() {
            // The claim comes before any caller learns of the segment's contents: a missing segment
            // must be noticed.
            self.claim(now)?;
        } else {
            self.claim_due = Some(now.monotonic + SILENCE);
        }
        Ok(())
    }

    /// Syncs the records that were appended before a caller asked for a sync.
    pub(super) fn sync_when_asked(&mut self, now: Now) -> Result<bool, Failed> {
        if !std::mem::take(&mut self.shared.gather().sync_asked) {
            return Ok(false);
        }
        self.awaiting = Awaiting::default();
        self.write_group(now)?;
        self.prove()?;
        self.sync(now)?;
        self.shared.progress().durable = self.written;
        self.commit();
        Ok(true)
    }

    /// With [`Policy::Os`]: syncs the oldest segment that has been complete for a while, if there
    /// is one. So old records become durable although no caller asks for it, and an opening need
    /// not read the whole log.
    pub(super) fn sync_settled(&mut self, now: Now) -> Result<bool, Failed> {
        if self.settled == 0 {
            return Ok(false);
        }
        self.settled -= 1;
        let number = self.unsynced.remove(0);
        while let Some(&(unproven, used)) = self.unproven.first().filter(|(n, _)| *n <= number) {
            self.unproven.remove(0);
            self.prove_segment(unproven, used)?;
        }
        self.sync_finished(number)?;
        self.sync_names()?;
        let active = self.active.as_ref().map(|active| active.number);
        let unproven = self.unproven.first().map(|(number, _)| *number);
        let next = [self.unsynced.first().copied(), unproven, active];
        if let Some(next) = next.into_iter().flatten().min() {
            self.durable = self.durable.max(next - 1);
            self.claim_due = Some(now.monotonic + SILENCE);
        }
        Ok(true)
    }

    /// Makes a sync of a segment prove something about data that an earlier opening has written; returns whether the data
    /// is still there.
    fn prove_segment(&mut self, number: u64, used: u64) -> Result<bool, Failed> {
        if !self.shared.catalog().segments.contains_key(&number) {
            // Retention has removed the segment.
            return Ok(false);
        }
        prove_late(&self.shared.disk, number, self.durable, used).map_err(|error| {
            let name = segment_name(number);
            Failed(format!("writing anew the tail of {name}: {error}"))
        })?;
        self.names_changed = true;
        Ok(true)
    }

    /// Syncs all bytes that earlier openings have written.
    fn prove(&mut self) -> Result<(), Failed> {
        for (number, used) in std::mem::take(&mut self.unproven) {
            if !self.prove_segment(number, used)? {
                continue;
            }
            let is_active = self.active.as_ref().map(|active| active.number) == Some(number);
            if !is_active && !self.unsynced.contains(&number) {
                self.unsynced.push(number);
            }
            if let Some(active) = self.active.as_mut().filter(|_| is_active) {
                active.unsynced = true;
            }
        }
        Ok(())
    }

    fn sync_names(&mut self) -> Result<(), Failed> {
        if !std::mem::take(&mut self.names_changed) {
            return Ok(());
        }
        self.twice_by_mistake(|| self.shared.disk.sync_directory())
            .map_err(|error| Failed(format!("sync of the log's directory failed: {error}")))
    }

    fn sync_finished(&self, number: u64) -> Result<(), Failed> {
        let name = segment_name(number);
        match self
            .shared
            .disk
            .open(&name)
            .and_then(|file| file.sync_data())
        {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failed(format!("{name}: sync failed: {error}")))
            }
            // Retention has removed the segment, or the segment is durable.
            _ => Ok(()),
        }
    }

    fn twice_by_mistake(&self, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let retries = self
            .shared
            .settings
            .mistakes
            .makes(|mistakes| mistakes.retry_sync);
        match sync() {
            Err(_) if retries => sync(),
            result => result,
        }
    }

    /// Lets readers see everything written, and tells waiting callers.
    pub(super) fn commit(&mut self) {
        if let Some(taken) = self.taken_at.take() {
            self.committed_from.get_or_insert(taken);
        }
        let number = self.active.as_ref().map(|active| active.number);
        if self.pending.iter().any(|batch| !batch.turns.is_empty()) {
            // Records that streams do not keep any more may be all that a segment has.
            self.housekeeping_due = Duration::ZERO;
        }
        if let Some(number) = number.filter(|_| !self.pending.is_empty()) {
            self.shared.change_catalog(|catalog| {
                for batch in &self.pending {
                    catalog.commit(number, batch);
                }
            });
            self.pending.clear();
            self.shared.account_freed();
        }
        self.shared.gather().settled = self.written;
        let mut progress = self.shared.progress();
        progress.groups = self.groups;
        progress.written = self.written;
        progress.committed = self.written;
        if self.shared.settings.policy != Policy::Os {
            progress.durable = self.written;
        }
        drop(progress);
        self.shared.watchers.wake();
    }

    /// Before another segment is begun: everything in this one is committed.
    pub(super) fn finish_segment(&mut self, now: Now) -> Result<(), Failed> {
        if self.shared.settings.policy == Policy::Os {
            self.unsynced
                .extend(self.active.as_ref().map(|active| active.number));
            // The names stay in order even so: a log that begins late is one that was shortened.
            self.sync_names()?;
        } else {
            self.sync(now)?;
        }
        if !self.pending.is_empty() {
            self.commit();
        }
        Ok(())
    }
}
