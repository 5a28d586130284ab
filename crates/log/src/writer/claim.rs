//! Claims durable batches, where no following batch claims them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use super::{Failed, Now, Writer};
use crate::catalog::Segment;
use crate::claims::{Claimed, ClaimsFile, ENDS_MAX, End, Said};
use crate::disk::Disk;
use crate::note::Turn;
use crate::{OpenError, Policy};

/// Time after the last group at which the log claims what is durable. Before that, a damaged last
/// group cannot be told from a torn one.
pub(super) const SILENCE: Duration = Duration::from_millis(500);

impl<D: Disk> Writer<D> {
    /// The log's own clock, in microseconds: for how long it has been open, in all its openings.
    pub(super) fn lived(&self, now: Now) -> u64 {
        let began = self.began.unwrap_or(now.monotonic);
        let open = now.monotonic.saturating_sub(began).as_micros() as u64;
        self.lived_us.saturating_add(open)
    }

    /// Writes a claim of all durable batches.
    pub(super) fn claim(&mut self, now: Now) -> Result<(), Failed> {
        let oldest = self.shared.catalog().segments.keys().next().copied();
        self.claim_from(oldest.unwrap_or(0), self.lived(now))
    }

    /// Writes a claim of all durable batches, because no following group would claim them.
    pub(super) fn claim_in_silence(&mut self, now: Now) -> Result<(), Failed> {
        let mistakes = self.shared.settings.mistakes;
        if mistakes.makes(|mistakes| mistakes.claim_never) {
            self.claim_due = None;
            return Ok(());
        }
        self.claim(now)
    }

    /// Writes a claim of all durable batches, and of the oldest segment that must stay.
    pub(super) fn claim_from(&mut self, oldest: u64, lived_us: u64) -> Result<(), Failed> {
        self.say(oldest, lived_us)
            .map_err(|error| Failed(format!("writing the file of claims: {error}")))
    }

    fn say(&mut self, oldest: u64, lived_us: u64) -> io::Result<()> {
        self.claim_due = None;
        let newest = self.active.as_ref().map(|active| active.number);
        let durable = self.durable;
        let (log, epoch) = (self.log, self.epoch);
        let ends = self.ends();
        let Some(claims) = &mut self.claims else {
            return Ok(());
        };
        let said = claims.said();
        let newest = newest.filter(|&newest| newest <= durable);
        let says = Said {
            log,
            sequence: said.sequence,
            through: durable,
            newest: newest.unwrap_or(said.newest),
            oldest,
            lived_us,
            epoch,
        };
        if says == (Said { lived_us, ..said }) && claims.tells(&ends) {
            return Ok(());
        }
        claims.say(says, ends)
    }

    /// The durable end of each stream. With [`Policy::Os`] the list is empty unless everything
    /// written is synced, because the ends are not known then. If there are too many for the file,
    /// streams with an end in the newest segment come first: the checkpoint at its beginning has
    /// the others.
    fn ends(&self) -> Vec<End> {
        let is_all = self.durable + 1 == self.next_batch;
        if !is_all && self.shared.settings.policy == Policy::Os {
            return Vec::new();
        }
        let catalog = self.shared.catalog();
        let newest = self.active.as_ref().map(|active| active.number);
        let newest = newest.and_then(|number| catalog.segments.get(&number));
        // Batches that are written and synced but not committed are at the end of the pending ones; a batch
        // that is not synced is not committed either.
        let batches = self.pending.iter().filter(|_| is_all);
        let (mut pending, mut deleted) = (BTreeMap::new(), BTreeSet::new());
        for batch in batches {
            pending.extend(batch.notes.iter().map(|note| (note.stream, note.next)));
            // A repair takes a stream with an end for an existing one.
            for turn in &batch.turns {
                match *turn {
                    Turn::Deleted(stream) => _ = deleted.insert(stream),
                    Turn::Passed(stream, _, to) => {
                        let next = pending.entry(stream).or_insert(to);
                        *next = to.max(*next);
                    }
                    Turn::Trimmed(..) => {}
                }
            }
        }
        let ends = catalog.streams.iter().map(|(stream, known)| {
            let next = pending.get(&stream).copied().unwrap_or(known.next);
            End { stream, next }
        });
        let ends = ends.filter(|end| end.next > 0 && !deleted.contains(&end.stream));
        let mut ends = ends.collect::<Vec<_>>();
        if ends.len() > ENDS_MAX {
            ends.sort_by_key(|end| {
                let is_in = |segment: &Segment| segment.index.extent(end.stream).is_some();
                !(pending.contains_key(&end.stream) || newest.is_some_and(is_in))
            });
            ends.truncate(ENDS_MAX);
        }
        ends
    }

    /// Whether the segment in use is durable and nothing says so yet.
    pub(super) fn is_newest_unsaid(&self) -> bool {
        let said = self.claims.as_ref().map(ClaimsFile::said);
        let (Some(said), Some(active)) = (said, &self.active) else {
            return false;
        };
        active.number > said.newest && active.number <= self.durable
    }

    /// Says what recovery has found or made durable.
    pub(crate) fn claim_recovered(&mut self) -> Result<(), OpenError> {
        let oldest = self.shared.catalog().segments.keys().next().copied();
        self.say(oldest.unwrap_or(0), self.lived_us)
            .map_err(|error| OpenError::io("writing the file of claims", error))
    }

    /// Makes the file of claims, if there was no room for it when the log was opened.
    pub(super) fn have_claims(&mut self) -> io::Result<()> {
        if self.claims.is_some() {
            return Ok(());
        }
        let claims = ClaimsFile::open(&self.shared.disk, &Claimed::default())?;
        self.shared.disk.sync_directory()?;
        self.claims = Some(claims);
        let oldest = self.shared.catalog().segments.keys().next().copied();
        self.say(oldest.unwrap_or(0), self.lived_us)
    }
}
