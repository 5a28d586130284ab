//! Going on after damage: everything that is whole is kept, and what is lost is marked.
//!
//! The one idea: whoever repairs must know what is lost. [`loss`] says it, [`repair`] takes what was
//! said and refuses if it is not what would be lost now. Nothing is destroyed: each file that is
//! changed is kept beside the log as it was.

use std::io::{self, IoSlice};

use super::salvage::{self, Lost, Piece, Plan};
use crate::disk::{Disk, DiskFile};
use crate::format::{
    BATCH_HEADER, BatchHeader, Fault, Flags, RunView, SEGMENT_HEADER, SegmentHeader, VERSION,
    index_name, padding, put_checkpoint, put_deleted, put_missing, put_producer, put_stream,
    segment_name,
};
use crate::recovery::{REPAIR, Walked, contents, free_name, take_batch, unread};
use crate::{Damage, OpenError};

/// What repairing a log would lose, because it is lost already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
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
    /// The positions that are lost: stream, first, and the one after the last. Where nothing follows
    /// in a stream, what is not told by the batch itself or by the file of claims is not known; those
    /// positions are given again.
    pub positions: Vec<(String, u64, u64)>,
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

/// What [`repair`] would lose; `None` if everything is as it was written, or if only a torn tail is
/// not, which opening the log cuts off.
///
/// # Errors
/// [`OpenError::Io`].
pub fn loss<D: Disk>(disk: &D) -> Result<Option<Loss>, OpenError> {
    let plan = salvage::plan(disk)?;
    loss_of(disk, &plan)
}

fn loss_of<D: Disk>(disk: &D, plan: &Plan) -> Result<Option<Loss>, OpenError> {
    let is_needed = plan.segments.values().any(|mended| mended.rewrite);
    if !is_needed && plan.dropped.is_empty() {
        return Ok(None);
    }
    let names = disk
        .list()
        .map_err(|error| OpenError::io("listing the log's directory", error))?;
    let kept_in = changed(plan)
        .map(segment_name)
        .filter(|name| names.contains(name))
        .map(|name| free_name(&names, &format!("{name}.cut")));
    let gaps = plan.gaps.iter().map(|lost| Gap {
        damage: lost.damage.clone(),
        batches: (lost.first, lost.through),
        positions: lost
            .positions
            .iter()
            .map(|lost| (plan.stream(lost.stream), lost.first, lost.next))
            .collect(),
        acknowledged: lost.first <= plan.durable_through,
    });
    Ok(Some(Loss {
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
    fn stream(&self, id: u32) -> String {
        let known = self.streams.get(&id).cloned();
        known.unwrap_or_else(|| format!("lost-stream-{id}"))
    }
}

/// Repairs a log that no process has open: keeps everything that is whole, and puts a mark where
/// something is missing, which readers are told of. It may be broken off at any point and begun
/// again. It needs room for two copies of the largest damaged segment.
///
/// # Errors
/// [`RepairError::Changed`] if `agreed` is not what [`loss`] says now; what the system says.
pub fn repair<D: Disk>(disk: &D, agreed: &Loss) -> Result<Repaired, RepairError> {
    let plan = salvage::plan(disk)?;
    if loss_of(disk, &plan)?.as_ref() != Some(agreed) {
        return Err(RepairError::Changed);
    }
    let mut rewriting = Rewriting {
        walked: Walked::default(),
        plan: &plan,
    };
    rewriting.walked.next_batch = plan.segments.keys().next().copied().unwrap_or(1);
    let mut bytes = Vec::new();
    for (&number, mended) in &plan.segments {
        let name = segment_name(number);
        match contents(disk, &name, &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => bytes.clear(),
            read => read.map_err(|error| OpenError::io(format!("reading {name}"), error))?,
        }
        let whole = rewriting.segment(number, &bytes)?;
        if mended.rewrite {
            replace(disk, &name, number, &bytes, &whole)
                .map_err(|error| OpenError::io(format!("replacing {name}"), error))?;
        }
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

/// Has a file hold something else, and another one what it held. At no moment is neither there.
fn replace<D: Disk>(
    disk: &D,
    name: &str,
    number: u64,
    before: &[u8],
    after: &[u8],
) -> io::Result<()> {
    let names = disk.list()?;
    if names.iter().any(|there| there == name) {
        write(disk, &free_name(&names, &format!("{name}.cut")), before)?;
    }
    if names.iter().any(|there| there == REPAIR) {
        disk.remove(REPAIR)?;
    }
    write(disk, REPAIR, after)?;
    disk.sync_directory()?;
    // It would tell of what was there before.
    let _ = disk.remove(&index_name(number));
    disk.rename(REPAIR, name)?;
    disk.sync_directory()
}

fn write<D: Disk>(disk: &D, name: &str, bytes: &[u8]) -> io::Result<()> {
    let file = disk.create(name)?;
    file.write_at(&[IoSlice::new(bytes)], 0)?;
    file.sync_data()
}

fn set_aside<D: Disk>(disk: &D, name: &str) -> io::Result<()> {
    let names = disk.list()?;
    if names.iter().any(|there| there == name) {
        disk.rename(name, &free_name(&names, &format!("{name}.cut")))?;
        disk.sync_directory()?;
    }
    Ok(())
}

/// Goes over the log once more as it will be, so that what is written is known to hold together.
struct Rewriting<'a> {
    walked: Walked,
    plan: &'a Plan,
}

impl Rewriting<'_> {
    fn segment(&mut self, number: u64, bytes: &[u8]) -> Result<Vec<u8>, OpenError> {
        let header = SegmentHeader {
            version: VERSION,
            needs: self.plan.needs,
            log: self.plan.log,
            number,
        };
        let mut out = header.encode().to_vec();
        let mut view = unread();
        for &piece in &self.plan.segments[&number].pieces {
            let from = out.len();
            match piece {
                Piece::Copy { from, to } => out.extend_from_slice(&bytes[from..to]),
                Piece::Gap(index) => {
                    let lost = &self.plan.gaps[index];
                    let gap = self.gap(number, lost, from == SEGMENT_HEADER)?;
                    out.extend_from_slice(&gap);
                }
            }
            let mut at = from;
            while at < out.len() {
                let walked = &mut self.walked;
                let taken = take_batch(&out[at..], at as u64, header, walked, &mut view);
                let batch = taken.map_err(|bad| broken(number, bad.into()))?;
                at += batch.length as usize;
            }
        }
        Ok(out)
    }

    /// The batch that stands in the place of those that are lost.
    fn gap(&self, segment: u64, lost: &Lost, is_first: bool) -> Result<Vec<u8>, OpenError> {
        let mut runs: Vec<Vec<u8>> = Vec::new();
        for &id in &lost.streams {
            let mut run = Vec::new();
            put_stream(&mut run, id, &self.plan.stream(id));
            runs.push(run);
        }
        for id in &lost.producers {
            if let Some((stream, name)) = self.plan.producers.get(id) {
                let mut run = Vec::new();
                put_producer(&mut run, *id, *stream, self.walked.lived_us, name);
                runs.push(run);
            }
        }
        let mut run = Vec::new();
        put_missing(&mut run, lost.through, &lost.positions);
        runs.push(run);
        for &id in &lost.deleted {
            let mut run = Vec::new();
            put_deleted(&mut run, id);
            runs.push(run);
        }
        let mut flags = Flags::GAP;
        if is_first {
            flags = Flags(flags.0 | Flags::CHECKPOINT.0);
            let mut state = self.walked.state.clone();
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
