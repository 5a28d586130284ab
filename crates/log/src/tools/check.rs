//! Checks whether all bytes are as they were written: not only up to the first problem.

use std::io;

use super::inside;
use crate::claims::{self, CLAIMS};
use crate::disk::{Disk, DiskFile};
use crate::format::{ALIGN, BatchHeader, Fault, SEGMENT_HEADER, SegmentHeader, segment_name};
use crate::recovery::{
    Bytes, Window, batch_at, last_of, refuse_later, seek_batch, segments, unreadable,
};
use crate::view::steady;
use crate::{Damage, OpenError};

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many segments there are.
    pub segments: u64,
    /// How many batches are whole.
    pub batches: u64,
    /// How many records are in these batches.
    pub records: u64,
    /// The last batch that another one says was durable.
    pub durable_through: u64,
    /// All damaged places, in the order of the log.
    pub problems: Vec<Problem>,
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The place of the damage, and what was found.
    pub damage: Damage,
    /// The first whole batch behind the problem, if there is one.
    pub next_good: Option<u64>,
    /// Whether a claim says that the batch was durable. Without a claim, the batch may still have been durable if
    /// it was written within a second before a crash; opening the log cuts it off, with all that follows.
    pub acknowledged: bool,
}

/// Reads everything and lists every problem. The log may be written meanwhile.
///
/// # Errors
/// [`OpenError::Io`].
pub fn check<D: Disk>(disk: &D) -> Result<Report, OpenError> {
    steady(|| look(disk))
}

fn look<D: Disk>(disk: &D) -> Result<Report, OpenError> {
    refuse_later(disk)?;
    let claimed = || {
        let claimed = claims::read(disk);
        claimed.map_err(|error| OpenError::io("reading the file of claims", error))
    };
    // The claims are read before the listing, because all claimed segments must exist then; and
    // again after it, because the log may remove segments meanwhile.
    let before = claimed()?;
    let mut numbers =
        segments(disk).map_err(|error| OpenError::io("listing the log's directory", error))?;
    let said = before.said.unwrap_or_default();
    let now = claimed()?;
    let oldest = now.said.unwrap_or_default().oldest;
    numbers.retain(|&number| number >= oldest);
    let oldest = now.oldest(numbers.first().copied());
    let first = match (before.said, numbers.first()) {
        (Some(_), _) => oldest.max(1),
        (None, first) => first.copied().unwrap_or(1),
    };
    let mut check = Check {
        report: Report {
            segments: numbers.len() as u64,
            ..Report::default()
        },
        next_batch: first,
        log: None,
        end: 0,
    };
    check.report.durable_through = said.through;
    if first > 1 {
        check.report.durable_through = said.through.max(first);
    }
    for &number in &numbers {
        Window::open(disk, &segment_name(number))
            .and_then(|mut bytes| check.segment(&mut bytes, number))
            .map_err(|error| unreadable(number, error))?;
    }
    let through = said.through.max(said.newest);
    if through >= check.next_batch {
        let expected = format!("batches up to {through}, as the file of claims says");
        let last = numbers.last().copied().unwrap_or(said.newest);
        let (number, at) = match last >= said.newest {
            true => (last, check.end),
            // The file of claims is missing.
            false => (said.newest, 0),
        };
        check.problem(number, Fault::new(at, expected, "the end of the log"), None);
    }
    if before.is_damaged {
        let expected = "what is known to be durable";
        let found = "neither of two copies whole";
        check.problem(0, Fault::new(0, expected, found), None);
        if let Some(problem) = check.report.problems.last_mut() {
            problem.damage.file = CLAIMS.to_owned();
        }
    }
    let Check { mut report, .. } = check;
    let through = report.durable_through;
    report.problems.iter_mut().for_each(|problem| {
        problem.acknowledged = problem.damage.batch <= through;
    });
    Ok(report)
}

struct Check {
    report: Report,
    next_batch: u64,
    log: Option<u64>,
    /// The end of the last batch in its segment.
    end: u64,
}

impl Check {
    fn problem(&mut self, number: u64, fault: Fault, next_good: Option<u64>) {
        let Fault {
            offset,
            expected,
            found,
        } = fault;
        let (file, batch) = (segment_name(number), self.next_batch);
        let damage = Damage {
            file,
            offset,
            batch,
            expected,
            found,
        };
        self.report.problems.push(Problem {
            damage,
            next_good,
            acknowledged: false,
        });
    }

    fn segment<F: DiskFile>(&mut self, bytes: &mut Window<F>, number: u64) -> io::Result<()> {
        if number < self.next_batch && self.report.batches > 0 {
            // The segment's batches stand in an earlier one; opening sets it aside.
            let expected = format!("a segment that begins with batch {}", self.next_batch);
            let fault = Fault::new(0, expected, format!("one that begins with batch {number}"));
            self.problem(number, fault, None);
            return Ok(());
        }
        if number != self.next_batch {
            let expected = format!("a segment that begins with batch {}", self.next_batch);
            let fault = Fault::new(0, expected, format!("one that begins with batch {number}"));
            self.problem(number, fault, Some(number));
            self.next_batch = number;
        }
        match SegmentHeader::decode(bytes.get(0, SEGMENT_HEADER)?, number) {
            Ok(header) if self.log.is_some_and(|log| log != header.log) => {
                let expected = format!("a segment of log {:016x}", self.log.unwrap_or_default());
                let found = format!("one of log {:016x}", header.log);
                self.problem(number, Fault::new(16, expected, found), None);
            }
            Ok(header) => self.log = Some(header.log),
            Err(fault) => self.problem(number, fault, None),
        }
        let mut offset = SEGMENT_HEADER as u64;
        loop {
            let rest = batch_at(bytes, offset, number)?;
            if rest.is_empty() {
                return Ok(());
            }
            match self.batch(rest, offset, number) {
                Ok(batch) => {
                    // A batch may be as it was written and still make no sense.
                    if let Err(fault) = inside::look(&batch, rest, offset) {
                        self.problem(number, fault, None);
                    }
                    self.next_batch = last_of(&batch, rest, offset)
                        .unwrap_or(batch.number)
                        .saturating_add(1);
                    offset += u64::from(batch.length);
                    self.end = offset;
                }
                Err(_) if bytes.is_zero(offset)? => return Ok(()),
                Err(fault) => {
                    let next = self.find(bytes, offset + ALIGN as u64, number)?;
                    let next_good = next.as_ref().map(|(_, batch)| batch.number);
                    self.problem(number, fault, next_good);
                    let Some((at, batch)) = next else {
                        return Ok(());
                    };
                    self.next_batch = batch.number;
                    offset = at;
                }
            }
        }
    }

    fn batch(&mut self, rest: &[u8], offset: u64, number: u64) -> Result<BatchHeader, Fault> {
        let batch = BatchHeader::decode(rest, offset, number)?;
        self.report.durable_through = self.report.durable_through.max(batch.durable_through);
        if batch.number != self.next_batch {
            let expected = format!("batch {}", self.next_batch);
            return Err(Fault::new(
                offset,
                expected,
                format!("batch {}", batch.number),
            ));
        }
        if self.log.is_some_and(|log| log != batch.log) {
            let expected = format!("a batch of log {:016x}", self.log.unwrap_or_default());
            return Err(Fault::new(
                offset,
                expected,
                format!("one of log {:016x}", batch.log),
            ));
        }
        batch.verify(rest, offset)?;
        self.report.batches += 1;
        self.report.records += u64::from(batch.records);
        Ok(batch)
    }

    /// The next whole batch of this segment and log from an offset on.
    fn find<F: DiskFile>(
        &self,
        bytes: &mut Window<F>,
        mut from: u64,
        number: u64,
    ) -> io::Result<Option<(u64, BatchHeader)>> {
        while let Some(at) = seek_batch(bytes, from)? {
            let rest = batch_at(bytes, at, number)?;
            if let Ok(batch) = BatchHeader::decode(rest, at, number) {
                let is_ours = self.log.is_none_or(|log| log == batch.log);
                let is_next = batch.number >= self.next_batch;
                if is_ours && is_next && batch.verify(rest, at).is_ok() {
                    return Ok(Some((at, batch)));
                }
            }
            from = at + ALIGN as u64;
        }
        Ok(None)
    }
}
