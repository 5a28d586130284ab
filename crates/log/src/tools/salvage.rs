//! What can be saved of a damaged log: every whole batch, every whole run of records in a damaged
//! batch, and exactly what is missing between them.
//!
//! The one idea: one walk over the whole log. A bad batch is kept without its bad runs (`mend`), or the
//! walk goes on with the next whole batch. Later runs and checkpoints then tell what was lost: a run of
//! records contains its position, a checkpoint the whole state. A batch of its own kind, a **gap**,
//! replaces the lost batches; it contains the whole runs that were found in them (`rescue`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::doubt::{BATCH_RECORDS, Doubt, Told, go_on};
use super::heads::Heads;
use super::inside;
use super::lost::{Lost, Names, Producers, STREAMS_MAX, know, pass};
use super::mend::{Known, Mended, mend};
use super::naming::Naming;
use super::rescue::{Batches, Rescued, rescue};
use crate::claims::{Claimed, ENDS_MAX, End};
use crate::disk::{Disk, DiskFile};
use crate::format::{
    ALIGN, BATCH_HEADER, BatchHeader, Fault, Flags, Missing, Needs, RunView, SEGMENT_HEADER,
    SegmentHeader, VERSION, segment_name,
};
use crate::recovery::{
    Bytes, Walked, Window, batch_at, scan_claims, seek_batch, take_batch, unread, unreadable,
};
use crate::state::State;
use crate::{Damage, Kind, OpenError};

/// The steps of a repair.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) log: u64,
    /// The features that readers must know, as the headers of segments say.
    pub(super) needs: Needs,
    /// The kind of the log, if its segments record it.
    pub(super) kind: Option<Kind>,
    /// The segments that stay or are made, by number.
    pub(super) segments: BTreeMap<u64, SegmentPlan>,
    /// Segments without a whole batch, among the ones that stay.
    pub(super) dropped: Vec<u64>,
    pub(super) gaps: Vec<Lost>,
    /// Batches without their damaged records.
    pub(super) mended: Vec<Mended>,
    /// Names of streams, by number, as far as anything tells them.
    pub(super) streams: BTreeMap<u32, String>,
    /// Names of producers, by number, as far as anything tells them.
    pub(super) producers: Producers,
    /// The number of batches after the repair, gaps included.
    pub(super) batches: u64,
    pub(super) records: u64,
    pub(super) durable_through: u64,
}

/// A segment in its repaired form.
#[derive(Debug, Default)]
pub(super) struct SegmentPlan {
    pub(super) pieces: Vec<Piece>,
    /// Whether the repaired form differs from the file.
    pub(super) rewrite: bool,
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Whole batches, at these bytes of the file.
    Copy { from: u64, to: u64 },
    /// One of [`Plan::gaps`].
    Gap(usize),
    /// One of [`Plan::mended`].
    Mended(usize),
}

/// Why the walk begins again.
enum Again {
    /// A whole batch makes no sense where it is: without it.
    Senseless(u64, u64),
    /// The name of a stream was found only behind the place where it had to be known: the former
    /// stream of that name was deleted there.
    Named(Names),
    /// Streams that were taken to be made behind a gap were made in it: others with higher numbers were.
    Made(Names),
}

/// How much of a damaged batch is looked at for what it tells.
pub(super) const HEADS_MAX: usize = 24 << 20;

/// Most restarts of the walk; a log that a server has written needs fewer.
const RESTARTS_MAX: usize = 10_000;

/// Plans the repair of a log's segments, under the names that they have or should have.
pub(super) fn plan<D: Disk>(
    disk: &D,
    naming: &Naming,
    claimed: &Claimed,
) -> Result<Plan, OpenError> {
    let (mut senseless, mut names) = (BTreeSet::new(), Names::new());
    let mut made = BTreeSet::new();
    loop {
        let mut salvage = Salvage::new(disk, naming, &senseless, names.clone(), &made);
        match salvage.everything(claimed)? {
            Some(Again::Senseless(number, offset)) if senseless.len() < RESTARTS_MAX => {
                senseless.insert((number, offset));
            }
            // Each number is told once, so this ends.
            Some(Again::Named(told)) => names.extend(told),
            Some(Again::Made(told)) => {
                made.extend(told.keys().copied());
                names.extend(told);
            }
            _ => return Ok(salvage.plan),
        }
    }
}

/// The next batch that stays.
struct Next {
    at: u64,
    header: BatchHeader,
    /// The end of the batch in its segment.
    end: u64,
    /// The mended batch and its bytes; `None` if the batch stays as it is.
    mended: Option<(Mended, Vec<u8>)>,
}

/// The log of the first batch of a segment from an offset on whose header is whole.
pub(super) fn first_log<F: DiskFile>(
    bytes: &mut Window<F>,
    mut from: u64,
    number: u64,
) -> io::Result<Option<u64>> {
    while let Some(at) = seek_batch(bytes, from)? {
        if let Ok(batch) = BatchHeader::decode(bytes.get(at, BATCH_HEADER)?, 0, number) {
            return Ok(Some(batch.log));
        }
        from = at + ALIGN as u64;
    }
    Ok(None)
}

struct Salvage<'a, D> {
    disk: &'a D,
    naming: &'a Naming,
    senseless: &'a BTreeSet<(u64, u64)>,
    names: Names,
    /// Streams that were made in what is lost, though something that follows looks like their making.
    made: &'a BTreeSet<u32>,
    plan: Plan,
    walked: Walked,
    /// The first thing that was wrong since the last whole batch.
    fault: Option<Damage>,
    /// Segments without a whole batch, since the last whole batch.
    empty: Vec<u64>,
    /// The segment with the last whole batch or gap.
    last: Option<u64>,
    /// The end of the last whole batch in its segment.
    end: u64,
    /// Heads of the batch that should be the next one, if these are whole.
    heads: Option<Heads>,
    /// Runs of records that are whole in what is not, since the last batch that stays.
    rescued: Vec<Rescued>,
    /// Where streams ended, as the file of claims says.
    ends: &'a [End],
    /// The facts in whole batches behind gaps: any further missing part of a stream was not lost
    /// before.
    told: Told,
    /// Whether that batch is the last one of its segment.
    is_end_seen: bool,
    /// A whole segment is lost, or its header is: its contents are unknown.
    lost_header: bool,
}

impl<'a, D: Disk> Salvage<'a, D> {
    fn new(
        disk: &'a D,
        naming: &'a Naming,
        senseless: &'a BTreeSet<(u64, u64)>,
        names: Names,
        made: &'a BTreeSet<u32>,
    ) -> Self {
        Salvage {
            disk,
            naming,
            senseless,
            names,
            made,
            plan: Plan::default(),
            walked: Walked::default(),
            fault: None,
            empty: Vec::new(),
            last: None,
            heads: None,
            rescued: Vec::new(),
            ends: &[],
            end: 0,
            told: Told::default(),
            is_end_seen: false,
            lost_header: false,
        }
    }

    fn everything(&mut self, claimed: &'a Claimed) -> Result<Option<Again>, OpenError> {
        self.ends = &claimed.ends;
        let said = claimed.said;
        let numbers = self.naming.numbers().collect::<Vec<_>>();
        let said_or_none = said.unwrap_or_default();
        let first = numbers.first().copied();
        let oldest = claimed.oldest(first).max(1);
        let first = first.unwrap_or(1);
        self.walked.next_batch = said.map_or(first, |_| oldest);
        self.walked
            .claims
            .add(said_or_none.through.max(said_or_none.newest));
        if first > 1 {
            self.walked.claims.add(first);
        }
        self.plan.log = match said {
            Some(said) => said.log,
            None => self.identity(&numbers)?,
        };
        for &number in &numbers {
            let opened = self.naming.open(self.disk, number);
            let walked = opened.and_then(|mut bytes| self.segment(&mut bytes, number));
            if let Some(again) = walked.map_err(|error| unreadable(number, error))? {
                return Ok(Some(again));
            }
        }
        if let Some(made) = self.end(claimed)? {
            return Ok(Some(Again::Made(made)));
        }
        self.plan.needs = self.plan.needs.and(self.walked.state.needs());
        if self.plan.gaps.iter().any(Lost::is_administered) {
            self.plan.needs = self.plan.needs.and(Needs::STREAMS);
        }
        self.plan.durable_through = self.walked.claims.through;
        self.plan.batches = self.walked.batches + self.plan.gaps.len() as u64;
        let rescued = self.plan.gaps.iter().map(Lost::kept);
        self.plan.records = self.walked.records + rescued.sum::<u64>();
        self.remember_names();
        for (&id, made) in self.plan.gaps.iter().flat_map(|gap| &gap.streams) {
            let named = self.plan.streams.entry(id);
            named.or_insert_with(|| made.name.clone());
        }
        Ok(None)
    }

    /// The log's random number: what the first header says that is whole.
    fn identity(&self, numbers: &[u64]) -> Result<u64, OpenError> {
        let mut of_batch = None;
        for &number in numbers {
            let failed = |error| unreadable(number, error);
            let mut bytes = self.naming.open(self.disk, number).map_err(failed)?;
            let header = bytes.get(0, SEGMENT_HEADER).map_err(failed)?;
            if let Ok(header) = SegmentHeader::decode(header, number) {
                return Ok(header.log);
            }
            if of_batch.is_none() {
                of_batch = first_log(&mut bytes, SEGMENT_HEADER as u64, number).map_err(failed)?;
            }
        }
        Ok(of_batch.unwrap_or(0))
    }

    fn wrong(&mut self, number: u64, fault: Fault) {
        let batch = self.walked.next_batch;
        let Fault {
            offset,
            expected,
            found,
        } = fault;
        self.fault.get_or_insert_with(|| Damage {
            file: segment_name(number),
            offset,
            batch,
            expected,
            found,
        });
    }

    fn segment<F: DiskFile>(
        &mut self,
        bytes: &mut Window<F>,
        number: u64,
    ) -> io::Result<Option<Again>> {
        if number < self.walked.next_batch && self.last.is_some() {
            // The batches of the segment also stand in an earlier segment: opening the log sets it
            // aside.
            self.plan.dropped.push(number);
            return Ok(None);
        }
        let header = SegmentHeader {
            version: VERSION,
            needs: Needs::default(),
            log: self.plan.log,
            number,
            kind: None,
        };
        let mut is_whole = true;
        // Something that opening the log would refuse, whether it was acknowledged or not.
        let mut is_refused = false;
        match SegmentHeader::decode(bytes.get(0, SEGMENT_HEADER)?, number) {
            Ok(found) if found.log == header.log => {
                self.plan.needs = self.plan.needs.and(found.needs);
                self.plan.kind = self.plan.kind.or(found.kind);
            }
            Ok(found) => {
                let expected = format!("a segment of log {:016x}", header.log);
                let found = format!("one of log {:016x}", found.log);
                self.wrong(number, Fault::new(16, expected, found));
                self.plan.dropped.push(number);
                return Ok(None);
            }
            Err(fault) => {
                is_refused = fault.offset != 0;
                self.lost_header = true;
                self.wrong(number, fault);
                is_whole = false;
            }
        }
        if number > self.walked.next_batch {
            let expected = format!(
                "a segment that begins with batch {}",
                self.walked.next_batch
            );
            let found = format!("one that begins with batch {number}");
            self.wrong(number, Fault::new(0, expected, found));
        }
        let mut offset = SEGMENT_HEADER as u64;
        let mut has_begun = false;
        let mut view = unread();
        while !bytes.get(offset, 1)?.is_empty() {
            let Next {
                at,
                header: batch,
                end,
                mended,
            } = match self.find(bytes, offset, number)? {
                Ok(found) => found,
                Err(fault) => {
                    if !bytes.is_zero(offset)? {
                        self.wrong(number, fault);
                        let used = bytes.significant(offset)?;
                        self.look_into(bytes, offset, used, number)?;
                        let end = self.heads.as_ref().and_then(|heads| heads.end);
                        let is_end = |end| bytes.is_zero(end);
                        self.is_end_seen = end.map_or(Ok(false), is_end)?;
                        let log = Some(self.plan.log);
                        scan_claims(bytes, offset, number, log, &mut self.walked.claims)?;
                        let rest = batch_at(bytes, offset, number)?;
                        is_refused |= self.is_senseless(rest, offset, number);
                    }
                    break;
                }
            };
            if !has_begun && number == self.walked.next_batch {
                // Runs that were found at the end of the segment before, and belong nowhere.
                self.rescued.clear();
            }
            if at > offset {
                self.look_into(bytes, offset, at, number)?;
            }
            if !has_begun {
                self.begin(number, at, is_whole)?;
                has_begun = true;
            }
            if batch.number > self.walked.next_batch {
                self.gap(number, batch.number - 1, Some((number, at)))?;
            }
            let rest = match &mended {
                Some((_, whole)) => &whole[..],
                None => batch_at(bytes, at, number)?,
            };
            if let Some(told) = self.new_names(&batch, rest) {
                return Ok(Some(Again::Named(told)));
            }
            if let Some(made) = self.bridge_counted(&batch, rest) {
                return Ok(Some(match made.is_empty() {
                    true => Again::Senseless(number, at),
                    false => Again::Made(made),
                }));
            }
            // In the repaired file a gap may stand in front of the batch, or nothing.
            let place = match self.plan.segments[&number].pieces.is_empty() {
                true => SEGMENT_HEADER as u64,
                false => at.max((SEGMENT_HEADER + ALIGN) as u64),
            };
            if mended.is_some() {
                // Streams and producers of lost records may be deleted before names are looked for
                // again.
                self.remember_names();
            }
            match take_batch(rest, place, header, &mut self.walked, &mut view) {
                Ok(_) => match mended {
                    None => self.copy(number, at, end),
                    Some((mended, _)) => self.mended(number, mended),
                },
                Err(_) => return Ok(Some(Again::Senseless(number, at))),
            }
            self.fault = None;
            self.heads = None;
            self.rescued.clear();
            offset = end;
            self.end = end;
        }
        match self.plan.segments.get_mut(&number).filter(|_| has_begun) {
            Some(mended) => {
                mended.rewrite |= is_refused;
            }
            None if is_refused => self.plan.dropped.push(number),
            None => self.empty.push(number),
        }
        Ok(None)
    }

    /// Whether a batch is exactly what was written, and does not belong there.
    fn is_senseless(&self, rest: &[u8], at: u64, number: u64) -> bool {
        let batch = BatchHeader::decode(rest, at, number);
        batch.is_ok_and(|batch| {
            let is_whole = || batch.verify(rest, at).is_ok();
            batch.log != self.plan.log || (is_whole() && inside::look(&batch, rest, at).is_err())
        }) || self.senseless.contains(&(number, at))
    }

    /// Takes what damaged batches tell, between these offsets of a segment.
    fn look_into<F: DiskFile>(
        &mut self,
        bytes: &mut Window<F>,
        from: u64,
        to: u64,
        number: u64,
    ) -> io::Result<()> {
        let length = |from: u64| {
            usize::try_from(to - from)
                .unwrap_or(HEADS_MAX)
                .min(HEADS_MAX)
        };
        self.look_at_heads(bytes.get(from, length(from))?, from, number);
        let batches = Batches {
            log: self.plan.log,
            segment: number,
            first: self.walked.next_batch.max(number),
            epoch: self.walked.epoch,
        };
        let mut from = from;
        while from < to {
            let piece = bytes.get(from, length(from))?;
            if piece.is_empty() {
                break;
            }
            let is_last = from + piece.len() as u64 >= to;
            let found = rescue(piece, from, batches);
            // A run that reaches beyond is found when it is looked for from where the last one ends.
            let next = match found.last() {
                Some(last) if !is_last => last.to,
                _ => from + piece.len() as u64,
            };
            self.rescued.extend(found);
            from = next;
        }
        Ok(())
    }

    /// The facts in the damaged batch that should be at this offset.
    fn look_at_heads(&mut self, rest: &[u8], offset: u64, number: u64) {
        let next = self.walked.next_batch;
        let expected = match offset == SEGMENT_HEADER as u64 {
            true => number,
            false => next,
        };
        let heads = Heads::of(rest, offset, number, expected);
        self.heads = heads
            .filter(|heads| heads.number == next)
            .or(self.heads.take());
    }

    /// The next whole batch of a segment from an offset on; if there is none, what is wrong there.
    /// Notes the faults before the batch.
    fn find<F: DiskFile>(
        &mut self,
        bytes: &mut Window<F>,
        from: u64,
        number: u64,
    ) -> io::Result<Result<Next, Fault>> {
        let mut first = None;
        let mut next = Some(from);
        while let Some(at) = next {
            let found = match self.whole(batch_at(bytes, at, number)?, at, number) {
                Ok(header) => Ok(Next {
                    at,
                    header,
                    end: at + u64::from(header.length),
                    mended: None,
                }),
                Err(fault) => match self.mend(bytes, at, number, at == from, &fault)? {
                    Some((mended, bytes)) => Ok(Next {
                        at,
                        header: mended.header,
                        end: mended.end,
                        mended: Some((mended, bytes)),
                    }),
                    None => Err(fault),
                },
            };
            match found {
                Ok(found) => {
                    if let Some(fault) = first {
                        self.wrong(number, fault);
                    }
                    return Ok(Ok(found));
                }
                Err(fault) => first = first.or(Some(fault)),
            }
            next = seek_batch(bytes, at + ALIGN as u64)?;
        }
        Ok(Err(first.unwrap_or_else(|| {
            Fault::new(from, "a batch", "the end of the file")
        })))
    }

    /// The batch at an offset without its damaged parts, if it belongs there. If `is_next` is set, no other batch can
    /// be there, even though the header is damaged.
    fn mend<F: DiskFile>(
        &self,
        bytes: &mut Window<F>,
        at: u64,
        number: u64,
        is_next: bool,
        fault: &Fault,
    ) -> io::Result<Option<(Mended, Vec<u8>)>> {
        let known = Known {
            log: self.plan.log,
            number: match at == SEGMENT_HEADER as u64 {
                true => number,
                false => self.walked.next_batch,
            },
            epoch: self.walked.epoch,
            lived_us: self.walked.lived_us,
        };
        let rest = batch_at(bytes, at, number)?;
        let rest = match BatchHeader::decode(rest, at, number) {
            Ok(_) => rest,
            // The batch's length is not known.
            Err(_) if is_next => bytes.get(at, HEADS_MAX)?,
            Err(_) => return Ok(None),
        };
        let mended = mend(rest, at, number, Some(known).filter(|_| is_next), fault);
        Ok(mended.filter(|(mended, _)| self.belongs(&mended.header, at, number).is_ok()))
    }

    fn whole(&self, rest: &[u8], offset: u64, number: u64) -> Result<BatchHeader, Fault> {
        let batch = BatchHeader::decode(rest, offset, number)?;
        self.belongs(&batch, offset, number)?;
        batch.verify(rest, offset)?;
        inside::look(&batch, rest, offset)?;
        Ok(batch)
    }

    /// Whether a batch can be at this offset of a segment.
    fn belongs(&self, batch: &BatchHeader, offset: u64, number: u64) -> Result<(), Fault> {
        let expected = self.walked.next_batch.max(number);
        let fault = |expected: String, found: String| Err(Fault::new(offset, expected, found));
        if batch.log != self.plan.log {
            let expected = format!("a batch of log {:016x}", self.plan.log);
            return fault(expected, format!("one of log {:016x}", batch.log));
        }
        if batch.number < expected || batch.number == u64::MAX {
            return fault(
                format!("batch {expected}"),
                format!("batch {}", batch.number),
            );
        }
        if batch.epoch < self.walked.epoch {
            let expected = format!("a batch of opening {} or later", self.walked.epoch);
            return fault(expected, format!("one of opening {}", batch.epoch));
        }
        let is_first = offset == SEGMENT_HEADER as u64;
        if batch.flags.has(Flags::CHECKPOINT) != (is_first && batch.number == number) {
            let expected = "a checkpoint in the first batch alone".to_owned();
            return fault(expected, "otherwise".to_owned());
        }
        if self.senseless.contains(&(number, offset)) {
            return fault(
                "a batch that fits those before".to_owned(),
                "none".to_owned(),
            );
        }
        Ok(())
    }

    /// A segment has a whole batch: positions that are missing before it belong to the end of the
    /// segment before.
    fn begin(&mut self, number: u64, at: u64, is_whole: bool) -> io::Result<()> {
        self.plan.dropped.append(&mut self.empty);
        if number > self.walked.next_batch {
            let home = self.last.unwrap_or(self.walked.next_batch);
            self.lost_header = true;
            // Runs that were found in this segment belong behind the gap.
            let is_before = |run: &mut Rescued| run.segment < number;
            let before = self.rescued.extract_if(.., is_before).collect();
            let here = std::mem::replace(&mut self.rescued, before);
            self.gap(home, number - 1, Some((number, at)))?;
            self.rescued = here;
        }
        let mended = self.plan.segments.entry(number).or_default();
        mended.rewrite |= !is_whole;
        self.last = Some(number);
        Ok(())
    }

    /// The batches from the expected one through this one are lost; a gap in a segment records it. `behind` is the
    /// place of the next batch that stays.
    fn gap(&mut self, home: u64, through: u64, behind: Option<(u64, u64)>) -> io::Result<()> {
        let first = self.walked.next_batch;
        let damage = self.fault.clone().unwrap_or_else(|| Damage {
            file: segment_name(home),
            offset: 0,
            batch: first,
            expected: format!("batch {first}"),
            found: format!("batch {}", through + 1),
        });
        let mut gap = Lost {
            damage,
            first,
            through,
            positions: Vec::new(),
            streams: BTreeMap::new(),
            producers: BTreeSet::new(),
            deleted: BTreeMap::new(),
            checkpoint: None,
            before: Vec::new(),
            unseen: (through - first).saturating_mul(BATCH_RECORDS),
            certain: BTreeMap::new(),
            unsure: BTreeSet::new(),
            rescued: Vec::new(),
        };
        let mut heads = self.heads.take_if(|heads| heads.number == first);
        let unseen = heads.as_ref().and_then(|heads| heads.unseen);
        gap.unseen = gap.unseen.saturating_add(unseen.unwrap_or(BATCH_RECORDS));
        let pieces = |mended: &SegmentPlan| mended.pieces.is_empty();
        let is_first = home == first && self.plan.segments.get(&home).is_none_or(pieces);
        let checkpoint = heads.as_mut().and_then(|heads| heads.checkpoint.take());
        // Streams that the gap deletes are not in the state any more, so their names are saved now.
        self.remember_names();
        match (heads, checkpoint.filter(|_| is_first)) {
            (Some(heads), Some(all)) => self.begin_with(all, &heads.records, &mut gap),
            (heads, _) => {
                if self.walked.batches == 0 && self.plan.gaps.is_empty() {
                    // The state from before the log's first batch is lost, too: streams without records, and deleted ones.
                    let before = (first - 1).saturating_mul(BATCH_RECORDS);
                    gap.unseen = gap.unseen.saturating_add(before);
                }
                match heads {
                    Some(heads) if heads.is_proven => {
                        heads.apply(&mut self.walked.state, &mut gap, &self.names);
                    }
                    // Records alone are known of it, and whole ones stay.
                    heads => {
                        self.keep_rescued(&mut gap, behind)?;
                        let told = heads.map_or(0, |heads| records_in(&heads.records));
                        let kept = gap.kept();
                        gap.unseen = gap.unseen.saturating_sub(kept.saturating_sub(told));
                    }
                }
            }
        }
        self.rescued.clear();
        self.remember_names();
        self.told.forget_set();
        self.plan.gaps.push(gap);
        // The segment has a file again.
        self.plan.dropped.retain(|number| *number != home);
        let mended = self.plan.segments.entry(home).or_default();
        mended.rewrite = true;
        mended.pieces.push(Piece::Gap(self.plan.gaps.len() - 1));
        self.walked.next_batch = through + 1;
        self.last = Some(home);
        Ok(())
    }

    /// Keeps the whole runs of the lost part.
    fn keep_rescued(&mut self, gap: &mut Lost, behind: Option<(u64, u64)>) -> io::Result<()> {
        let rescued = std::mem::take(&mut self.rescued);
        let found = rescued.iter().filter(|run| !run.is_led_to);
        let found = found
            .map(|run| run.records().stream)
            .collect::<BTreeSet<_>>();
        let shown = self.shown_behind(found, behind)?;
        let lived_us = self.walked.lived_us;
        for run in rescued {
            let records = run.records();
            let (stream, producer) = (records.stream, records.producer);
            let is_shown = || shown.get(&stream).is_some_and(|&next| run.next() <= next);
            let is_number = stream as usize <= STREAMS_MAX;
            if !(is_number && (run.is_led_to || is_shown())) {
                continue;
            }
            let state = &mut self.walked.state;
            let counted = state.streams.next_number();
            let is_there = stream >= counted || state.streams.contains(stream);
            let next = state.streams.get(stream).map_or(0, |known| known.next);
            if !is_there || records.first < next {
                continue;
            }
            pass(state, gap, &self.names, stream, records.first);
            let at = state.streams.get(stream).map(|known| known.next);
            if at != Some(records.first) {
                continue;
            }
            if producer != 0 && state.find(producer).is_none() {
                let name = match self.plan.producers.get(&producer) {
                    Some((of, name)) if *of == stream => name.clone(),
                    _ => format!("lost-producer-{producer}"),
                };
                let known = (stream, name.clone());
                self.plan.producers.insert(producer, known);
                state.add_producer(producer, stream, 0, &name);
                gap.producers.insert(producer);
            }
            if state.replay(&RunView::Records(records), lived_us).is_ok() {
                gap.rescued.push(run);
            }
        }
        Ok(())
    }

    /// The positions of these streams according to the first later batch that shows them; if none does,
    /// according to the file of claims.
    fn shown_behind(
        &self,
        mut streams: BTreeSet<u32>,
        behind: Option<(u64, u64)>,
    ) -> io::Result<BTreeMap<u32, u64>> {
        let mut shown = BTreeMap::new();
        let (first, mut offset) = behind.unwrap_or((u64::MAX, 0));
        let numbers = self.naming.numbers().filter(|&number| number >= first);
        for number in numbers {
            let mut bytes = self.naming.open(self.disk, number)?;
            let mut next = Some(offset.max(SEGMENT_HEADER as u64));
            offset = 0;
            while let Some(at) = next.filter(|_| !streams.is_empty()) {
                let rest = batch_at(&mut bytes, at, number)?;
                next = match self.whole(rest, at, number) {
                    Ok(batch) => {
                        show(&batch, rest, &mut streams, &mut shown);
                        Some(at + u64::from(batch.length))
                    }
                    Err(_) => seek_batch(&mut bytes, at + ALIGN as u64)?,
                };
            }
        }
        for end in self.ends.iter().filter(|end| streams.contains(&end.stream)) {
            shown.insert(end.stream, end.next);
        }
        Ok(shown)
    }

    /// A batch stays without the records that are damaged in it.
    fn mended(&mut self, number: u64, batch: Mended) {
        self.plan.mended.push(batch);
        let mended = self.plan.segments.entry(number).or_default();
        mended.rewrite = true;
        mended
            .pieces
            .push(Piece::Mended(self.plan.mended.len() - 1));
    }

    /// The first lost batch tells the whole state after it.
    fn begin_with(&mut self, all: State, records: &[Missing], gap: &mut Lost) {
        let before = &self.walked.state;
        for (id, stream) in before.streams.iter() {
            if !all.streams.contains(id) {
                gap.deleted.insert(id, stream.name.to_string());
            }
        }
        for &lost in records {
            match gap.before.iter_mut().rfind(|it| it.stream == lost.stream) {
                Some(before) if before.next == lost.first => before.next = lost.next,
                _ => gap.before.push(lost),
            }
        }
        for (id, _) in all.streams.iter() {
            self.told.tell(id, self.plan.gaps.len());
        }
        self.told.tell_all(self.plan.gaps.len());
        gap.checkpoint = Some(all.clone());
        self.walked.state = all;
    }

    fn copy(&mut self, number: u64, at: u64, end: u64) {
        let mended = self.plan.segments.entry(number).or_default();
        match mended.pieces.last_mut() {
            Some(Piece::Copy { to, .. }) if *to == at => *to = end,
            last => {
                // Records are left out, though no batch is missing.
                mended.rewrite |= matches!(last, Some(Piece::Copy { .. }))
                    || (last.is_none() && at != SEGMENT_HEADER as u64);
                mended.pieces.push(Piece::Copy { from: at, to: end });
            }
        }
    }

    /// Names in a batch of streams that were made in what is lost, where the walk took others for them.
    fn new_names(&mut self, batch: &BatchHeader, rest: &[u8]) -> Option<Names> {
        self.plan.gaps.last()?;
        let mut told = Names::new();
        for (_, run) in batch.runs(rest, 0).ok()?.filter_map(Result::ok) {
            match run {
                RunView::StreamSet { id, name, .. } => {
                    told.insert(id, name.to_owned());
                }
                RunView::Checkpoint { bytes, form, .. } => {
                    let all = State::decode(bytes, form).unwrap_or_default();
                    let names = all.streams.iter();
                    told.extend(names.map(|(id, stream)| (id, stream.name.to_string())));
                }
                _ => {}
            }
        }
        told.retain(|id, _| !self.names.contains_key(id));
        let gaps = &self.plan.gaps;
        let made = |id: &u32| gaps.iter().rev().find_map(|gap| gap.streams.get(id));
        let is_new = |(id, name): (&u32, &String)| made(id).is_some_and(|made| made.name != *name);
        if told.iter().any(is_new) {
            return Some(told);
        }
        self.names.append(&mut told);
        None
    }

    /// Like [`Salvage::bridge`], and returns whether the result fits what was known: no stream with a higher number was made
    /// in the gap than one that is made behind it. If some streams only seemed to be made behind the gap, returns them.
    fn bridge_counted(&mut self, batch: &BatchHeader, rest: &[u8]) -> Option<Names> {
        let gaps = self.plan.gaps.len();
        let is_counted = self.told.counts(gaps) && gaps > 0;
        let counted = self.walked.state.streams.next_number();
        let made = self.appended_by_older(batch, rest);
        if !made.is_empty() {
            return Some(made);
        }
        self.bridge(batch, rest);
        let streams = &self.walked.state.streams;
        if streams.next_number() == counted {
            return None;
        }
        let runs = batch.runs(rest, 0).ok()?.filter_map(Result::ok);
        let set = runs.filter_map(|(_, run)| match run {
            RunView::StreamSet { id, name, .. } => Some((id, name.to_owned())),
            _ => None,
        });
        let seemed = |(id, _): &(u32, String)| {
            *id >= counted && streams.contains(*id) && !self.made.contains(id)
        };
        let mut made = set.filter(seemed).collect::<Names>();
        if is_counted {
            made.append(&mut self.told.take_set());
        }
        (is_counted || !made.is_empty()).then_some(made)
    }

    /// Streams that whole batches behind the last gap only seemed to make: a producer that was
    /// defined in the gap appends to them.
    fn appended_by_older(&self, batch: &BatchHeader, rest: &[u8]) -> Names {
        let runs = batch.runs(rest, 0).into_iter().flatten();
        let runs = runs.filter_map(Result::ok).map(|(_, run)| run);
        let runs = runs.collect::<Vec<_>>();
        let state = &self.walked.state;
        let made = runs.iter().filter_map(|run| match run {
            RunView::Records(run) if !is_known(run.producer, &runs, state) => {
                let name = self.told.seems_made(run.stream)?;
                Some((run.stream, name.to_owned()))
            }
            _ => None,
        });
        made.collect()
    }

    /// Finds what a batch shows to be missing before it, and sets the state to what it must have
    /// been.
    fn bridge(&mut self, batch: &BatchHeader, rest: &[u8]) {
        let gaps = self.plan.gaps.len();
        let Some(runs) = batch.runs(rest, 0).ok().filter(|_| gaps > 0) else {
            return;
        };
        let runs = runs.filter_map(Result::ok).map(|(_, run)| run);
        let runs = runs.collect::<Vec<_>>();
        let ends = self.ends_of_deleted(&runs);
        let Some(gap) = self.plan.gaps.last_mut() else {
            return;
        };
        let state = &mut self.walked.state;
        let named = &self.names;
        let made = self.made;
        let defines = |runs: &_, id, state: &_| !made.contains(&id) && defines(runs, id, state);
        for run in &runs {
            if let RunView::StreamSet { id, .. } = *run
                && made.contains(&id)
            {
                know(state, gap, named, id);
            }
        }
        let is_told = |stream: u32| self.told.is(stream, gaps);
        let checkpoint = runs.iter().find_map(|run| match *run {
            RunView::Checkpoint { bytes, form, .. } => State::decode(bytes, form),
            _ => None,
        });
        let mut seen = BTreeSet::new();
        // By the batch itself.
        let mut deleted = BTreeSet::new();
        for run in &runs {
            match *run {
                RunView::Records(run) => {
                    let is_first = seen.insert(run.stream) && !is_told(run.stream);
                    if is_first && !defines(&runs, run.stream, state) {
                        pass(state, gap, named, run.stream, run.first);
                    }
                    let is_known = is_known(run.producer, &runs, state);
                    if !is_known && checkpoint.is_none() && state.streams.contains(run.stream) {
                        let name = format!("lost-producer-{}", run.producer);
                        // The producer's stream may be deleted before names are looked for again.
                        let known = (run.stream, name.clone());
                        self.plan.producers.entry(run.producer).or_insert(known);
                        state.add_producer(run.producer, run.stream, 0, &name);
                        gap.producers.insert(run.producer);
                    }
                }
                RunView::Missing { bytes, .. } => {
                    for lost in Missing::decode(bytes)
                        .into_iter()
                        .flat_map(|(_, lost)| lost)
                    {
                        if seen.insert(lost.stream) && !is_told(lost.stream) {
                            pass(state, gap, named, lost.stream, lost.first);
                        }
                    }
                }
                RunView::Producer { stream, .. } | RunView::Cursor { stream, .. }
                    if stream as usize <= STREAMS_MAX && !defines(&runs, stream, state) =>
                {
                    know(state, gap, named, stream);
                }
                RunView::StreamSet { id, first, .. } if state.streams.contains(id) => {
                    let is_first = seen.insert(id) && !is_told(id);
                    if is_first {
                        pass(state, gap, named, id, first);
                    }
                }
                RunView::Stream { id, name, .. } | RunView::StreamSet { id, name, .. } => {
                    let before = state.stream(name).filter(|&before| before != id);
                    if let Some(before) = before.filter(|before| !deleted.contains(before)) {
                        gap.delete(state, before);
                    }
                    if (1..=STREAMS_MAX).contains(&(id as usize)) && !defines(&runs, id - 1, state)
                    {
                        know(state, gap, named, id - 1);
                    }
                }
                RunView::Deleted { id, .. } => {
                    if id as usize <= STREAMS_MAX && !defines(&runs, id, state) {
                        know(state, gap, named, id);
                    }
                    if let Some(end) = ends.get(&id).filter(|_| !seen.contains(&id)) {
                        go_on(state, gap, named, id, *end);
                    }
                    deleted.insert(id);
                }
                // The stream went at least as far as that.
                RunView::Trimmed {
                    stream, position, ..
                } if !seen.contains(&stream)
                    && !is_told(stream)
                    && !defines(&runs, stream, state) =>
                {
                    pass(state, gap, named, stream, position);
                }
                _ => {}
            }
        }
        for (id, stream) in checkpoint.iter().flat_map(|all| all.streams.iter()) {
            if !seen.contains(&id) && !is_told(id) && !defines(&runs, id, state) {
                pass(state, gap, named, id, stream.next);
            }
        }
        let states = (&*state, checkpoint.as_ref());
        self.told.take(gaps, &runs, seen, states);
        if let Some(all) = checkpoint {
            self.remember_names();
            for (id, stream) in all.streams.iter() {
                self.plan.streams.insert(id, stream.name.to_string());
            }
        }
    }

    /// Where streams ended at most that a batch deletes, if nothing has told that: their names go on behind.
    fn ends_of_deleted(&self, runs: &[RunView<'_>]) -> BTreeMap<u32, u64> {
        let gaps = &self.plan.gaps;
        let deleted = runs.iter().filter_map(|run| match *run {
            RunView::Deleted { id, .. } => Some(id),
            _ => None,
        });
        let untold = deleted.filter(|&id| !self.told.is(id, gaps.len()));
        let ends = untold.map(|id| {
            let known = self.walked.state.streams.get(id);
            let since = if known.is_some() { 0 } else { gaps.len() - 1 };
            let unseen = self.told.unseen(id, &gaps[since..]);
            (
                id,
                known.map_or(0, |known| known.next).saturating_add(unseen),
            )
        });
        ends.collect()
    }

    /// The right end of the log, if the end is known to be missing. With streams that were made in what is lost, if it
    /// shows some to be: then the walk begins again.
    fn end(&mut self, claimed: &Claimed) -> Result<Option<Names>, OpenError> {
        // As far as is known, no client was told of anything behind this: opening the log cuts it
        // off.
        let is_missing = self.walked.claims.through >= self.walked.next_batch;
        let is_open = match is_missing {
            true => self
                .gap_at_the_end()
                .map_err(|error| unreadable(self.walked.next_batch, error))?,
            false => false,
        };
        // If nothing were left before them, they would be taken for the beginning of the log.
        if self.plan.segments.is_empty() && !self.plan.dropped.is_empty() {
            self.plan.dropped.append(&mut self.empty);
        }
        // Where nothing follows in a stream, only the file of claims tells where that ended.
        let gaps = self.plan.gaps.len();
        let Some(gap) = self.plan.gaps.last_mut() else {
            return Ok(None);
        };
        let said = claimed.said.map_or(0, |said| said.through);
        // Ends that may be of before tell of the least alone.
        let is_of_the_end = said >= gap.through && claimed.is_exact;
        let state = &mut self.walked.state;
        for end in &claimed.ends {
            if end.stream >= state.streams.next_number() && self.told.counts(gaps) {
                let made = self.told.take_set();
                if !made.is_empty() {
                    return Ok(Some(made));
                }
                continue;
            }
            if !self.told.is(end.stream, gaps) {
                pass(state, gap, &self.names, end.stream, end.next);
                if is_of_the_end {
                    self.told.tell(end.stream, gaps);
                }
            }
        }
        let is_all = is_of_the_end && claimed.ends.len() < ENDS_MAX;
        let needs = self.plan.needs.and(state.needs());
        let may_delete = self.lost_header || needs.has(Needs::STREAMS);
        if is_all && !may_delete {
            self.told.tell_all(gaps);
        }
        let doubt = Doubt {
            gaps: &mut self.plan.gaps,
            state,
            told: &self.told,
            names: &self.names,
            may_delete,
            is_all,
            is_open,
        };
        self.plan.producers.append(&mut doubt.settle());
        Ok(None)
    }

    /// Whether there may have been more behind the claimed batches: the last claimed batch is
    /// missing.
    fn gap_at_the_end(&mut self) -> io::Result<bool> {
        let through = self.walked.claims.through;
        let home = self.last.unwrap_or(self.walked.next_batch);
        if self.fault.is_none() {
            let expected = format!("batches up to {through}, which were durable");
            self.wrong(home, Fault::new(self.end, expected, "the end of the log"));
        }
        self.plan.dropped.append(&mut self.empty);
        let next = self.walked.next_batch;
        let is_seen = |heads: &Heads| heads.number == next && next == through;
        let is_seen = self.is_end_seen && self.heads.as_ref().is_some_and(is_seen);
        self.lost_header |= !is_seen;
        self.gap(home, through, None)?;
        Ok(!is_seen)
    }

    fn remember_names(&mut self) {
        let state = &self.walked.state;
        for (id, stream) in state.streams.iter() {
            self.plan.streams.insert(id, stream.name.to_string());
        }
        for (id, producer) in state.all_producers() {
            let known = (producer.stream, producer.name.to_string());
            self.plan.producers.insert(id, known);
        }
    }
}

fn records_in(ranges: &[Missing]) -> u64 {
    ranges.iter().map(|range| range.next - range.first).sum()
}

/// Notes where a whole batch shows streams to be that were not shown before.
fn show(
    batch: &BatchHeader,
    rest: &[u8],
    streams: &mut BTreeSet<u32>,
    shown: &mut BTreeMap<u32, u64>,
) {
    let mut note = |streams: &mut BTreeSet<u32>, stream, position| {
        if streams.remove(&stream) {
            shown.insert(stream, position);
        }
    };
    let runs = batch.runs(rest, 0).into_iter().flatten();
    for (_, run) in runs.filter_map(Result::ok) {
        match run {
            RunView::Records(run) => note(streams, run.stream, run.first),
            RunView::Missing { bytes, .. } => {
                let lost = Missing::decode(bytes)
                    .into_iter()
                    .flat_map(|(_, lost)| lost);
                lost.for_each(|lost| note(streams, lost.stream, lost.first));
            }
            RunView::Checkpoint { bytes, form, .. } => {
                let all = State::decode(bytes, form).unwrap_or_default();
                for (id, stream) in all.streams.iter() {
                    note(streams, id, stream.next);
                }
                // Streams that the checkpoint does not contain do not exist any more.
                streams.clear();
            }
            _ => {}
        }
    }
}

/// Whether one of the runs makes a stream: then no record of the stream is before them. Settings of an unknown stream may
/// also be a change of it. They are not if they are the first about it, and nothing before them is about a stream with a
/// higher number: numbers are dense, so that stream was made later.
fn defines(runs: &[RunView<'_>], stream: u32, state: &State) -> bool {
    let Some(at) = runs.iter().position(|run| about(run) == Some(stream)) else {
        return false;
    };
    // A producer that appends to a stream that was just made is new, too.
    let is_older = |run: &RunView<'_>| match run {
        RunView::Records(run) => {
            run.stream == stream && run.producer != 0 && !names(runs, run.producer)
        }
        _ => false,
    };
    match runs[at] {
        RunView::Stream { .. } => true,
        RunView::StreamSet { .. } => {
            !state.streams.contains(stream)
                && !runs[..at].iter().any(|run| about(run) > Some(stream))
                && !runs.iter().any(is_older)
        }
        _ => false,
    }
}

/// The stream that a run is about.
fn about(run: &RunView<'_>) -> Option<u32> {
    match *run {
        RunView::Records(run) => Some(run.stream),
        RunView::Stream { id, .. }
        | RunView::StreamSet { id, .. }
        | RunView::Deleted { id, .. } => Some(id),
        RunView::Producer { stream, .. }
        | RunView::Cursor { stream, .. }
        | RunView::Trimmed { stream, .. } => Some(stream),
        RunView::Checkpoint { .. } | RunView::Missing { .. } => None,
    }
}

/// Whether a batch names a producer.
fn names(runs: &[RunView<'_>], producer: u32) -> bool {
    let is_it = |run: &RunView<'_>| matches!(run, RunView::Producer { id, .. } if *id == producer);
    runs.iter().any(is_it)
}

/// Whether a producer is the anonymous one, was there before a batch, or is defined by it.
fn is_known(producer: u32, runs: &[RunView<'_>], state: &State) -> bool {
    producer == 0 || state.find(producer).is_some() || names(runs, producer)
}
