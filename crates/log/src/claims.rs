//! The claims file: what is known to be durable, said outside the segments.
//!
//! The one idea: a batch claims the batches before it. So the last batch has no claim until another
//! follows, and the batches alone do not show that a segment is missing. This file records both
//! facts: up to which batch the log was durable, and which segments there are. The file never
//! claims too much: it is written after its batches were synced, and before any client is told of
//! the first batch of a segment.
//!
//! The file has two slots, written in turns and synced, so a torn write leaves the one before. Both
//! slots are blocks that were written before: rewriting them takes no space and little time.

use std::io::{self, IoSlice};

use crate::disk::{Disk, DiskFile, contents};
use crate::format::{u32_at, u64_at};

/// The file's name.
pub(crate) const CLAIMS: &str = "claims";
/// Name of the file while its directory entry is made anew.
pub(crate) const CLAIMS_MOVED: &str = "claims.moved";

const MAGIC: [u8; 8] = *b"tideclm\n";
/// Length of a slot's content.
const SAID: usize = 64;
/// How far apart the slots are: no disk tears both with one write.
const SLOT: usize = 4096;
/// The length of the file, in bytes.
pub(crate) const CLAIMS_LENGTH: u64 = 2 * SLOT as u64;
/// Where the ends of streams are in a slot.
const ENDS: usize = SAID + 8;
/// A bit beside the number of ends: each end is exactly where its stream ended. Version 0.2.0 does not say it, and left
/// ends as they were while it claimed more.
const EXACT: u32 = 1 << 31;
/// Length of one end.
const END: usize = 12;
/// The largest number of ends.
pub(crate) const ENDS_MAX: usize = (SLOT - ENDS) / END;

/// How far a stream was durable: what may be lost with the batch that told it, if the stream has
/// nothing behind that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) stream: u32,
    /// The position after the last.
    pub(crate) next: u64,
}

/// The contents of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The random number of the log.
    pub(crate) log: u64,
    /// How many were said before.
    pub(crate) sequence: u64,
    /// Batches up to this one were durable.
    pub(crate) through: u64,
    /// The newest segment with a durable batch; 0 if there was none.
    pub(crate) newest: u64,
    /// The oldest segment that was to be kept; 0 if there was none.
    pub(crate) oldest: u64,
    /// The log's own clock.
    pub(crate) lived_us: u64,
    /// The number of the opening that wrote the slot.
    pub(crate) epoch: u32,
}

impl Said {
    fn encode(self) -> [u8; SAID] {
        let mut bytes = [0; SAID];
        bytes[..8].copy_from_slice(&MAGIC);
        let longs = [
            self.log,
            self.sequence,
            self.through,
            self.newest,
            self.oldest,
            self.lived_us,
        ];
        for (index, long) in longs.into_iter().enumerate() {
            bytes[8 + index * 8..][..8].copy_from_slice(&long.to_le_bytes());
        }
        bytes[56..60].copy_from_slice(&self.epoch.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Said> {
        let bytes = bytes.get(..SAID)?;
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return None;
        }
        let [log, sequence, through, newest, oldest, lived_us] =
            [8, 16, 24, 32, 40, 48].map(|at| u64_at(bytes, at));
        if newest > through || (newest > 0 && oldest > newest) {
            return None;
        }
        Some(Said {
            log,
            sequence,
            through,
            newest,
            // Without a newest segment the claim says nothing.
            oldest: oldest.min(newest),
            lived_us,
            epoch: u32_at(bytes, 56),
        })
    }

    /// The whole slot; of `ends` at most [`ENDS_MAX`].
    fn slot_with(self, ends: &[End], is_exact: bool) -> Vec<u8> {
        let ends = &ends[..ends.len().min(ENDS_MAX)];
        let mut bytes = self.encode().to_vec();
        let exact = match is_exact && !ends.is_empty() {
            true => EXACT,
            false => 0,
        };
        bytes.extend_from_slice(&(ends.len() as u32 | exact).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for end in ends {
            bytes.extend_from_slice(&end.stream.to_le_bytes());
            bytes.extend_from_slice(&end.next.to_le_bytes());
        }
        let crc = ends_crc(&bytes);
        bytes[ENDS - 4..ENDS].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn slot(self) -> u64 {
        (self.sequence % 2) * SLOT as u64
    }
}

/// The checksum of all but itself: ends that are older than what is before them are not believed.
fn ends_crc(slot: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&slot[..ENDS - 4]);
    crc32c::crc32c_append(crc, &slot[ENDS..])
}

/// The ends in a slot whose other part is whole, and whether the ends are exact; empty if the ends are
/// not whole.
fn ends_of(slot: &[u8]) -> (Vec<End>, bool) {
    let none = (Vec::new(), false);
    let Some(count) = slot.get(..ENDS).map(|slot| u32_at(slot, SAID)) else {
        return none;
    };
    let (count, is_exact) = ((count & !EXACT) as usize, count & EXACT != 0);
    let length = ENDS + count.min(ENDS_MAX) * END;
    let whole = slot.get(..length).filter(|_| count <= ENDS_MAX);
    let Some(whole) = whole.filter(|slot| ends_crc(slot) == u32_at(slot, ENDS - 4)) else {
        return none;
    };
    let ends = whole[ENDS..].chunks_exact(END);
    let ends = ends.map(|end| End {
        stream: u32_at(end, 0),
        next: u64_at(end, 4),
    });
    (ends.collect(), is_exact)
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// The newest whole slot; `None` in a log of version 1, and in a log that was never opened to
    /// the end.
    pub(crate) said: Option<Said>,
    /// How far streams were durable, as far as it says.
    pub(crate) ends: Vec<End>,
    /// The streams went exactly so far, as of the batch up to which all was durable; otherwise at
    /// least so far.
    pub(crate) is_exact: bool,
    /// Whether the file has other bytes, and no whole slot.
    pub(crate) is_damaged: bool,
    /// Beside the newest whole slot there is one that is not whole: a later one, unless it was torn before.
    pub(crate) is_doubtful: bool,
}

impl Claimed {
    /// The oldest segment that must exist, where `first` is the first one that exists. A removal is recorded before
    /// it is done: if the last record is lost, the removed segment is missing for a good reason.
    pub(crate) fn oldest(&self, first: Option<u64>) -> u64 {
        let said = self.said.map_or(0, |said| said.oldest);
        let first = first.filter(|_| self.is_doubtful);
        said.max(first.unwrap_or(0))
    }
}

/// Reads the file, if there is one.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn read<D: Disk>(disk: &D) -> io::Result<Claimed> {
    let mut bytes = Vec::new();
    match contents(disk, CLAIMS, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Claimed::default()),
        read => read?,
    }
    let slots = || bytes.chunks(SLOT).take(2);
    let whole = slots().filter_map(|slot| Some((Said::decode(slot)?, slot)));
    let newest = whole.max_by_key(|(said, _)| said.sequence);
    let said = newest.map(|(said, _)| said);
    let is_broken =
        |slot: &[u8]| Said::decode(slot).is_none() && slot.iter().any(|&byte| byte != 0);
    let (ends, is_exact) = newest.map(|(_, slot)| ends_of(slot)).unwrap_or_default();
    Ok(Claimed {
        said,
        ends,
        is_exact,
        is_damaged: said.is_none() && bytes.iter().any(|&byte| byte != 0),
        is_doubtful: said.is_some() && slots().any(is_broken),
    })
}

/// The file, open for writing.
#[derive(Debug)]
pub(crate) struct ClaimsFile<F> {
    file: F,
    said: Said,
    ends: Vec<End>,
    is_exact: bool,
}

impl<F: DiskFile> ClaimsFile<F> {
    /// Opens the file, or makes it; the name is durable once the directory was synced. `before` is
    /// the present content.
    ///
    /// The contents are written once more, and the file's name is synced again: after a failed sync
    /// in an earlier process both may be in memory only.
    ///
    /// # Errors
    /// The error of the operating system; `StorageFull` only if no claims file exists yet.
    pub(crate) fn open<D: Disk<File = F>>(disk: &D, before: &Claimed) -> io::Result<ClaimsFile<F>> {
        let file = match disk.open(CLAIMS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return ClaimsFile::create(disk);
            }
            file => file?,
        };
        if file.len()? < 2 * SLOT as u64 {
            // Making the file was interrupted.
            drop(file);
            disk.remove(CLAIMS)?;
            return ClaimsFile::create(disk);
        }
        disk.rename(CLAIMS, CLAIMS_MOVED)?;
        disk.rename(CLAIMS_MOVED, CLAIMS)?;
        let said = before.said.unwrap_or_default();
        let (ends, is_exact) = (before.ends.clone(), before.is_exact);
        if before.said.is_some() {
            let slot = said.slot_with(&ends, is_exact);
            file.write_at(&[IoSlice::new(&slot)], said.slot())?;
            file.sync_data()?;
        }
        Ok(ClaimsFile {
            file,
            said,
            ends,
            is_exact,
        })
    }

    fn create<D: Disk<File = F>>(disk: &D) -> io::Result<ClaimsFile<F>> {
        let file = disk.create(CLAIMS)?;
        let written = file
            .write_at(&[IoSlice::new(&[0; 2 * SLOT])], 0)
            .and_then(|()| file.sync_data());
        if let Err(error) = written {
            drop(file);
            disk.remove(CLAIMS)?;
            return Err(error);
        }
        Ok(ClaimsFile {
            file,
            said: Said::default(),
            ends: Vec::new(),
            is_exact: false,
        })
    }

    /// The contents that were written last.
    pub(crate) fn said(&self) -> Said {
        self.said
    }

    /// Whether the file says that streams were durable exactly up to these ends.
    pub(crate) fn tells(&self, ends: &[End]) -> bool {
        self.ends == ends && (self.is_exact || ends.is_empty())
    }

    /// Writes this claim durably, with the next sequence number. Of `ends`, which are exact, at most
    /// [`ENDS_MAX`].
    ///
    /// # Errors
    /// The system's error. Afterwards it is unknown what the file holds. After an error it is
    /// unknown what the file holds.
    pub(crate) fn say(&mut self, said: Said, ends: Vec<End>) -> io::Result<()> {
        let said = Said {
            sequence: self.said.sequence + 1,
            ..said
        };
        self.file
            .write_at(&[IoSlice::new(&said.slot_with(&ends, true))], said.slot())?;
        self.file.sync_data()?;
        (self.said, self.ends, self.is_exact) = (said, ends, true);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;

    #[test]
    fn the_newest_slot_that_is_whole_is_what_is_said() {
        let disk = SimDisk::new(1);
        assert_eq!(read(&disk).unwrap(), Claimed::default());
        let mut claims = ClaimsFile::open(&disk, &Claimed::default()).unwrap();
        assert_eq!(read(&disk).unwrap(), Claimed::default());
        for through in 1..6 {
            let said = Said {
                log: 9,
                through,
                newest: 1,
                oldest: 1,
                lived_us: 5,
                epoch: 2,
                sequence: 0,
            };
            let ends = (0..through as u32).map(|stream| End {
                stream,
                next: through,
            });
            let ends = ends.collect::<Vec<_>>();
            claims.say(said, ends.clone()).unwrap();
            let claimed = read(&disk).unwrap();
            assert!(claims.tells(&ends) && claimed.is_exact && claimed.ends == ends);
            assert_eq!(read(&disk).unwrap().said, Some(claims.said()));
            assert_eq!(claims.said().through, through);
        }
        for slot in [0, SLOT] {
            for at in slot..slot + SAID {
                let disk = disk.fork();
                assert!(disk.flip(CLAIMS, at as u64, 3));
                let claimed = read(&disk).unwrap();
                let said = claimed.said.unwrap();
                assert_eq!(said.through, if slot == 0 { 5 } else { 4 });
                assert!(claimed.is_doubtful);
                assert_eq!((claimed.oldest(Some(3)), claimed.oldest(None)), (3, 1));
            }
        }
        // Ends that are damaged say nothing, and take nothing else with them.
        for at in SLOT + SAID..SLOT + ENDS + 5 * END {
            let disk = disk.fork();
            assert!(disk.flip(CLAIMS, at as u64, 3));
            let claimed = read(&disk).unwrap();
            assert_eq!((claimed.said, claimed.ends), (Some(claims.said()), vec![]));
            assert!(!claimed.is_exact);
        }
        disk.flip(CLAIMS, 10, 0);
        disk.flip(CLAIMS, SLOT as u64 + 10, 0);
        let damaged = Claimed {
            said: None,
            ends: Vec::new(),
            is_exact: false,
            is_damaged: true,
            is_doubtful: false,
        };
        assert_eq!(read(&disk).unwrap(), damaged);
    }
}
