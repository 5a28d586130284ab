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

/// The result of a backup.
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
    /// How many of the segments an earlier copy had already.
    pub shared_segments: u64,
    /// Bytes of the shared segments.
    pub shared_bytes: u64,
}

/// An earlier copy of the log, and how one of its files becomes a file of the new copy as well.
pub struct Earlier<'a, D> {
    /// The earlier copy.
    pub disk: &'a D,
    /// Gives the file with this name the same name in the new copy, for instance by a hard link; returns whether
    /// that was possible.
    pub share: &'a dyn Fn(&str) -> io::Result<bool>,
}

impl<D> std::fmt::Debug for Earlier<'_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Earlier").finish_non_exhaustive()
    }
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
    /// The bytes that were written are not the bytes that were read.
    #[error("the copy is not what was copied: {0}")]
    Differs(String),
}

/// Copies every whole batch that is durable or being written, and reads the copy: it holds
/// everything that was acknowledged before this call. The log may be written meanwhile; the copy
/// shows one moment. Index files and the file of claims are not copied; opening the copy makes
/// them.
///
/// # Errors
/// [`BackupError`]. A log with damage is not copied: what is wrong with it is said.
pub fn backup<S: Disk, T: Disk>(source: &S, into: &T) -> Result<Backup, BackupError> {
    backup_since(source, into, None::<&Earlier<'_, T>>)
}

/// As [`backup`], without copying the segments that an earlier copy has: segments in which every
/// byte is as in the log. The newest segment of either is copied, because it goes on where the copy
/// is opened. The copy does not need the earlier one afterwards.
///
/// # Errors
/// As [`backup`].
pub fn backup_since<S: Disk, T: Disk, E: Disk>(
    source: &S,
    into: &T,
    earlier: Option<&Earlier<'_, E>>,
) -> Result<Backup, BackupError> {
    if !segments(into).map_err(BackupError::Copy)?.is_empty() {
        return Err(BackupError::Occupied);
    }
    let (loaded, written) = patiently(|| {
        clear(into).map_err(|error| OpenError::io("clearing the copy", error))?;
        // The loading is strict about acknowledged records, and about foreign files.
        let loaded = load(source, Verify::All, Manner::Strict)?;
        let mut written = Ok(Backup::default());
        let newest = loaded.segments.last().map(|found| found.number);
        for found in &loaded.segments {
            let name = segment_name(found.number);
            let file = source
                .open(&name)
                .map_err(|error| OpenError::io(format!("reading {name}"), error))?;
            let used = found.view.used;
            let is_finished = newest.is_some_and(|newest| found.number < newest);
            written = written.and_then(|mut backup| {
                let shared = match earlier.filter(|_| is_finished) {
                    Some(earlier) => earlier.shares(&file, found.number, used)?,
                    None => false,
                };
                if shared {
                    backup.shared_segments += 1;
                    backup.shared_bytes += used;
                } else {
                    copy(&file, into, &name, used)?;
                }
                backup.bytes += used;
                Ok(backup)
            });
        }
        Ok((loaded, written))
    })?;
    let backup = written.map_err(BackupError::Copy)?;
    into.sync_directory().map_err(BackupError::Copy)?;
    compare(into, &loaded)?;
    Ok(Backup {
        segments: loaded.segments.len() as u64,
        batches: loaded.batches,
        records: loaded.records,
        ..backup
    })
}

impl<D: Disk> Earlier<'_, D> {
    /// Gives a segment to the new copy if it is, byte for byte, what the log has.
    fn shares<F: DiskFile>(&self, of: &F, number: u64, used: u64) -> io::Result<bool> {
        let newest = segments(self.disk)?.into_iter().max();
        if newest.is_none_or(|newest| number >= newest) {
            return Ok(false);
        }
        let name = segment_name(number);
        let file = match self.disk.open(&name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        if file.len()? != used || !are_equal(of, &file, used)? {
            return Ok(false);
        }
        (self.share)(&name)
    }
}

fn are_equal<F: DiskFile, G: DiskFile>(one: &F, other: &G, used: u64) -> io::Result<bool> {
    let (mut here, mut there) = (vec![0; PIECE], vec![0; PIECE]);
    let mut at = 0;
    while at < used {
        let wanted = PIECE.min(usize::try_from(used - at).unwrap_or(PIECE));
        let count = one.read_at(&mut here[..wanted], at)?;
        if count == 0 {
            return Ok(false);
        }
        let mut filled = 0;
        while filled < count {
            let more = other.read_at(&mut there[filled..count], at + filled as u64)?;
            if more == 0 {
                return Ok(false);
            }
            filled += more;
        }
        if here[..count] != there[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

/// A batch that was read while it was being written, and claimed right afterwards, looks like damage;
/// real damage still shows at the next try.
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

    #[test]
    fn what_an_earlier_copy_has_is_shared_and_nothing_that_differs() {
        let disk = SimDisk::new(1);
        let (log, mut writer, _) = EmbeddedLog::open(disk.clone(), settings()).unwrap();
        let mut go_on = |ids: std::ops::RangeInclusive<u64>| {
            for id in ids {
                append(&log, id);
                writer.step(crate::Now::default());
            }
        };
        go_on(1..=30);
        let monday = SimDisk::new(2);
        let first = backup(&disk, &monday).unwrap();
        // As after every copy: the newest segment gets an end of its own.
        drop(EmbeddedLog::open(monday.clone(), settings()).unwrap());
        go_on(31..=60);
        // A byte that neither copy nor log would ever have, in a segment that both have.
        let damaged = monday.fork();
        let numbers = segments(&monday).unwrap();
        assert!(damaged.flip(&segment_name(numbers[1]), 200, 1));
        for (earlier, lacks) in [(&monday, 1), (&damaged, 2)] {
            let tuesday = SimDisk::new(3);
            let shared = std::cell::RefCell::new(Vec::new());
            let share = |name: &str| {
                let bytes = earlier.contents(name).unwrap();
                let file = tuesday.create(name)?;
                file.write_at(&[IoSlice::new(&bytes)], 0)?;
                file.sync_data()?;
                shared.borrow_mut().push(name.to_owned());
                Ok(true)
            };
            let earlier = Earlier {
                disk: earlier,
                share: &share,
            };
            let copied = backup_since(&disk, &tuesday, Some(&earlier)).unwrap();
            assert_eq!(copied.records, 60);
            assert_eq!(copied.shared_segments, first.segments - lacks);
            assert_eq!(shared.borrow().len() as u64, copied.shared_segments);
            assert!(copied.shared_bytes > 0 && copied.shared_bytes < first.bytes);
            let (restored, _writer, recovery) =
                EmbeddedLog::open(tuesday.crash(), settings()).unwrap();
            assert_eq!((recovery.records, recovery.cut), (60, None));
            let read = restored.read("default", 0, Credit(1 << 20)).unwrap();
            assert_eq!(read.runs.iter().map(|run| run.count).sum::<u32>(), 60);
        }
        // Where no segment can be shared, all segments are copied.
        let refuse = |_: &str| Ok(false);
        let earlier = Earlier {
            disk: &monday,
            share: &refuse,
        };
        let into = SimDisk::new(4);
        let copied = backup_since(&disk, &into, Some(&earlier)).unwrap();
        assert_eq!((copied.records, copied.shared_segments), (60, 0));
    }
}
