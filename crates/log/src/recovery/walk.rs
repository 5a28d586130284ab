//! Walking over the bytes of one segment, batch after batch, and looking for claims in what cannot
//! be walked over.

use std::io;

use super::window::{Bytes, PIECE, Window};
use crate::catalog::{Index, Segment, Spacing};
use crate::disk::DiskFile;
use crate::format::{
    ALIGN, BATCH_HEADER, BATCH_HEADER_BEFORE, BatchHeader, Fault, Flags, Missing, RunView,
    SEGMENT_HEADER, SegmentHeader, is_batch,
};
use crate::note::Note;
use crate::state::State;

/// The claims that batches make about earlier batches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Claims {
    /// The last batch that a claim says is durable.
    pub(crate) through: u64,
    /// How many whole batches were found by searching.
    pub(crate) found: u64,
}

impl Claims {
    pub(crate) fn add(&mut self, through: u64) {
        self.through = self.through.max(through);
    }
}

/// Where the walk over a segment ended.
#[derive(Debug)]
pub(crate) struct SegmentEnd {
    /// The end of the last good batch.
    pub(crate) offset: u64,
    /// Why the walk ended there, if it is not the end of the file and not all zeros from there.
    pub(crate) fault: Option<Fault>,
    /// The batch there is exactly what was written, and makes no sense: it was no crash.
    pub(crate) is_nonsense: bool,
}

/// Why a batch cannot be taken.
#[derive(Debug)]
pub(crate) enum Bad {
    Torn(Fault),
    Nonsense(Fault),
}

impl From<Bad> for Fault {
    fn from(bad: Bad) -> Fault {
        match bad {
            Bad::Torn(fault) | Bad::Nonsense(fault) => fault,
        }
    }
}

impl From<Fault> for Bad {
    fn from(fault: Fault) -> Bad {
        Bad::Torn(fault)
    }
}

/// The state that the walk over segments builds up.
#[derive(Debug, Default)]
pub(crate) struct Walked {
    pub(crate) state: State,
    pub(crate) claims: Claims,
    /// The number of the next batch.
    pub(crate) next_batch: u64,
    /// Opening that wrote the last batch.
    pub(crate) epoch: u32,
    /// The log's own clock at the last batch.
    pub(crate) lived_us: u64,
    pub(crate) batches: u64,
    pub(crate) records: u64,
    /// The last batch is a closing one.
    pub(crate) is_closed: bool,
}

/// Goes over the batches of a segment, whose header was found to be good, and adds what they hold.
pub(super) fn walk_segment<F: DiskFile>(
    bytes: &mut Window<F>,
    header: SegmentHeader,
    walked: &mut Walked,
    view: &mut Segment,
    mut visit: impl FnMut(u64, &BatchHeader),
) -> io::Result<SegmentEnd> {
    let mut offset = SEGMENT_HEADER as u64;
    loop {
        let rest = batch_at(bytes, offset, header.number)?;
        if rest.is_empty() {
            return Ok(SegmentEnd {
                offset,
                fault: None,
                is_nonsense: false,
            });
        }
        match take_batch(rest, offset, header, walked, view) {
            Ok(batch) => {
                visit(offset, &batch);
                offset += u64::from(batch.length);
            }
            Err(bad) => {
                let is_clean = bytes.is_zero(offset)?;
                let (fault, is_nonsense) = match bad {
                    Bad::Torn(fault) => (fault, false),
                    Bad::Nonsense(fault) => (fault, true),
                };
                let fault = (!is_clean).then_some(fault);
                return Ok(SegmentEnd {
                    offset,
                    fault,
                    is_nonsense,
                });
            }
        }
        view.used = offset;
    }
}

/// The batch at `offset` as long as its header says it is, or what else is there.
pub(crate) fn batch_at(bytes: &mut impl Bytes, offset: u64, segment: u64) -> io::Result<&[u8]> {
    let header = bytes.get(offset, BATCH_HEADER)?;
    let length = BatchHeader::decode(header, offset, segment).map(|batch| batch.length as usize);
    bytes.get(offset, length.unwrap_or(BATCH_HEADER))
}

/// The next place from `from` on where the first bytes of a batch stand.
pub(crate) fn seek_batch(bytes: &mut impl Bytes, from: u64) -> io::Result<Option<u64>> {
    let mut at = from;
    loop {
        let piece = bytes.get(at, PIECE)?;
        let mut places = (0..piece.len()).step_by(ALIGN);
        if let Some(place) = places.find(|&place| is_batch(&piece[place..])) {
            return Ok(Some(at + place as u64));
        }
        if piece.len() < PIECE {
            return Ok(None);
        }
        at += PIECE as u64;
    }
}

/// Takes the batch that begins `rest`, at `offset` of its segment, if it is the next one and whole.
pub(crate) fn take_batch(
    rest: &[u8],
    offset: u64,
    segment: SegmentHeader,
    walked: &mut Walked,
    view: &mut Segment,
) -> Result<BatchHeader, Bad> {
    let batch = BatchHeader::decode(rest, offset, segment.number)?;
    if batch.log != segment.log {
        let expected = format!("a batch of log {:016x}", segment.log);
        let found = format!("one of log {:016x}", batch.log);
        return Err(Bad::Nonsense(Fault::new(offset, expected, found)));
    }
    if batch.number != walked.next_batch {
        let expected = format!("batch {}", walked.next_batch);
        return Err(Bad::Torn(Fault::new(
            offset,
            expected,
            format!("batch {}", batch.number),
        )));
    }
    if batch.durable_through >= batch.number {
        let found = format!("a claim about batch {}", batch.durable_through);
        return Err(Bad::Torn(Fault::new(
            offset,
            "a claim about earlier batches",
            found,
        )));
    }
    if batch.epoch < walked.epoch {
        let expected = format!("a batch of opening {} or later", walked.epoch);
        let found = format!("one of opening {}", batch.epoch);
        return Err(Bad::Torn(Fault::new(offset, expected, found)));
    }
    let is_first = offset == SEGMENT_HEADER as u64;
    if is_first != batch.flags.has(Flags::CHECKPOINT) {
        return Err(Bad::Torn(Fault::new(
            offset,
            "a checkpoint in the first batch alone",
            "otherwise",
        )));
    }
    batch.verify(rest, offset)?;
    replay(&batch, rest, offset, &mut walked.state).map_err(Bad::Nonsense)?;
    index(
        &batch,
        rest,
        offset,
        walked.state.streams.next_number(),
        view,
    )
    .map_err(Bad::Nonsense)?;
    walked.claims.add(batch.durable_through);
    walked.epoch = batch.epoch;
    walked.lived_us = walked.lived_us.max(batch.lived_us);
    let last = last_of(&batch, rest, offset)?;
    walked.next_batch = last + 1;
    walked.is_closed = batch.flags.has(Flags::CLOSING);
    walked.batches += 1;
    walked.records += u64::from(batch.records);
    Ok(batch)
}

/// The number of a batch; for a gap that stands for several lost batches, the last number.
pub(crate) fn last_of(batch: &BatchHeader, rest: &[u8], offset: u64) -> Result<u64, Bad> {
    if !batch.flags.has(Flags::GAP) {
        return Ok(batch.number);
    }
    for run in batch.runs(rest, offset)? {
        let (_, run) = run?;
        if let RunView::Missing { bytes, .. } = run
            && let Some((through, _)) = Missing::decode(bytes)
            && (batch.number..u64::MAX).contains(&through)
        {
            return Ok(through);
        }
    }
    let fault = Fault::new(offset, "a gap that says where it ends", "none");
    Err(Bad::Nonsense(fault))
}

/// Applies a batch to the state; if it has a checkpoint, that alone tells everything.
fn replay(batch: &BatchHeader, rest: &[u8], offset: u64, state: &mut State) -> Result<(), Fault> {
    let has_checkpoint = batch.flags.has(Flags::CHECKPOINT);
    let mut checkpoints = 0;
    for run in batch.runs(rest, offset)? {
        let (at, run) = run?;
        let is_checkpoint = matches!(run, RunView::Checkpoint { .. });
        checkpoints += u32::from(is_checkpoint);
        if is_checkpoint == has_checkpoint {
            state
                .replay(&run, batch.lived_us)
                .map_err(|why| Fault::new(at, "a run that fits what is before", why))?;
        }
    }
    if checkpoints != u32::from(has_checkpoint) {
        let found = format!("{checkpoints} checkpoints");
        return Err(Fault::new(
            offset,
            "as many checkpoints as the header says",
            found,
        ));
    }
    Ok(())
}

fn index(
    batch: &BatchHeader,
    rest: &[u8],
    offset: u64,
    streams: u32,
    view: &mut Segment,
) -> Result<(), Fault> {
    view.newest_us = view.newest_us.max(batch.written_us);
    view.lived_us = view.lived_us.max(batch.lived_us);
    for run in batch.runs(rest, offset)? {
        let (at, run) = run?;
        let run = match run {
            RunView::Records(run) => run,
            RunView::Missing { bytes, .. } => {
                let lost = Missing::decode(bytes).map(|(_, lost)| lost);
                let known = |lost: &Missing| lost.stream < streams;
                view.gaps.extend(lost.into_iter().flatten().filter(known));
                continue;
            }
            _ => continue,
        };
        if run.stream >= streams {
            let found = format!("records of the unknown stream {}", run.stream);
            return Err(Fault::new(at, "records of a known stream", found));
        }
        let note = Note {
            stream: run.stream,
            first: run.first,
            next: run.first.saturating_add(run.count.into()),
            offset: at - offset,
            timestamp_us: run.timestamp_us,
            bytes: run.frames.len() as u64,
        };
        view.newest_us = view.newest_us.max(run.timestamp_us);
        view.index
            .add(&note, offset, batch.length.into(), &Spacing::default());
    }
    Ok(())
}

/// Searches bytes that cannot be walked over for batches of segment `number`, at `from` and later, and adds what their headers claim: a header that is whole was written by this log, even
/// if its batch is torn.
pub(crate) fn scan_claims(
    bytes: &mut impl Bytes,
    from: u64,
    number: u64,
    log: Option<u64>,
    claims: &mut Claims,
) -> io::Result<()> {
    let mut offset = from;
    loop {
        let header = bytes.get(offset, BATCH_HEADER)?;
        if header.len() < BATCH_HEADER_BEFORE {
            return Ok(());
        }
        let here = offset;
        offset += ALIGN as u64;
        if !is_batch(header) {
            continue;
        }
        let Ok(batch) = BatchHeader::decode(header, 0, number) else {
            continue;
        };
        // A batch cannot claim a batch that was not written yet.
        if log.is_some_and(|log| log != batch.log) || batch.durable_through >= batch.number {
            continue;
        }
        claims.add(batch.durable_through);
        let rest = bytes.get(here, batch.length as usize)?;
        if batch.verify(rest, 0).is_ok() {
            claims.found += 1;
            // Whole batches are skipped as a whole: their payload may contain bytes that look like
            // batches.
            offset = here + u64::from(batch.length);
        }
    }
}

/// A segment of which no byte was read yet.
pub(crate) fn unread() -> Segment {
    Segment {
        used: SEGMENT_HEADER as u64,
        newest_us: 0,
        lived_us: 0,
        index: Index::default(),
        gaps: Vec::new(),
        left_out: 0,
    }
}
