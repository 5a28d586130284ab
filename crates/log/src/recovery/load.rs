//! Reading all segments of a log, without changing anything.

use std::io;

use super::error::{Damage, OpenError, unreadable_file};
use super::later::refuse_later;
use super::names::segments;
use super::report::Short;
use super::walk::walk_segment;
use super::walk::{Claims, scan_claims};
use super::walk::{Walked, unread};
use super::window::{Bytes, Window};
use crate::catalog::{Segment, Spacing};
use crate::claims::{self, CLAIMS, Claimed, ClaimsFile};
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, Fault, SEGMENT_HEADER, SegmentHeader, segment_name,
};
use crate::index::Saved;
use crate::settings::Verify;
use crate::state::State;
use crate::writer::Active;

/// A log as an opening found it.
#[derive(Debug)]
pub(crate) struct Loaded<F> {
    /// The random number of the log; `None` if there is no segment.
    pub(crate) log: Option<u64>,
    pub(crate) state: State,
    pub(crate) claims: Claims,
    pub(crate) next_batch: u64,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// Segments that are whole, at least at their beginning.
    pub(crate) segments: Vec<Found>,
    /// The first fault, if bad bytes follow the good part.
    pub(crate) fault: Option<Damage>,
    /// The segments behind that.
    pub(crate) beyond: Vec<u64>,
    /// Segments that are none of the log any more: retention had removed them or an earlier opening
    /// had set them aside, and their names have come back.
    pub(crate) stale: Vec<u64>,
    /// The content of the claims file.
    pub(crate) claimed: Claimed,
    /// The last batch is a closing one.
    pub(crate) is_closed: bool,
    /// See [`Short`].
    pub(crate) short: Option<Short>,
    /// From the last batch: which opening wrote it, and the log's own clock.
    pub(crate) epoch: u32,
    pub(crate) lived_us: u64,
    /// Bytes in later segments, and behind the good part of the last good one, that are not zero.
    pub(crate) beyond_bytes: u64,
    /// Set when the log was made ready for writing.
    pub(crate) active: Option<Active<F>>,
    pub(crate) durable: u64,
    pub(crate) unsynced: Vec<u64>,
    /// With [`Policy::Os`](crate::Policy::Os): segments, and up to where they were written in earlier
    /// openings of which nothing says that it is durable.
    pub(crate) unproven: Vec<(u64, u64)>,
    pub(crate) claims_file: Option<ClaimsFile<F>>,
}

/// A segment of which at least the header is good.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) number: u64,
    /// Header of the segment.
    pub(crate) header: SegmentHeader,
    /// The number behind the last batch that is in the segment or before it.
    pub(crate) next_batch: u64,
    pub(crate) view: Segment,
}

impl Found {
    /// The segment's number, and its facts for readers.
    pub(crate) fn of_catalog(self) -> (u64, Segment) {
        (self.number, self.view)
    }
}

/// How an opening treats damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// The opening refuses damage.
    Strict,
    /// The opening takes damage for the end of the log, wherever the damage is: for tools that look
    /// and change nothing.
    Lenient,
}

/// How far the opening of a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opening {
    /// Segments that there are.
    pub segments: u64,
    /// Segments that are done with, whether they were read or their index files were taken instead.
    pub done: u64,
    /// Bytes of batches that were read and verified.
    pub bytes: u64,
}

/// Is told how far the opening of a log has come.
pub(crate) type Watcher<'a> = &'a mut dyn FnMut(Opening);

/// Reads all segments, or the segments that need a check.
pub(crate) fn load<D: Disk>(
    disk: &D,
    verify: Verify,
    manner: Manner,
) -> Result<Loaded<D::File>, OpenError> {
    refuse_later(disk)?;
    load_watched(disk, verify, manner, &mut |_| {})
}

/// [`load`] of a log of which is known that no later version has written it. Tells how far it is, after every batch.
pub(crate) fn load_watched<D: Disk>(
    disk: &D,
    verify: Verify,
    manner: Manner,
    watch: Watcher<'_>,
) -> Result<Loaded<D::File>, OpenError> {
    let claimed_by = || {
        let claimed = claims::read(disk);
        claimed.map_err(|error| OpenError::io("reading the file of claims", error))
    };
    let claimed = claimed_by()?;
    let mut numbers =
        segments(disk).map_err(|error| OpenError::io("listing the log's directory", error))?;
    // If another process writes the log meanwhile, segments that were claimed before must exist
    // now, and segments that were removed before may be missing.
    let now = claimed_by()?;
    let said = now.said.map_or(0, |said| said.oldest);
    let stale = numbers.extract_if(.., |number| *number < said).collect();
    let oldest = now.oldest(numbers.first().copied());
    let mut load = Load::new(&numbers, manner, claimed, oldest);
    load.stale = stale;
    let durable = match (verify, numbers.last()) {
        (Verify::Tail, Some(&last)) => {
            let said = load.claimed.said.map_or(0, |said| said.through);
            claim_of(disk, last).max(said)
        }
        _ => 0,
    };
    load.opening.segments = numbers.len() as u64;
    for (index, &number) in numbers.iter().enumerate() {
        let name = segment_name(number);
        let next = numbers.get(index + 1).copied();
        load.opening.done = index as u64;
        watch(load.opening);
        if load.remembered(disk, number, next, durable) {
            continue;
        }
        let mut bytes = Window::open(disk, &name).map_err(|error| unreadable(number, error))?;
        if load.fault.is_none() {
            load.segment(&mut bytes, number, next, watch)?;
        } else {
            load.beyond(&mut bytes, number)?;
        }
    }
    if verify == Verify::Tail && !load.knows_state {
        // The checkpoint that was to tell everything is torn.
        return load_watched(disk, Verify::All, manner, watch);
    }
    load.finish()
}

pub(crate) fn unreadable(number: u64, error: io::Error) -> OpenError {
    unreadable_file(&segment_name(number), error)
}

/// The last durable batch according to the first batch of a segment; 0 if it does not say.
fn claim_of<D: Disk>(disk: &D, number: u64) -> u64 {
    let mut bytes = [0; BATCH_HEADER];
    let read = |file: D::File| file.read_at(&mut bytes, SEGMENT_HEADER as u64);
    if disk.open(&segment_name(number)).and_then(read).is_err() {
        return 0;
    }
    BatchHeader::decode(&bytes, SEGMENT_HEADER as u64, number)
        .map_or(0, |batch| batch.durable_through)
}

struct Load {
    manner: Manner,
    claimed: Claimed,
    stale: Vec<u64>,
    /// Whether the last good segment was read.
    knows_state: bool,
    log: Option<u64>,
    walked: Walked,
    segments: Vec<Found>,
    spacing: Spacing,
    fault: Option<Damage>,
    beyond: Vec<u64>,
    beyond_bytes: u64,
    opening: Opening,
}

impl Load {
    fn new(numbers: &[u64], manner: Manner, claimed: Claimed, oldest: u64) -> Load {
        let mut walked = Walked::default();
        let first = numbers.first().copied().unwrap_or(1);
        if first > 1 {
            // Earlier segments were removed; a segment is removed only when the first batch of this
            // one is durable.
            walked.claims.add(first);
        }
        walked.next_batch = first;
        if let Some(said) = claimed.said {
            walked.claims.add(said.through);
            walked.next_batch = oldest.max(1);
        }
        Load {
            manner,
            claimed,
            stale: Vec::new(),
            knows_state: true,
            log: None,
            walked,
            segments: Vec::new(),
            spacing: Spacing::default(),
            fault: None,
            beyond: Vec::new(),
            beyond_bytes: 0,
            opening: Opening::default(),
        }
    }

    /// Whether the index file of a segment can be used instead of reading the segment: its batches
    /// are durable, end where the next segment begins, and belong to this log.
    fn remembered<D: Disk>(
        &mut self,
        disk: &D,
        number: u64,
        next: Option<u64>,
        durable: u64,
    ) -> bool {
        let Some(next) = next else { return false };
        if self.fault.is_some() || number != self.walked.next_batch || durable + 1 < next {
            return false;
        }
        let mut bytes = [0; SEGMENT_HEADER];
        let header = disk.open(&segment_name(number)).and_then(|file| {
            file.read_at(&mut bytes, 0)?;
            file.len()
        });
        let (Ok(length), Some(saved)) = (header, Saved::load(disk, number)) else {
            return false;
        };
        if saved.epoch < self.walked.epoch {
            return false;
        }
        let found = SegmentHeader::decode(&bytes, number);
        let found = found.map(|header| SegmentHeader {
            kind: None,
            ..header
        });
        let is_ours = found == Ok(saved.header)
            && self.log.is_none_or(|log| log == saved.header.log)
            && saved.next_batch == next
            && saved.view.used <= length;
        if is_ours {
            self.knows_state = false;
            self.log = Some(saved.header.log);
            self.walked.next_batch = next;
            self.walked.epoch = saved.epoch;
            self.walked.lived_us = self.walked.lived_us.max(saved.lived_us);
            self.push(Found {
                number,
                header: saved.header,
                next_batch: next,
                view: saved.view,
            });
        }
        is_ours
    }

    fn push(&mut self, mut found: Found) {
        self.spacing.take(&mut found.view, |_| 0);
        self.segments.push(found);
        let segments = &mut self.segments;
        let each = |each: &mut dyn FnMut(&mut Segment)| {
            segments.iter_mut().for_each(|found| each(&mut found.view));
        };
        self.spacing.keep_to(each, |_| 0);
    }

    fn damage(&self, number: u64, fault: Fault) -> Damage {
        let Fault {
            offset,
            expected,
            found,
        } = fault;
        let (file, batch) = (segment_name(number), self.walked.next_batch);
        Damage {
            file,
            offset,
            batch,
            expected,
            found,
        }
    }

    fn segment<F: DiskFile>(
        &mut self,
        bytes: &mut Window<F>,
        number: u64,
        next: Option<u64>,
        watch: Watcher<'_>,
    ) -> Result<(), OpenError> {
        let failed = |error| unreadable(number, error);
        let expected = self.walked.next_batch;
        if number != expected {
            let expected_here = format!("a segment that begins with batch {expected}");
            let fault = Fault::new(
                0,
                expected_here,
                format!("one that begins with batch {number}"),
            );
            if number < expected {
                return self.comes_again(bytes, number, fault);
            }
            self.fault = Some(self.damage(number, fault));
            return self.beyond(bytes, number);
        }
        let header = bytes.get(0, SEGMENT_HEADER).map_err(failed)?;
        let header = match SegmentHeader::decode(header, number) {
            Ok(header) => header,
            Err(fault) if fault.offset == 0 => {
                self.fault = Some(self.damage(number, fault));
                return self.beyond(bytes, number);
            }
            // The header is whole, and says that this file is of no log that could be opened.
            Err(fault) => return self.refuse(bytes, number, fault),
        };
        if let Some(fault) = self.foreign(header) {
            return self.refuse(bytes, number, fault);
        }
        let mut view = unread();
        let opening = &mut self.opening;
        let visit = |_, batch: &BatchHeader| {
            opening.bytes += u64::from(batch.length);
            watch(*opening);
        };
        let end =
            walk_segment(bytes, header, &mut self.walked, &mut view, visit).map_err(failed)?;
        let fault = match end.fault {
            Some(fault) if end.is_nonsense && self.manner == Manner::Strict => {
                return self.refuse(bytes, number, fault);
            }
            fault => fault,
        };
        let next_batch = self.walked.next_batch;
        let is_followed = next == Some(next_batch);
        let found = Found {
            number,
            header,
            next_batch,
            view,
        };
        if end.offset == SEGMENT_HEADER as u64 {
            // Header and first batch are written together: without the one, the other is torn.
            let zeros = || Fault::new(end.offset, "the first batch of the segment", "zeros");
            self.fault = Some(self.damage(number, fault.unwrap_or_else(zeros)));
            return self.beyond(bytes, number);
        }
        self.push(found);
        self.knows_state = true;
        if let Some(fault) = fault.filter(|_| !is_followed) {
            self.fault = Some(self.damage(number, fault));
            let from = end.offset;
            self.beyond_bytes += bytes.significant(from).map_err(failed)? - from;
            scan_claims(bytes, from, number, self.log, &mut self.walked.claims).map_err(failed)?;
        }
        Ok(())
    }

    /// A segment behind the good part of the log.
    fn beyond<F: DiskFile>(&mut self, bytes: &mut Window<F>, number: u64) -> Result<(), OpenError> {
        let failed = |error| unreadable(number, error);
        let header = bytes.get(0, SEGMENT_HEADER).map_err(failed)?;
        if self.manner == Manner::Strict
            && let Ok(header) = SegmentHeader::decode(header, number)
            && let Some(fault) = self.foreign(header)
        {
            return self.refuse(bytes, number, fault);
        }
        self.beyond.push(number);
        self.beyond_bytes += bytes.significant(0).map_err(failed)?;
        scan_claims(bytes, 0, number, self.log, &mut self.walked.claims).map_err(failed)?;
        Ok(())
    }

    /// Recognises a segment whose batches also stand in an earlier segment. The earlier one was
    /// written later: this one was set aside as a torn tail, and a failed sync has left its name in
    /// the directory.
    fn comes_again<F: DiskFile>(
        &mut self,
        bytes: &mut Window<F>,
        number: u64,
        fault: Fault,
    ) -> Result<(), OpenError> {
        let header = bytes
            .get(0, SEGMENT_HEADER)
            .map_err(|error| unreadable(number, error))?;
        let is_ours = SegmentHeader::decode(header, number)
            .is_ok_and(|header| self.log.is_none_or(|log| log == header.log));
        if !is_ours && self.manner == Manner::Strict {
            return self.refuse(bytes, number, fault);
        }
        self.stale.push(number);
        Ok(())
    }

    /// All segments must be of the log that the first one is of.
    fn foreign(&mut self, header: SegmentHeader) -> Option<Fault> {
        let log = *self.log.get_or_insert(header.log);
        let found = format!("one of log {:016x}", header.log);
        (header.log != log).then(|| Fault::new(16, format!("a segment of log {log:016x}"), found))
    }

    fn refuse<F: DiskFile>(
        &mut self,
        bytes: &mut Window<F>,
        number: u64,
        fault: Fault,
    ) -> Result<(), OpenError> {
        let damage = self.damage(number, fault);
        if self.manner == Manner::Strict {
            return Err(OpenError::Damaged {
                damage,
                claimed: self.walked.claims.through,
            });
        }
        self.fault.get_or_insert(damage);
        self.beyond(bytes, number)
    }

    /// Notes that the end which the claims file names is missing.
    fn missing_end(&mut self) {
        let next_batch = self.walked.next_batch;
        let said = self.claimed.said.unwrap_or_default();
        if self.fault.is_some() || said.through.max(said.newest) < next_batch {
            return;
        }
        let last = self.segments.last();
        let (number, offset) = match last.filter(|_| said.newest < next_batch) {
            Some(last) => (last.number, last.view.used),
            None => (said.newest, 0),
        };
        let through = said.through.max(said.newest);
        let expected = format!("batches up to {through}, as the file of claims says");
        let found = match offset {
            0 => "no such file",
            _ => "the end of the log",
        };
        self.fault = Some(self.damage(number, Fault::new(offset, expected, found)));
    }

    fn finish<F>(mut self) -> Result<Loaded<F>, OpenError> {
        self.missing_end();
        let next_batch = self.walked.next_batch;
        let claimed = self.walked.claims.through;
        if let (Some(log), Some(said)) = (self.log, self.claimed.said)
            && said.log != log
            && self.manner == Manner::Strict
        {
            let fault = Fault::new(
                8,
                format!("the claims of log {log:016x}"),
                format!(
                    "those of log {:016x}; remove this file if the segments are the right ones",
                    said.log
                ),
            );
            let damage = Damage {
                file: CLAIMS.to_owned(),
                ..self.damage(0, fault)
            };
            return Err(OpenError::Damaged { damage, claimed });
        }
        if self.manner == Manner::Strict
            && claimed >= next_batch
            && let Some(damage) = self.fault
        {
            return Err(OpenError::Damaged { damage, claimed });
        }
        Ok(Loaded {
            log: self.log,
            state: self.walked.state,
            claims: self.walked.claims,
            next_batch,
            batches: self.walked.batches,
            records: self.walked.records,
            segments: self.segments,
            fault: self.fault,
            beyond: self.beyond,
            beyond_bytes: self.beyond_bytes,
            stale: self.stale,
            claimed: self.claimed,
            is_closed: self.walked.is_closed,
            short: None,
            epoch: self.walked.epoch,
            lived_us: self.walked.lived_us,
            active: None,
            durable: claimed,
            unsynced: Vec::new(),
            unproven: Vec::new(),
            claims_file: None,
        })
    }
}
