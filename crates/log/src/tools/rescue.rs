//! Runs of records that are whole where batches are not.
//!
//! The one idea: a run of records has a checksum over itself alone, so it can be proven whole even if its batch is
//! damaged. Runs stand back to back, so the length of each leads to the next. If a length is damaged, the next whole
//! run is searched for, byte by byte.
//!
//! The search may find a run in the payload of a damaged record, and a client can make a payload look like a run. So a
//! run that was found by the search counts only if later parts of the log prove that its stream had these positions.

use crate::Compression;
use crate::format::{
    ALIGN, BATCH_HEADER, BATCH_HEADER_BEFORE, BatchHeader, FRAME_HEADER, RECORDS_HEADER,
    RUN_PREFIX, Records, RunView, is_batch, restored, u32_at,
};

use super::inside;

/// A run that is whole.
#[derive(Clone, Debug)]
pub(super) struct Rescued {
    /// The segment of the run, and the run's beginning and end in the segment.
    pub(super) segment: u64,
    pub(super) from: u64,
    pub(super) to: u64,
    head: [u8; RECORDS_HEADER],
    /// Whether the lengths of runs from the beginning of a batch lead to the run. If not, it was
    /// found by searching.
    pub(super) is_led_to: bool,
}

impl Rescued {
    /// The run without its frames.
    pub(super) fn records(&self) -> Records<'_> {
        let (records, _) = Records::decode(&self.head).expect("it was decoded before");
        records
    }

    /// The run's header, unchanged.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    pub(super) fn next(&self) -> u64 {
        let records = self.records();
        records.first.saturating_add(records.count.into())
    }
}

/// The batches to which a rescued run may belong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batches {
    pub(super) log: u64,
    pub(super) segment: u64,
    /// The first one that may be there.
    pub(super) first: u64,
    /// Batches of earlier openings are left over from bytes that were cut off.
    pub(super) epoch: u32,
}

/// Most bytes that are summed for each byte that is looked at: damaged bytes may look like any number of runs.
const SUMMED: usize = 16;
/// Least number of bytes that are summed for all of them.
const SUMMED_LEAST: usize = 16 << 20;
/// How far lengths must lead on from a run that is damaged itself.
const LED: u32 = 3;

/// The whole runs in `bytes`, which are at `offset` of a segment and begin where a batch does, or did.
pub(super) fn rescue(bytes: &[u8], offset: u64, batches: Batches) -> Vec<Rescued> {
    search(bytes, offset, batches).0
}

/// [`rescue`], and where runs begin and end that are damaged, as far as lengths lead to and from them.
pub(super) fn search(
    bytes: &[u8],
    offset: u64,
    batches: Batches,
) -> (Vec<Rescued>, Vec<(u64, u64)>) {
    let mut search = Search {
        bytes,
        offset,
        batches,
        end: bytes.len(),
        left: bytes.len().saturating_mul(SUMMED).max(SUMMED_LEAST),
        found: Vec::new(),
        harmed: Vec::new(),
    };
    search.everything();
    (search.found, search.harmed)
}

struct Search<'a> {
    bytes: &'a [u8],
    offset: u64,
    batches: Batches,
    /// Where the batch ends whose runs are looked at.
    end: usize,
    /// How many bytes may still be summed.
    left: usize,
    found: Vec<Rescued>,
    harmed: Vec<(u64, u64)>,
}

impl Search<'_> {
    fn everything(&mut self) {
        let mut at = 0;
        let mut is_led_to = true;
        // The end of a batch whose header is whole: the next one begins there, whatever its first bytes are now.
        let mut begins = Some(0);
        while at < self.bytes.len() && self.left > 0 {
            if is_led_to && begins != Some(at) {
                // Zeros that fill a batch up.
                let aligned = self.aligned(at);
                let is_next = begins == Some(aligned) || self.begins_batch(aligned);
                at = if is_next { aligned } else { at };
            }
            let is_known = begins == Some(at);
            // A payload may begin like a batch, and nothing that is in it is to be passed over.
            let is_header = || is_led_to || restored(&self.bytes[at..]).is_some();
            if is_known || (self.begins_batch(at) && is_header()) {
                let (next, is_whole) = self.batch(at);
                // A payload may look like a header, but not like a whole one of this log.
                is_led_to |= is_known || is_whole;
                begins = Some(self.end).filter(|_| is_whole);
                at = next;
                continue;
            }
            if at >= self.end {
                self.end = self.bytes.len();
            }
            if let Some((head, to)) = self.records(at) {
                self.found.push(Rescued {
                    segment: self.batches.segment,
                    from: self.offset + at as u64,
                    to: self.offset + to as u64,
                    head,
                    is_led_to,
                });
                at = to;
            } else if let Some(next) = self.length_leads(at).filter(|_| is_led_to) {
                let at_offset = |at: usize| self.offset + at as u64;
                self.harmed.push((at_offset(at), at_offset(next)));
                at = next;
            } else {
                (at, is_led_to) = (at + 1, false);
            }
        }
    }

    fn aligned(&self, at: usize) -> usize {
        ((self.offset + at as u64).next_multiple_of(ALIGN as u64) - self.offset) as usize
    }

    /// Whether first bytes of a batch stand here.
    fn begins_batch(&self, at: usize) -> bool {
        let rest = self.bytes.get(at..).unwrap_or_default();
        self.aligned(at) == at && is_batch(rest)
    }

    /// Where the first run of the batch is that begins here, and whether its header is whole.
    fn batch(&mut self, at: usize) -> (usize, bool) {
        let rest = &self.bytes[at..];
        self.end = self.bytes.len();
        let place = self.offset + at as u64;
        let length = |header: &[u8]| (u32_at(header, 48) as usize).max(BATCH_HEADER_BEFORE);
        if let Some((header, length)) = restored(rest).map(|header| (header, length(&header))) {
            let Batches {
                log,
                segment,
                first,
                epoch,
            } = self.batches;
            let end = (at + length).min(self.bytes.len());
            let batch = BatchHeader::decode(&header, place, segment);
            let batch = batch.ok().filter(|batch| batch.log == log);
            let is_here = |batch: &BatchHeader| batch.number >= first && batch.epoch >= epoch;
            return match batch {
                Some(batch) if is_here(&batch) => {
                    self.end = end;
                    (at + batch.header, true)
                }
                // The batch is of an earlier opening.
                Some(_) => {
                    self.end = end;
                    (end, true)
                }
                // The batch is of another segment or log, and any client may have written these
                // bytes.
                None => (end, false),
            };
        }
        // The batch's header is damaged, and with it its length and version.
        let lengths = [BATCH_HEADER, BATCH_HEADER_BEFORE];
        let mut firsts = lengths.into_iter().map(|length| at + length);
        let first = firsts.find(|&first| self.plausible(first).is_some());
        (first.unwrap_or(at + BATCH_HEADER_BEFORE), false)
    }

    /// The end of the run that may begin here.
    fn plausible(&self, at: usize) -> Option<usize> {
        let prefix = self.bytes.get(at..at + RUN_PREFIX)?;
        let is_records = Records::is(prefix);
        // Kinds of this version, and flags that are 0 but for the flags of compression.
        let has_kind = (1..=12).contains(&prefix[0]);
        let flags = if is_records {
            prefix[1] & 0x0f
        } else {
            prefix[1]
        };
        let end = at.checked_add(RUN_PREFIX + u32_at(prefix, 4) as usize)?;
        let fits = end <= self.end && end > at + RUN_PREFIX;
        let is_run = has_kind && flags == 0 && prefix[2..4] == [0; 2] && fits;
        let is_long = end >= at + RECORDS_HEADER || !is_records;
        (is_run && is_long).then_some(end)
    }

    /// Where the next run begins, though the one that begins here is damaged.
    fn length_leads(&self, at: usize) -> Option<usize> {
        self.plausible(at).filter(|&next| self.leads_on(next, LED))
    }

    /// Whether a run begins here, or a batch ends.
    fn leads_on(&self, at: usize, further: u32) -> bool {
        let aligned = self.aligned(at);
        if aligned >= self.end || self.begins_batch(aligned) {
            return true;
        }
        match self.plausible(at) {
            Some(next) => further == 0 || self.leads_on(next, further - 1),
            None => false,
        }
    }

    /// The header of the whole run of records that begins here, and where it ends.
    fn records(&mut self, at: usize) -> Option<([u8; RECORDS_HEADER], usize)> {
        let end = self.plausible(at)?;
        let whole = &self.bytes[at..end];
        if !Records::is(whole) {
            return None;
        }
        let RunView::Records(records) = RunView::decode(whole)? else {
            return None;
        };
        let least = match records.compression {
            Compression::None => records.count as usize * FRAME_HEADER,
            _ => 1,
        };
        if records.frames.len() < least {
            return None;
        }
        self.left = self.left.saturating_sub(whole.len());
        let head = whole[..RECORDS_HEADER].try_into().ok()?;
        inside::is_whole(&records, self.offset + at as u64).then_some((head, end))
    }
}
