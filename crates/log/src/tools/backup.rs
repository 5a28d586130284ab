//! A copy of a log, also of one that is being written: every whole batch up to a moment.

use std::io::{self, IoSlice};

use super::check;
use crate::OpenError;
use crate::disk::{Disk, DiskFile};
use crate::format::segment_name;
use crate::recovery::{Loaded, Manner, load, segments};
use crate::settings::Verify;
use crate::view::steady;

/// Copied at once.
const PIECE: usize = 1 << 20;

/// How often a log that looks damaged is looked at.
const TRIES: u32 = 3;

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backup {
    /// How many segments there are.
    pub segments: u64,
    /// How many batches.
    pub batches: u64,
    /// How many records.
    pub records: u64,
    /// Bytes of the records.
    pub bytes: u64,
}

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The log cannot be read, or is damaged.
    #[error("{0}")]
    Source(#[from] OpenError),
    /// A log is where the copy was to be.
    #[error("there is a log already")]
    Occupied,
    /// The copy cannot be written.
    #[error("cannot write the copy: {0}")]
    Copy(io::Error),
    /// What was written is not what was read.
    #[error("the copy is not what was copied: {0}")]
    Differs(String),
}

/// Copies every batch that is whole and durable or being written, and reads the copy: it holds all
/// that was acknowledged when this was called. The log may be written meanwhile; the copy is of one
/// moment. Indexes and the file of claims are left out; opening the copy makes them.
///
/// # Errors
/// [`BackupError`]. A log with damage is not copied: what is wrong with it is said.
pub fn backup<S: Disk, T: Disk>(source: &S, into: &T) -> Result<Backup, BackupError> {
    if !segments(into).map_err(BackupError::Copy)?.is_empty() {
        return Err(BackupError::Occupied);
    }
    let (loaded, written) = patiently(|| {
        clear(into).map_err(|error| OpenError::io("clearing the copy", error))?;
        // Strict about what was acknowledged, and about foreign files.
        let loaded = load(source, Verify::All, Manner::Strict)?;
        let mut written = Ok(0);
        for found in &loaded.segments {
            let name = segment_name(found.number);
            let file = source
                .open(&name)
                .map_err(|error| OpenError::io(format!("reading {name}"), error))?;
            let used = found.view.used;
            written = written.and_then(|bytes| {
                copy(&file, into, &name, used)?;
                Ok(bytes + used)
            });
        }
        Ok((loaded, written))
    })?;
    let bytes = written.map_err(BackupError::Copy)?;
    into.sync_directory().map_err(BackupError::Copy)?;
    compare(into, &loaded)?;
    Ok(Backup {
        segments: loaded.segments.len() as u64,
        batches: loaded.batches,
        records: loaded.records,
        bytes,
    })
}

/// A batch that was read while it was written, and claimed right afterwards, looks like damage; damage
/// stays.
fn patiently<T>(mut copy: impl FnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    for _ in 1..TRIES {
        match steady(&mut copy) {
            Err(OpenError::Damaged { .. }) => {}
            result => return result,
        }
    }
    steady(copy)
}

/// An earlier try may have copied segments that retention has removed since.
fn clear<D: Disk>(disk: &D) -> io::Result<()> {
    for number in segments(disk)? {
        disk.remove(&segment_name(number))?;
    }
    Ok(())
}

fn copy<F: DiskFile, D: Disk>(from: &F, into: &D, name: &str, used: u64) -> io::Result<()> {
    let to = into.create(name)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while at < used {
        let wanted = PIECE.min(usize::try_from(used - at).unwrap_or(PIECE));
        let count = from.read_at(&mut piece[..wanted], at)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_at(&[IoSlice::new(&piece[..count])], at)?;
        at += count as u64;
    }
    to.sync_data()
}

/// Reads the copy as a restore would.
fn compare<D: Disk, F>(copy: &D, loaded: &Loaded<F>) -> Result<(), BackupError> {
    let report = check(copy)?;
    if let Some(problem) = report.problems.first() {
        return Err(BackupError::Differs(problem.damage.to_string()));
    }
    if (report.batches, report.records) != (loaded.batches, loaded.records) {
        return Err(BackupError::Differs(format!(
            "{} batches and {} records, and not {} and {}",
            report.batches, report.records, loaded.batches, loaded.records
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::{Credit, EmbeddedLog, Log, ProducerId, Run, Settings};

    fn settings() -> Settings {
        Settings {
            segment_bytes: 4096,
            group_bytes: 1024,
            payload_max: 900,
            identity: Some(1),
            ..Settings::default()
        }
    }

    fn append(log: &EmbeddedLog<SimDisk>, id: u64) {
        let mut frames = id.to_le_bytes().to_vec();
        frames.extend(500u32.to_le_bytes());
        frames.resize(512, b'x');
        let run = Run {
            stream: log.stream("default").unwrap(),
            producer: ProducerId::ANONYMOUS,
            frames: &frames,
            count: 1,
            last_id: id,
            timestamp_us: 0,
        };
        log.append(run).unwrap();
    }

    #[test]
    fn a_log_that_is_written_is_copied_and_the_copy_goes_on() {
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).unwrap();
        for id in 1..=30 {
            append(&log, id);
            writer.step(crate::Now::default());
        }
        let into = SimDisk::new(2);
        let copied = backup(&disk, &into).unwrap();
        assert_eq!(copied.records, 30);
        assert!(copied.segments > 2);
        assert!(matches!(backup(&disk, &into), Err(BackupError::Occupied)));
        // The log goes on meanwhile; the copy does not.
        append(&log, 31);
        writer.step(crate::Now::default());
        let after = into.crash();
        let (restored, _writer, recovery) = EmbeddedLog::open(after, settings()).unwrap();
        assert_eq!((recovery.records, recovery.cut), (30, None));
        let read = restored.read("default", 29, Credit(10_000)).unwrap();
        assert_eq!(read.runs[0].first, 29);
    }

    #[test]
    fn damage_is_not_copied() {
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).unwrap();
        for id in 1..=5 {
            append(&log, id);
            writer.step(crate::Now::default());
        }
        let file = disk.open(&segment_name(1)).unwrap();
        file.write_at(&[IoSlice::new(b"damage")], 400).unwrap();
        let refused = backup(&disk, &SimDisk::new(2));
        assert!(
            matches!(refused, Err(BackupError::Source(_))),
            "{refused:?}"
        );
    }
}
