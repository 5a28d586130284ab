//! Going on after damage: everything that is whole is kept, and what is lost is marked.
//!
//! The one idea: a repair must know what is lost. [`loss`] says it, [`repair`] takes what was said
//! and refuses if it is not what would be lost now. Nothing is destroyed: each file that is changed
//! is kept beside the log as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};

use super::lost::Lost;
use super::mend::{Mended, Part, add_copy, assemble};
use super::naming::Naming;
use super::rescue::Rescued;
use super::salvage::{self, Piece, Plan};
use crate::catalog::Segment;
use crate::claims;
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, Fault, Flags, Missing, RunView, SEGMENT_HEADER, SegmentHeader,
    VERSION, index_name, padding, put_checkpoint, put_deleted, put_missing, put_producer,
    put_stream, put_stream_set, segment_name,
};
use crate::recovery::{
    Bytes, REPAIR, Walked, Window, batch_at, free_name, refuse_later, take_batch, unread,
    unreadable,
};
use crate::state::{NAMELESS, State};
use crate::{Damage, OpenError, StreamSettings};

/// The records that a repair would give up, because they are lost already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Segments that are under other names, which say themselves what they are: the file, and the name that it gets.
    pub renamed: Vec<(String, String)>,
    /// The missing parts, in the order of the log.
    pub gaps: Vec<Gap>,
    /// The last batch that is known to have been durable.
    pub durable_through: u64,
    /// How many batches there are after the repair: those that are whole, and one for each gap.
    pub batches: u64,
    /// How many records are in these batches, and so in the log.
    pub records: u64,
    /// The files that are changed or replaced would be kept under these names.
    pub kept_in: Vec<String>,
}

/// Lost batches, or lost records in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The first thing that is wrong, and where.
    pub damage: Damage,
    /// The first batch that is lost or of which records are, and the last.
    pub batches: (u64, u64),
    /// How many records of these batches are whole, and stay.
    pub kept: u64,
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
    /// Whether the first of the batches is known to have been durable. Other records may have been
    /// acknowledged too.
    pub acknowledged: bool,
}

/// A log that was repaired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The files as they were before; `tidewire log dump FILE` shows the contents of one.
    pub kept_in: Vec<String>,
}

/// Why a log was not repaired. The repair can be tried again.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The log has changed since the loss was shown. No file was changed.
    #[error("repairing would not lose what was agreed to; ask again what would be lost")]
    Changed,
    /// The system says so, or what would be written does not hold together.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The facts that a repair knows before it changes any file.
struct Intent {
    naming: Naming,
    plan: Plan,
    /// The loss; `None`: no repair is needed.
    loss: Option<Loss>,
}

impl Intent {
    fn of<D: Disk>(disk: &D) -> Result<Intent, OpenError> {
        refuse_later(disk)?;
        let claimed = claims::read(disk);
        let claimed =
            claimed.map_err(|error| OpenError::io("reading the file of claims", error))?;
        let naming = Naming::of(disk, &claimed)?;
        let plan = salvage::plan(disk, &naming, &claimed)?;
        let loss = loss_of(disk, &naming, &plan)?;
        Ok(Intent { naming, plan, loss })
    }
}

/// The records that [`repair`] would give up; `None` if all bytes are as they were written, or if
/// only a torn tail is not, which opening the log cuts off.
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
    let mended = plan.mended.iter().map(|batch| plan.gap_in(batch));
    let mut gaps = gaps.chain(mended).collect::<Vec<_>>();
    gaps.sort_by_key(|gap| gap.batches);
    Ok(Some(Loss {
        renamed,
        gaps,
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
    /// The header of a segment that is written.
    fn header(&self, number: u64) -> SegmentHeader {
        SegmentHeader {
            version: VERSION,
            needs: self.needs,
            log: self.log,
            number,
            kind: self.kind,
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
            kept: lost.kept(),
            positions,
            skipped,
            deleted: lost.deleted.values().cloned().collect(),
            unsure: lost.unsure.iter().map(|&id| self.stream(id)).collect(),
            acknowledged: lost.first <= self.durable_through,
        }
    }

    /// The gap of a batch that stays without some of its records.
    fn gap_in(&self, batch: &Mended) -> Gap {
        let number = batch.header.number;
        let missing = batch.missing.iter();
        Gap {
            damage: damage(batch.header.segment, number, batch.fault.clone()),
            batches: (number, number),
            kept: batch.header.records.into(),
            positions: missing
                .map(|lost| (self.stream(lost.stream), lost.first, lost.next))
                .collect(),
            skipped: Vec::new(),
            deleted: Vec::new(),
            unsure: Vec::new(),
            acknowledged: number <= self.durable_through,
        }
    }
}

/// Repairs a log that no process has open: keeps everything that is whole, and puts a mark where
/// something is missing, which readers are told of. A repair may be broken off at any point and
/// begun again. A repair needs room for two copies of the largest damaged segment.
///
/// # Errors
/// [`RepairError::Changed`] if `agreed` is not what [`loss`] says now; what the system says.
pub fn repair<D: Disk>(disk: &D, agreed: &Loss) -> Result<Repaired, RepairError> {
    let Intent { naming, plan, loss } = Intent::of(disk)?;
    if loss.as_ref() != Some(agreed) {
        return Err(RepairError::Changed);
    }
    let gaps = Rehearsal::of(&plan, disk, &naming).everything()?;
    naming
        .settle(disk)
        .map_err(|error| OpenError::io("giving segments their names", error))?;
    // From the end: where positions and names are in doubt, the last gap says so. A repair that
    // goes on after an interruption finds that there, or everything that it was found from.
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
    // The old index would describe the former contents.
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

/// A segment that is written to a file.
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

    /// Parts of segments, which all have their names and are not changed yet.
    fn add_parts<D: Disk>(&mut self, disk: &D, parts: &[Part]) -> io::Result<()> {
        for part in parts {
            match *part {
                Part::Bytes(ref bytes) => self.add(bytes)?,
                Part::Copy { segment, from, to } => {
                    let mut bytes = Window::open(disk, &segment_name(segment))?;
                    bytes.pieces(from, to, |_, piece| self.add(piece))?;
                }
            }
        }
        Ok(())
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

/// Has a segment be as it is to be; `gaps` are the batches that stand in the place of lost ones.
fn rewrite<D: Disk>(disk: &D, plan: &Plan, number: u64, gaps: &[Vec<Part>]) -> io::Result<()> {
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
            (Piece::Gap(index), _) => written.add_parts(disk, &gaps[index])?,
            (Piece::Mended(index), _) => written.add_parts(disk, &plan.mended[index].parts)?,
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
struct Rehearsal<'a, D> {
    walked: Walked,
    plan: &'a Plan,
    disk: &'a D,
    naming: &'a Naming,
    /// The batches that stand in the place of lost ones, by the plan's gaps.
    gaps: Vec<Vec<Part>>,
}

impl<'a, D: Disk> Rehearsal<'a, D> {
    fn of(plan: &'a Plan, disk: &'a D, naming: &'a Naming) -> Rehearsal<'a, D> {
        Rehearsal {
            walked: Walked {
                next_batch: plan.segments.keys().next().copied().unwrap_or(1),
                ..Walked::default()
            },
            plan,
            disk,
            naming,
            gaps: vec![Vec::new(); plan.gaps.len()],
        }
    }

    /// The gaps.
    fn everything(mut self) -> Result<Vec<Vec<Part>>, OpenError> {
        for &number in self.plan.segments.keys() {
            let bytes = before(self.naming.open(self.disk, number));
            let bytes = bytes.map_err(|error| unreadable(number, error))?;
            self.segment(number, bytes)?;
        }
        Ok(self.gaps)
    }

    /// These bytes of a segment.
    fn read(&self, segment: u64, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = self.naming.open(self.disk, segment)?;
        let length = usize::try_from(to - from).map_err(io::Error::other)?;
        let there = bytes.get(from, length)?;
        match there.len() == length {
            true => Ok(there.to_vec()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn assemble(&self, number: u64, parts: &[Part]) -> Result<Vec<u8>, OpenError> {
        let bytes = assemble(parts, |segment, from, to| self.read(segment, from, to));
        bytes.map_err(|error| unreadable(number, error))
    }

    /// Goes over a segment in its repaired form.
    fn segment(
        &mut self,
        number: u64,
        mut bytes: Option<Window<D::File>>,
    ) -> Result<(), OpenError> {
        let header = self.plan.header(number);
        let mut end = SEGMENT_HEADER as u64;
        let mut view = unread();
        for &piece in &self.plan.segments[&number].pieces {
            let (mut from, to) = match piece {
                Piece::Copy { from, to } => (from, to),
                Piece::Gap(index) => {
                    let lost = &self.plan.gaps[index];
                    let parts = self.gap(number, lost, end == SEGMENT_HEADER as u64)?;
                    let whole = self.assemble(number, &parts)?;
                    end += self.take(&whole, header, end, &mut view)?;
                    self.gaps[index] = parts;
                    continue;
                }
                Piece::Mended(index) => {
                    let whole = self.assemble(number, &self.plan.mended[index].parts)?;
                    end += self.take(&whole, header, end, &mut view)?;
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

    /// The batch that stands in the place of lost ones.
    fn gap(&self, segment: u64, lost: &Lost, is_first: bool) -> Result<Vec<Part>, OpenError> {
        let mut gap = Runs::of(lost, &self.walked.state);
        let before = lost.deleted.iter();
        for (&id, _) in before.filter(|(id, _)| !lost.streams.contains_key(id)) {
            gap.delete(id);
        }
        let mut named = BTreeMap::new();
        for (&id, made) in &lost.streams {
            // The stream was made in the lost part, and deleted in it.
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
        gap.tell(|stream| !lost.deleted.contains_key(&stream));
        // The gap states its end in any case.
        gap.put(|to| put_missing(to, lost.through, &[]));
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
                let lived_us = self.walked.lived_us;
                let replayed = match run {
                    Put::Said(run) => {
                        state.replay(&RunView::decode(run).expect("just encoded"), lived_us)
                    }
                    Put::Kept(run) => state.replay(&RunView::Records(run.records()), lived_us),
                };
                replayed.map_err(|why| {
                    broken(
                        segment,
                        Fault::new(0, "a gap that fits what is before", why),
                    )
                })?;
            }
            if !lost.before.is_empty() {
                let mut run = Vec::new();
                put_missing(&mut run, lost.through, &lost.before);
                runs.push(Put::Said(run));
            }
            let mut run = Vec::new();
            put_checkpoint(&mut run, |to| state.encode(to));
            runs.push(Put::Said(run));
        }
        let (mut body_crc, mut length, mut records) = (0, BATCH_HEADER, 0_u32);
        for run in &runs {
            let (covered, whole) = match run {
                Put::Said(run) => (&run[..], run.len()),
                Put::Kept(run) => (run.head(), (run.to - run.from) as usize),
            };
            body_crc = crc32c::crc32c_append(body_crc, covered);
            length += whole;
            if let Put::Kept(run) = run {
                records = records.saturating_add(run.records().count);
            }
        }
        let pad = padding(length);
        let header = BatchHeader {
            header: BATCH_HEADER,
            log: self.plan.log,
            segment,
            number: lost.first,
            durable_through: 0,
            written_us: 0,
            length: (length + pad) as u32,
            runs: runs.len() as u32,
            records,
            body_crc,
            flags,
            epoch: self.walked.epoch,
            lived_us: self.walked.lived_us,
        };
        let mut parts = vec![Part::Bytes(header.encode().to_vec())];
        for run in runs {
            match run {
                Put::Said(run) => parts.push(Part::Bytes(run)),
                Put::Kept(run) => add_copy(&mut parts, run.segment, run.from, run.to),
            }
        }
        parts.push(Part::Bytes(vec![0; pad]));
        Ok(parts)
    }
}

/// A run of a batch that stands in the place of others.
enum Put<'a> {
    /// The run describes the missing records.
    Said(Vec<u8>),
    /// The run was in one of the lost batches.
    Kept(&'a Rescued),
}

/// The runs of a batch that stands for a gap.
struct Runs<'a> {
    lost: &'a Lost,
    runs: Vec<Put<'a>>,
    /// The missing positions that are not described yet.
    positions: Vec<Missing>,
    rescued: Vec<&'a Rescued>,
    deleted: BTreeSet<u32>,
}

impl<'a> Runs<'a> {
    /// `before`: the state before the batch.
    fn of(lost: &'a Lost, before: &State) -> Self {
        // A stream that is deleted goes before producers are named that were new in what is lost.
        let is_kept = |run: &&Rescued| {
            let records = run.records();
            let is_known = records.producer == 0 || before.find(records.producer).is_some();
            is_known || !lost.deleted.contains_key(&records.stream)
        };
        let (rescued, left): (Vec<_>, Vec<_>) = lost.rescued.iter().partition(is_kept);
        let mut positions = lost.positions.clone();
        positions.extend(left.into_iter().map(|run| Missing {
            stream: run.records().stream,
            first: run.records().first,
            next: run.next(),
        }));
        positions.sort_by_key(|lost| (lost.stream, lost.first));
        Runs {
            lost,
            runs: Vec::new(),
            positions,
            rescued,
            deleted: BTreeSet::new(),
        }
    }

    fn put<T>(&mut self, put: impl FnOnce(&mut Vec<u8>) -> T) {
        let mut run = Vec::new();
        put(&mut run);
        self.runs.push(Put::Said(run));
    }

    /// Describes the missing records of these streams, and the whole runs between them.
    fn tell(&mut self, is_its: impl Fn(u32) -> bool) {
        let its_own = |lost: &mut Missing| is_its(lost.stream);
        let mut positions = self.positions.extract_if(.., its_own).collect::<Vec<_>>();
        let its_own = |run: &mut &Rescued| is_its(run.records().stream);
        let rescued = self.rescued.extract_if(.., its_own).collect::<Vec<_>>();
        for run in rescued {
            let records = run.records();
            let is_before =
                |lost: &mut Missing| lost.stream == records.stream && lost.next <= records.first;
            let before = positions.extract_if(.., is_before).collect::<Vec<_>>();
            self.put_positions(&before);
            self.runs.push(Put::Kept(run));
        }
        self.put_positions(&positions);
    }

    fn put_positions(&mut self, positions: &[Missing]) {
        if !positions.is_empty() {
            let through = self.lost.through;
            self.put(|to| put_missing(to, through, positions));
        }
    }

    /// A stream is deleted, if it is not yet, where it is known to end: no position of it is given
    /// again.
    fn delete(&mut self, id: u32) {
        let all = self.lost.checkpoint.as_ref().map(|all| &all.streams);
        if all.is_some_and(|all| id < all.next_number() && !all.contains(id)) {
            // The lost checkpoint says so.
            return;
        }
        if !self.lost.deleted.contains_key(&id) || !self.deleted.insert(id) {
            return;
        }
        self.tell(|stream| stream == id);
        self.put(|to| put_deleted(to, id));
    }
}

/// The damaged place of a batch.
fn damage(segment: u64, batch: u64, fault: Fault) -> Damage {
    Damage {
        file: segment_name(segment),
        offset: fault.offset,
        batch,
        expected: fault.expected,
        found: fault.found,
    }
}

fn broken(number: u64, fault: Fault) -> OpenError {
    let damage = damage(number, 0, fault);
    let text = format!("what would be written does not hold together: {damage}");
    OpenError::io("repairing", io::Error::other(text))
}
