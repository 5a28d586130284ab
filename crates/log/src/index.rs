//! Index files: what a segment's index was when it was finished, so that opening the log need not
//! read the segment again.
//!
//! The one idea: an index file only saves work; the log decides. An index file is believed only if
//! its checksum is right, if it is of this log and segment and ends where the next segment begins,
//! and if the log itself says that all its batches were durable. Otherwise the segment is read.

use std::io::{self, IoSlice};

use crate::catalog::{Entry, Extent, Index, Segment};
use crate::disk::{Disk, DiskFile, contents};
use crate::format::{Missing, Needs, SegmentHeader, index_name, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"tideidx3";
/// Length of the header before the extents.
const HEADER: usize = 72;
const GAP: usize = 20;
const EXTENT: usize = 32;
const ENTRY: usize = 40;

/// An index file's content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Saved {
    pub(crate) header: SegmentHeader,
    /// The number of the batch after the last one in the segment.
    pub(crate) next_batch: u64,
    /// From the segment's last batch: which opening wrote it, and the log's own clock.
    pub(crate) epoch: u32,
    pub(crate) lived_us: u64,
    pub(crate) view: Segment,
}

impl Saved {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let longs = [
            self.header.log,
            self.header.number,
            self.next_batch,
            self.view.used,
            self.view.newest_us,
            self.lived_us,
        ];
        longs
            .into_iter()
            .for_each(|long| bytes.extend_from_slice(&long.to_le_bytes()));
        let SegmentHeader { version, needs, .. } = self.header;
        let words = [version, self.epoch, needs.0];
        words
            .into_iter()
            .for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(&(self.view.gaps.len() as u32).to_le_bytes());
        for gap in &self.view.gaps {
            bytes.extend_from_slice(&gap.stream.to_le_bytes());
            bytes.extend_from_slice(&gap.first.to_le_bytes());
            bytes.extend_from_slice(&gap.next.to_le_bytes());
        }
        for (stream, extent) in self.view.index.extents() {
            bytes.extend_from_slice(&stream.to_le_bytes());
            bytes.extend_from_slice(&(extent.entries.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&extent.first.to_le_bytes());
            bytes.extend_from_slice(&extent.next.to_le_bytes());
            bytes.extend_from_slice(&extent.bytes.to_le_bytes());
            for entry in &extent.entries {
                let longs = [
                    entry.first,
                    entry.offset,
                    entry.batch_end,
                    entry.timestamp_us,
                    entry.before,
                ];
                longs
                    .into_iter()
                    .for_each(|long| bytes.extend_from_slice(&long.to_le_bytes()));
            }
        }
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Saved> {
        let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if body.len() < HEADER || body[..8] != MAGIC || crc32c::crc32c(body) != u32_at(crc, 0) {
            return None;
        }
        let [log, number, next_batch, used, newest_us, lived_us] =
            [8, 16, 24, 32, 40, 48].map(|at| u64_at(body, at));
        let [version, epoch, needs] = [56, 60, 64].map(|at| u32_at(body, at));
        let mut index = Index::default();
        let gaps = GAP.checked_mul(u32_at(body, 68) as usize)?;
        let (gaps, mut rest) = body[HEADER..].split_at_checked(gaps)?;
        let gaps = gaps.chunks_exact(GAP).map(|gap| Missing {
            stream: u32_at(gap, 0),
            first: u64_at(gap, 4),
            next: u64_at(gap, 12),
        });
        while !rest.is_empty() {
            let (head, after) = rest.split_at_checked(EXTENT)?;
            let length = ENTRY.checked_mul(u32_at(head, 4) as usize)?;
            let (entries, after) = after.split_at_checked(length)?;
            let entries = entries.chunks_exact(ENTRY).map(|entry| Entry {
                first: u64_at(entry, 0),
                offset: u64_at(entry, 8),
                batch_end: u64_at(entry, 16),
                timestamp_us: u64_at(entry, 24),
                before: u64_at(entry, 32),
            });
            let (first, next) = (u64_at(head, 8), u64_at(head, 16));
            let extent = Extent {
                first,
                next,
                bytes: u64_at(head, 24),
                entries: entries.collect(),
            };
            index.insert(u32_at(head, 0), extent);
            rest = after;
        }
        let view = Segment {
            used,
            newest_us,
            lived_us,
            index,
            gaps: gaps.collect(),
            left_out: 0,
        };
        Some(Saved {
            header: SegmentHeader {
                version,
                needs: Needs(needs),
                log,
                number,
                // The segment itself names its kind.
                kind: None,
            },
            next_batch,
            epoch,
            lived_us,
            view,
        })
    }

    /// Writes the index file beside its segment, replacing an older one.
    ///
    /// # Errors
    /// The system's error; without the file the log works, but opens more slowly.
    pub(crate) fn save<D: Disk>(&self, disk: &D) -> io::Result<()> {
        let name = index_name(self.header.number);
        match disk.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        disk.create(&name)?
            .write_at(&[IoSlice::new(&self.encode())], 0)
    }

    /// The index of a segment, if there is a whole one.
    pub(crate) fn load<D: Disk>(disk: &D, number: u64) -> Option<Saved> {
        let mut bytes = Vec::new();
        contents(disk, &index_name(number), &mut bytes).ok()?;
        Saved::decode(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Spacing;
    use crate::note::Note;

    #[test]
    fn what_is_saved_is_loaded_and_nothing_else() {
        let mut index = Index::default();
        for at in 0..40_u64 {
            let first = at * 10;
            let note = Note {
                stream: (at % 3) as u32,
                first,
                next: first + 10,
                offset: 72,
                timestamp_us: at,
                bytes: 100 + at,
            };
            index.add(&note, at << 20, 1 << 20, &Spacing::default());
        }
        let view = Segment {
            used: 40 << 20,
            newest_us: 39,
            lived_us: 77,
            index,
            gaps: vec![Missing {
                stream: 1,
                first: 20,
                next: 30,
            }],
            left_out: 0,
        };
        let saved = Saved {
            header: SegmentHeader {
                version: 2,
                needs: Needs::STREAMS,
                log: 9,
                number: 4,
                kind: None,
            },
            next_batch: 44,
            epoch: 3,
            lived_us: 77,
            view,
        };
        let bytes = saved.encode();
        assert_eq!(Saved::decode(&bytes), Some(saved));
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(Saved::decode(&flipped), None, "flipped at {at}");
            assert_eq!(Saved::decode(&bytes[..at]), None, "cut at {at}");
        }
    }
}
