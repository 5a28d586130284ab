//! Making a log ready for writing after it was read: cutting off a torn tail, and making durable
//! what may be in the page cache only.
//!
//! Nothing here needs room on the disk.

use std::io::{self, IoSlice};

use super::load::{Loaded, contents, significant};
use super::walk::{Walked, unread};
use super::{Cut, OpenError, remove, rename_anew, walk_segment};
use crate::Policy;
use crate::disk::{Disk, DiskFile};
use crate::format::{SEGMENT_HEADER, SegmentHeader, segment_name};
use crate::settings::Settings;
use crate::writer::Active;

/// How much is written at once.
const PIECE: usize = 1 << 20;

/// Cuts off what is behind the good part, and has the rest stand as durable as the policy says.
pub(super) fn settle<D: Disk>(
    disk: &D,
    settings: &Settings,
    mut loaded: Loaded<D::File>,
) -> Result<(Loaded<D::File>, Option<Cut>), OpenError> {
    let cut = loaded.fault.take().map(|at| Cut {
        at,
        bytes: loaded.beyond_bytes,
        whole_batches: loaded.claims.found,
        removed: loaded
            .beyond
            .iter()
            .map(|&number| segment_name(number))
            .collect(),
    });
    for &number in loaded.beyond.iter().rev() {
        // From the back and one at a time: a crash must not leave a later segment without the
        // earlier ones, which would look as if retention had removed those.
        remove(disk, number)
            .and_then(|()| disk.sync_directory())
            .map_err(|error| {
                OpenError::io(
                    format!("removing {} behind a torn tail", segment_name(number)),
                    error,
                )
            })?;
    }
    let is_os = settings.policy == Policy::Os;
    let claimed = loaded.claims.through;
    let last = loaded.segments.last().map(|found| found.number);
    for found in &loaded.segments {
        let is_last = Some(found.number) == last;
        let is_claimed = found.next_batch <= claimed + 1;
        if is_claimed && !is_last {
            continue;
        }
        if is_os && !is_last {
            loaded.unsynced.push(found.number);
            continue;
        }
        let name = segment_name(found.number);
        let what = |what: &str| format!("{what} {name}");
        let file = disk
            .open(&name)
            .map_err(|error| OpenError::io(what("opening"), error))?;
        let mut bytes = Vec::new();
        contents(disk, &name, &mut bytes).map_err(|error| OpenError::io(what("reading"), error))?;
        let is_cut = is_last
            && clear(&file, &bytes, found.view.used)
                .map_err(|error| OpenError::io(what("clearing the torn tail of"), error))?;
        if !is_claimed && !is_os {
            if found.number > claimed {
                rename_anew(disk, found.number)
                    .map_err(|error| OpenError::io(what("renaming"), error))?;
            }
            let from = first_unclaimed(&bytes, found.number, claimed);
            write_anew(&file, &bytes[from..found.view.used as usize], from as u64)
                .map_err(|error| OpenError::io(what("writing anew the tail of"), error))?;
        }
        if is_cut || !is_os {
            file.sync_data()
                .map_err(|error| OpenError::io(what("syncing"), error))?;
        }
        if is_last {
            let length = reserved(&file, settings, bytes.len() as u64);
            loaded.active = Some(Active {
                number: found.number,
                file,
                used: found.view.used,
                length,
                unsynced: is_os,
                closed: false,
            });
        }
    }
    disk.sync_directory()
        .map_err(|error| OpenError::io("syncing the log's directory", error))?;
    if !is_os {
        loaded.durable = loaded.next_batch - 1;
    }
    Ok((loaded, cut))
}

/// Overwrites with zeros what is behind the good part, so that no later batch can be taken for one
/// that follows; says whether there was anything.
fn clear<F: DiskFile>(file: &F, bytes: &[u8], used: u64) -> io::Result<bool> {
    let used = used as usize;
    let end = used + significant(&bytes[used..]) as usize;
    let zeros = vec![0; PIECE.min(end - used)];
    let mut at = used;
    while at < end {
        let count = zeros.len().min(end - at);
        file.write_at(&[IoSlice::new(&zeros[..count])], at as u64)?;
        at += count;
    }
    Ok(end > used)
}

/// A sync that failed in an earlier process may have left pages that the system believes to be
/// clean and that are on no disk. Whoever writes them again and syncs knows.
fn write_anew<F: DiskFile>(file: &F, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut at = offset;
    for piece in bytes.chunks(PIECE) {
        file.write_at(&[IoSlice::new(piece)], at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Where the first batch is that nobody says was durable: with the header of the segment, if it is
/// the first of all.
fn first_unclaimed(bytes: &[u8], number: u64, claimed: u64) -> usize {
    let mut first = None;
    if let Ok(header) = SegmentHeader::decode(bytes, number) {
        let mut walked = Walked {
            next_batch: number,
            ..Walked::default()
        };
        walk_segment(
            bytes,
            header,
            &mut walked,
            &mut unread(),
            |offset, batch| {
                if batch.number > claimed && first.is_none() {
                    first = Some(offset as usize);
                }
            },
        );
    }
    first.filter(|&first| first > SEGMENT_HEADER).unwrap_or(0)
}

/// The length up to which there is room for sure, more if it can be had.
fn reserved<F: DiskFile>(file: &F, settings: &Settings, length: u64) -> u64 {
    // Also when the file is long enough: blocks may be missing below its length.
    let lengths = [settings.segment_length(0).max(length), length];
    lengths
        .into_iter()
        .find(|&length| file.reserve(length).is_ok())
        .unwrap_or(0)
}
