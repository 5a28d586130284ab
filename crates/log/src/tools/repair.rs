//! Going on after damage: everything that is whole is kept, and what is lost is marked.
//!
//! The one idea: whoever repairs must know what is lost. [`loss`] says it, [`repair`] takes what was
//! said and refuses if it is not what would be lost now. Nothing is destroyed: each file that is
//! changed is kept beside the log as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};

use super::naming::Naming;
use super::salvage::{self, Lost, Piece, Plan};
use crate::catalog::Segment;
use crate::claims;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, Fault, Flags, Missing, RunView, SEGMENT_HEADER, SegmentHeader,
    VERSION, index_name, padding, put_checkpoint, put_deleted, put_missing, put_producer,
    put_stream, put_stream_set, segment_name,
};
use crate::recovery::{
    REPAIR, Walked, Window, batch_at, free_name, take_batch, unread, unreadable,
};
use crate::state::NAMELESS;
use crate::{Damage, OpenError, StreamSettings};

/// What repairing a log would lose, because it is lost already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Segments that are under other names, which say themselves what they are: the file, and the name that it gets.
    pub renamed: Vec<(String, String)>,
    /// What is missing, in the order of the log.
    pub gaps: Vec<Gap>,
    /// The last batch that is known to have been durable.
    pub durable_through: u64,
    /// How many batches are whole and stay.
    pub batches: u64,
    /// How many records are in those.
    pub records: u64,
    /// The files that are changed or replaced would be kept under these names.
    pub kept_in: Vec<String>,
}

/// Batches that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first thing that is wrong, and where.
    pub damage: Damage,
    /// The first batch that is lost, and the last.
    pub batches: (u64, u64),
    /// The positions that are lost: stream, first, and the one after the last.
    pub positions: Vec<(String, u64, u64)>,
    /// Positions that are not known to have been given, and that no other record gets: stream, first, and the
    /// one after the last. So it is where nothing follows in a stream, and neither the batches themselves nor the file
    /// of claims tell how many records of it there were.
    pub skipped: Vec<(String, u64, u64)>,
    /// Streams that were deleted in what is lost: others have their names, or it tells so itself.
    pub deleted: Vec<String>,
    /// Streams that may have been deleted there, and others of the same names made. Their records stay, they go on behind
    /// all positions that either may have given, and their producers are told that they were forgotten: the marks
    /// that are known may be of an earlier life.
    pub unsure: Vec<String>,
    /// Whether the first of the batches is known to have been durable. Others may have been.
    pub acknowledged: bool,
}

/// A log that was repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The files as they were before; `tidewire log dump FILE` shows what is in one.
    pub kept_in: Vec<String>,
}

/// Why a log was not repaired. It can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The log is not what it was when the loss was told. Nothing was changed.
    #[error("repairing would not lose what was agreed to; ask again what would be lost")]
    Changed,
    /// The system says so, or what would be written does not hold together.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What is known before anything is changed.
struct Intent {
    naming: Naming,
    plan: Plan,
    /// `None`: nothing is to be done.
    loss: Option<Loss>,
}

impl Intent {
    fn of<D: Disk>(disk: &D) -> Result<Intent, OpenError> {
        let claimed = claims::read(disk);
        let claimed =
            claimed.map_err(|error| OpenError::io("reading the file of claims", error))?;
        let naming = Naming::of(disk, &claimed)?;
        let plan = salvage::plan(disk, &naming, &claimed)?;
        let loss = loss_of(disk, &naming, &plan)?;
        Ok(Intent { naming, plan, loss })
    }
}

/// What [`repair`] would lose; `None` if everything is as it was written, or if only a torn tail is
/// not, which opening the log cuts off.
///
/// # Errors
/// [`OpenError::Io`]; also if two files say that they are one segment, and neither has its name.
pub fn loss<D: Disk>(disk: &D) -> Result<Option<Loss>, OpenError> {
    Ok(Intent::of(disk)?.loss)
}

fn loss_of<D: Disk>(disk: &D, naming: &Naming, plan: &Plan) -> Result<Option<Loss>, OpenError> {
    let is_needed = plan.segments.values().any(|mended| mended.rewrite);
    let mut names = disk
        .list()
        .map_err(|error| OpenError::io("listing the log's directory", error))?;
    let displaced = naming.displaced(&mut names);
    let renamed = naming.renamed().collect::<Vec<_>>();
    if !is_needed && plan.dropped.is_empty() && displaced.is_empty() && renamed.is_empty() {
        return Ok(None);
    }
    let rewritten = changed(plan)
        .filter(|&number| naming.contains(number))
        .map(|number| free_name(&names, &format!("{}.cut", segment_name(number))));
    let kept_in = displaced.into_iter().map(|(_, kept)| kept).chain(rewritten);
    let gaps = plan.gaps.iter().map(|lost| plan.gap(lost));
    Ok(Some(Loss {
        renamed,
        gaps: gaps.collect(),
        durable_through: plan.durable_through,
        batches: plan.batches,
        records: plan.records,
        kept_in: kept_in.collect(),
    }))
}

/// The numbers of the files that do not stay as they are.
fn changed(plan: &Plan) -> impl Iterator<Item = u64> {
    let rewritten = plan.segments.iter().filter(|(_, mended)| mended.rewrite);
    let rewritten = rewritten.map(|(&number, _)| number);
    rewritten.chain(plan.dropped.iter().copied())
}

impl Plan {
    /// Of a segment that is written.
    fn header(&self, number: u64) -> SegmentHeader {
        SegmentHeader {
            version: VERSION,
            needs: self.needs,
            log: self.log,
            number,
        }
    }

    fn stream(&self, id: u32) -> String {
        let known = self.streams.get(&id).cloned();
        known.unwrap_or_else(|| format!("{NAMELESS}{id}"))
    }

    fn gap(&self, lost: &Lost) -> Gap {
        let (mut positions, mut skipped) = (Vec::new(), Vec::new());
        for &Missing {
            stream,
            first,
            next,
        } in lost.before.iter().chain(&lost.positions)
        {
            let certain = lost.certain.get(&stream).map_or(next, |certain| *certain);
            let certain = certain.clamp(first, next);
            let name = || lost.deleted.get(&stream).cloned();
            let name = || name().unwrap_or_else(|| self.stream(stream));
            if first < certain {
                positions.push((name(), first, certain));
            }
            if certain < next {
                skipped.push((name(), certain, next));
            }
        }
        Gap {
            damage: lost.damage.clone(),
            batches: (lost.first, lost.through),
            positions,
            skipped,
            deleted: lost.deleted.values().cloned().collect(),
            unsure: lost.unsure.iter().map(|&id| self.stream(id)).collect(),
            acknowledged: lost.first <= self.durable_through,
        }
    }
}

/// Repairs a log that no process has open: keeps everything that is whole, and puts a mark where
/// something is missing, which readers are told of. It may be broken off at any point and begun
/// again. It needs room for two copies of the largest damaged segment.
///
/// # Errors
/// [`RepairError::Changed`] if `agreed` is not what [`loss`] says now; what the system says.
pub fn repair<D: Disk>(disk: &D, agreed: &Loss) -> Result<Repaired, RepairError> {
    let Intent { naming, plan, loss } = Intent::of(disk)?;
    if loss.as_ref() != Some(agreed) {
        return Err(RepairError::Changed);
    }
    let gaps = Rehearsal::of(&plan).everything(disk, &naming)?;
    naming
        .settle(disk)
        .map_err(|error| OpenError::io("giving segments their names", error))?;
    // From the end: where positions and names are in doubt, the last gap says so. Who goes on when this was broken off
    // finds that there, or everything that it was found from.
    let changed = plan.segments.iter().rev();
    for (&number, _) in changed.filter(|(_, mended)| mended.rewrite) {
        let name = segment_name(number);
        let rewritten = rewrite(disk, &plan, number, &gaps);
        rewritten.map_err(|error| unwritten(&name, error))?;
    }
    for &number in &plan.dropped {
        let name = segment_name(number);
        set_aside(disk, &name)
            .map_err(|error| OpenError::io(format!("setting {name} aside"), error))?;
    }
    Ok(Repaired {
        kept_in: agreed.kept_in.clone(),
    })
}

fn unwritten(name: &str, error: io::Error) -> OpenError {
    OpenError::io(format!("replacing {name}"), error)
}

/// Begins what will take the place of a file.
fn begin<D: Disk>(disk: &D) -> io::Result<D::File> {
    if disk.list()?.iter().any(|there| there == REPAIR) {
        disk.remove(REPAIR)?;
    }
    disk.create(REPAIR)
}

/// Has a file hold what was written, and another one what it held. At no moment is neither there.
fn replace<D: Disk>(
    disk: &D,
    name: &str,
    number: u64,
    before: Option<&mut Window<D::File>>,
    after: &D::File,
) -> io::Result<()> {
    if let Some(before) = before {
        let kept = disk.create(&free_name(&disk.list()?, &format!("{name}.cut")))?;
        let length = before.length();
        before.pieces(0, length, |at, piece| {
            kept.write_at(&[IoSlice::new(piece)], at)
        })?;
        kept.sync_data()?;
    }
    after.sync_data()?;
    disk.sync_directory()?;
    // It would tell of what was there before.
    let _ = disk.remove(&index_name(number));
    disk.rename(REPAIR, name)?;
    disk.sync_directory()
}

fn set_aside<D: Disk>(disk: &D, name: &str) -> io::Result<()> {
    let names = disk.list()?;
    if names.iter().any(|there| there == name) {
        disk.rename(name, &free_name(&names, &format!("{name}.cut")))?;
        disk.sync_directory()?;
    }
    Ok(())
}

/// Written to a file at once.
const PIECE: usize = 1 << 20;

/// A segment on its way to a file.
struct Written<'a, F> {
    into: &'a F,
    /// Where the segment ends, with what waits to be written.
    end: u64,
    waiting: Vec<u8>,
}

impl<F: DiskFile> Written<'_, F> {
    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.end += bytes.len() as u64;
        self.waiting.extend_from_slice(bytes);
        match self.waiting.len() < PIECE {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let at = self.end - self.waiting.len() as u64;
        self.into.write_at(&[IoSlice::new(&self.waiting)], at)?;
        self.waiting.clear();
        Ok(())
    }
}

/// A segment as it was; `None` if it has been lost whole.
fn before<F>(opened: io::Result<Window<F>>) -> io::Result<Option<Window<F>>> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

/// Has a segment be as it is to be; `gaps` are the batches that stand in the place of those that are lost.
fn rewrite<D: Disk>(disk: &D, plan: &Plan, number: u64, gaps: &[Vec<u8>]) -> io::Result<()> {
    let name = segment_name(number);
    let mut before = before(Window::open(disk, &name))?;
    let into = begin(disk)?;
    let mut written = Written {
        into: &into,
        end: 0,
        waiting: Vec::new(),
    };
    written.add(&plan.header(number).encode())?;
    for &piece in &plan.segments[&number].pieces {
        match (piece, &mut before) {
            (Piece::Gap(index), _) => written.add(&gaps[index])?,
            (Piece::Copy { from, to }, Some(before)) => {
                before.pieces(from, to, |_, piece| written.add(piece))?;
            }
            (Piece::Copy { .. }, None) => {}
        }
    }
    written.flush()?;
    replace(disk, &name, number, before.as_mut(), &into)
}

/// Goes over the log once more as it will be, so that what is written is known to hold together before anything is
/// changed.
struct Rehearsal<'a> {
    walked: Walked,
    plan: &'a Plan,
    /// The batches that stand in the place of those that are lost, by the plan's gaps.
    gaps: Vec<Vec<u8>>,
}

impl<'a> Rehearsal<'a> {
    fn of(plan: &'a Plan) -> Rehearsal<'a> {
        Rehearsal {
            walked: Walked {
                next_batch: plan.segments.keys().next().copied().unwrap_or(1),
                ..Walked::default()
            },
            plan,
            gaps: vec![Vec::new(); plan.gaps.len()],
        }
    }

    /// The gaps.
    fn everything<D: Disk>(mut self, disk: &D, naming: &Naming) -> Result<Vec<Vec<u8>>, OpenError> {
        for &number in self.plan.segments.keys() {
            let bytes = before(naming.open(disk, number));
            let bytes = bytes.map_err(|error| unreadable(number, error))?;
            self.segment(number, bytes)?;
        }
        Ok(self.gaps)
    }

    /// Goes over a segment as it will be.
    fn segment<F: DiskFile>(
        &mut self,
        number: u64,
        mut bytes: Option<Window<F>>,
    ) -> Result<(), OpenError> {
        let header = self.plan.header(number);
        let mut end = SEGMENT_HEADER as u64;
        let mut view = unread();
        for &piece in &self.plan.segments[&number].pieces {
            let (mut from, to) = match piece {
                Piece::Copy { from, to } => (from, to),
                Piece::Gap(index) => {
                    let lost = &self.plan.gaps[index];
                    let gap = self.gap(number, lost, end == SEGMENT_HEADER as u64)?;
                    end += self.take(&gap, header, end, &mut view)?;
                    self.gaps[index] = gap;
                    continue;
                }
            };
            let Some(bytes) = bytes.as_mut() else {
                continue;
            };
            while from < to {
                let whole = batch_at(bytes, from, number);
                let whole = whole.map_err(|error| unreadable(number, error))?;
                let length = self.take(whole, header, end, &mut view)?;
                (from, end) = (from + length, end + length);
            }
        }
        Ok(())
    }

    /// Takes a batch as the next one, at this offset; with its length.
    fn take(
        &mut self,
        whole: &[u8],
        header: SegmentHeader,
        at: u64,
        view: &mut Segment,
    ) -> Result<u64, OpenError> {
        let taken = take_batch(whole, at, header, &mut self.walked, view);
        let batch = taken.map_err(|bad| broken(header.number, bad.into()))?;
        Ok(batch.length.into())
    }

    /// The batch that stands in the place of those that are lost.
    fn gap(&self, segment: u64, lost: &Lost, is_first: bool) -> Result<Vec<u8>, OpenError> {
        let mut gap = Runs::of(lost);
        let before = lost.deleted.iter();
        for (&id, _) in before.filter(|(id, _)| !lost.streams.contains_key(id)) {
            gap.delete(id);
        }
        let mut named = BTreeMap::new();
        for (&id, made) in &lost.streams {
            // Made in what is lost, and deleted in it.
            if let Some(before) = named.insert(&made.name, id) {
                gap.delete(before);
            }
            gap.put(|to| match made.first {
                0 => put_stream(to, id, &made.name),
                first => put_stream_set(to, id, first, &StreamSettings::default(), &made.name),
            });
        }
        for id in &lost.producers {
            let known = self.plan.producers.get(id);
            if let Some((stream, name)) = known.filter(|(id, _)| !lost.deleted.contains_key(id)) {
                gap.put(|to| put_producer(to, *id, *stream, self.walked.lived_us, name));
            }
        }
        let deleted = |lost_in: &Missing| lost.deleted.contains_key(&lost_in.stream);
        let (rest, positions) = gap
            .positions
            .iter()
            .partition::<Vec<_>, _>(|it| deleted(it));
        gap.positions = rest;
        gap.put(|to| put_missing(to, lost.through, &positions));
        for &id in lost.deleted.keys() {
            gap.delete(id);
        }
        let mut runs = gap.runs;
        let mut flags = Flags::GAP;
        if is_first {
            flags = Flags(flags.0 | Flags::CHECKPOINT.0);
            let known = lost.checkpoint.as_ref().unwrap_or(&self.walked.state);
            let mut state = known.clone();
            for run in &runs {
                let view = RunView::decode(run).expect("just encoded");
                let lived_us = self.walked.lived_us;
                state.replay(&view, lived_us).map_err(|why| {
                    broken(
                        segment,
                        Fault::new(0, "a gap that fits what is before", why),
                    )
                })?;
            }
            if !lost.before.is_empty() {
                let mut run = Vec::new();
                put_missing(&mut run, lost.through, &lost.before);
                runs.push(run);
            }
            let mut run = Vec::new();
            put_checkpoint(&mut run, |to| state.encode(to));
            runs.push(run);
        }
        let body = runs.concat();
        let pad = padding(body.len());
        let header = BatchHeader {
            header: BATCH_HEADER,
            log: self.plan.log,
            segment,
            number: lost.first,
            durable_through: 0,
            written_us: 0,
            length: (BATCH_HEADER + body.len() + pad) as u32,
            runs: runs.len() as u32,
            records: 0,
            body_crc: crc32c::crc32c(&body),
            flags,
            epoch: self.walked.epoch,
            lived_us: self.walked.lived_us,
        };
        let mut bytes = header.encode().to_vec();
        bytes.extend_from_slice(&body);
        bytes.resize(bytes.len() + pad, 0);
        Ok(bytes)
    }
}

/// The runs of a batch that stands in the place of others.
struct Runs<'a> {
    lost: &'a Lost,
    runs: Vec<Vec<u8>>,
    /// What is not said yet.
    positions: Vec<Missing>,
    deleted: BTreeSet<u32>,
}

impl<'a> Runs<'a> {
    fn of(lost: &'a Lost) -> Self {
        Runs {
            lost,
            runs: Vec::new(),
            positions: lost.positions.clone(),
            deleted: BTreeSet::new(),
        }
    }

    fn put<T>(&mut self, put: impl FnOnce(&mut Vec<u8>) -> T) {
        let mut run = Vec::new();
        put(&mut run);
        self.runs.push(run);
    }

    /// A stream is deleted, if it is not yet, where it is known to end: no position of it is given
    /// again.
    fn delete(&mut self, id: u32) {
        let all = self.lost.checkpoint.as_ref().map(|all| &all.streams);
        if all.is_some_and(|all| id < all.next_number() && !all.contains(id)) {
            // Its checkpoint says so.
            return;
        }
        if !self.lost.deleted.contains_key(&id) || !self.deleted.insert(id) {
            return;
        }
        let positions = std::mem::take(&mut self.positions);
        let is_its = |lost: &Missing| lost.stream == id;
        let (its, others) = positions.into_iter().partition::<Vec<_>, _>(is_its);
        self.positions = others;
        if !its.is_empty() {
            let through = self.lost.through;
            self.put(|to| put_missing(to, through, &its));
        }
        self.put(|to| put_deleted(to, id));
    }
}

fn broken(number: u64, fault: Fault) -> OpenError {
    let Fault {
        offset,
        expected,
        found,
    } = fault;
    let (file, batch) = (segment_name(number), 0);
    let damage = Damage {
        file,
        offset,
        batch,
        expected,
        found,
    };
    let text = format!("what would be written does not hold together: {damage}");
    OpenError::io("repairing", io::Error::other(text))
}
