//! Making a log ready for writing after it was read: cutting off a torn tail, and making durable
//! what may be in the page cache only.
//!
//! No step of this module needs room on the disk.

use std::io::{self, IoSlice};

use super::error::OpenError;
use super::load::Loaded;
use super::names::{free_name, rename_anew};
use super::report::{Cut, Short};
use super::walk::{Walked, unread, walk_segment};
use super::window::{Bytes, PIECE, Window};
use crate::Policy;
use crate::claims::ClaimsFile;
use crate::disk::{Disk, DiskFile};
use crate::format::{SEGMENT_HEADER, SegmentHeader, index_name, segment_name};
use crate::settings::Settings;
use crate::writer::Active;

/// Cuts off what is behind the good part, and has the rest stand as durable as the policy says.
pub(super) fn settle<D: Disk>(
    disk: &D,
    settings: &Settings,
    mut loaded: Loaded<D::File>,
) -> Result<(Loaded<D::File>, Option<Cut>), OpenError> {
    let fault = loaded.fault.take();
    let mut kept_in = Vec::new();
    for &number in loaded.beyond.iter().chain(&loaded.stale).rev() {
        // From the back and one at a time: a crash must not leave a later segment without the
        // earlier ones, which would look as if retention had removed the earlier ones.
        kept_in.extend(set_aside(disk, number).map_err(|error| {
            OpenError::io(format!("setting {} aside", segment_name(number)), error)
        })?);
    }
    let is_os = settings.policy == Policy::Os;
    let claimed = loaded.claims.through;
    let last = loaded.segments.last().map(|found| found.number);
    for at in 0..loaded.segments.len() {
        let found = &loaded.segments[at];
        let is_last = Some(found.number) == last;
        let is_claimed = found.next_batch <= claimed + 1;
        if is_claimed && !is_last {
            continue;
        }
        if is_os && !is_claimed {
            loaded.unproven.push((found.number, found.view.used));
        }
        if is_os && !is_last {
            loaded.unsynced.push(found.number);
            continue;
        }
        let name = segment_name(found.number);
        let what = |what: &str| format!("{what} {name}");
        let mut bytes =
            Window::open(disk, &name).map_err(|error| OpenError::io(what("opening"), error))?;
        let used = found.view.used;
        let file = bytes.file().clone();
        if is_last {
            loaded.short = shortened(&mut bytes, &loaded, used)
                .map_err(|error| OpenError::io(what("reading"), error))?;
        }
        if is_last && fault.is_some() {
            kept_in.extend(keep_tail(disk, found.number, &mut bytes, used));
        }
        let is_cut = is_last
            && clear(&mut bytes, used)
                .map_err(|error| OpenError::io(what("clearing the torn tail of"), error))?;
        if !is_claimed && !is_os {
            let trusted = settings.mistakes.makes(|mistakes| mistakes.trust_names);
            prove(disk, &mut bytes, found.number, claimed, used, trusted)
                .map_err(|error| OpenError::io(what("writing anew the tail of"), error))?;
        }
        if is_cut || !is_os {
            file.sync_data()
                .map_err(|error| OpenError::io(what("syncing"), error))?;
        }
        if is_last {
            let length = reserved(&file, bytes.length());
            loaded.active = Some(Active {
                number: found.number,
                version: found.header.version,
                needs: found.header.needs,
                file,
                used: found.view.used,
                length,
                unsynced: is_os,
                begun: found.view.used,
                closed: false,
            });
        }
    }
    loaded.claims_file = match ClaimsFile::open(disk, &loaded.claimed) {
        Ok(file) => Some(file),
        // The writer makes the file before it takes records.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => None,
        Err(error) => return Err(OpenError::io("opening the file of claims", error)),
    };
    disk.sync_directory()
        .map_err(|error| OpenError::io("syncing the log's directory", error))?;
    if !is_os {
        loaded.durable = loaded.next_batch - 1;
    }
    kept_in.sort();
    let cut = fault.map(|at| Cut {
        at,
        bytes: loaded.beyond_bytes,
        whole_batches: loaded.claims.found,
        kept_in,
    });
    Ok((loaded, cut))
}

/// If a log was not closed and fewer bytes than this are reserved behind its last batch, its newest
/// segment was shortened; bytes.
const NO_ROOM: u64 = 64;

/// The finding if the newest segment, which was written up to `used`, was shortened since.
fn shortened<F: DiskFile>(
    bytes: &mut Window<F>,
    loaded: &Loaded<F>,
    used: u64,
) -> io::Result<Option<Short>> {
    let last = loaded.next_batch - 1;
    // If the log was closed, was silent, or was never opened to the end, its end is not in doubt.
    let doubted = loaded
        .claimed
        .said
        .filter(|said| !loaded.is_closed && said.through < last);
    let (Some(_), Some(found)) = (doubted, loaded.segments.last()) else {
        return Ok(None);
    };
    let is_short = bytes.length() < bytes.significant(used)? + NO_ROOM;
    Ok(is_short.then(|| Short {
        file: segment_name(found.number),
        length: bytes.length(),
        last,
        durable_through: loaded.claims.through,
    }))
}

/// Rewrites a segment's name and its bytes up to `used`, so that the next sync makes them durable
/// even if an earlier sync failed.
fn prove<D: Disk>(
    disk: &D,
    bytes: &mut Window<D::File>,
    number: u64,
    claimed: u64,
    used: u64,
    trusts_names: bool,
) -> io::Result<()> {
    if number > claimed && !trusts_names {
        rename_anew(disk, number)?;
    }
    let from = first_unclaimed(bytes, number, claimed)?;
    write_anew(bytes, from, used)
}

/// [`prove`], later than at the opening: only a log that syncs pays for that.
pub(crate) fn prove_late<D: Disk>(
    disk: &D,
    number: u64,
    claimed: u64,
    used: u64,
) -> io::Result<()> {
    let mut bytes = Window::open(disk, &segment_name(number))?;
    prove(disk, &mut bytes, number, claimed, used, false)
}

/// Gives a segment a name that the log does not look at; its content may be asked for. With the
/// new name, or nothing if it had no content and is gone.
fn set_aside<D: Disk>(disk: &D, number: u64) -> io::Result<Option<String>> {
    let name = segment_name(number);
    // The index is made anew when it is missing, and there may be none.
    let _ = disk.remove(&index_name(number));
    let kept = if Window::open(disk, &name)?.is_zero(0)? {
        disk.remove(&name)?;
        None
    } else {
        let kept = free_name(&disk.list()?, &format!("{name}.cut"));
        disk.rename(&name, &kept)?;
        Some(kept)
    };
    disk.sync_directory()?;
    Ok(kept)
}

/// Most files with torn tails that are kept; further tails are dropped.
const TAILS_MAX: usize = 8;

/// Keeps the tail that is about to be cut off in a file of its own, if there is space; nothing
/// depends on that file.
fn keep_tail<D: Disk>(
    disk: &D,
    number: u64,
    bytes: &mut Window<D::File>,
    from: u64,
) -> Option<String> {
    let to = bytes.significant(from).ok()?;
    let names = disk.list().ok()?;
    let kept = names.iter().filter(|name| name.contains(".tail")).count();
    if from == to || kept >= TAILS_MAX {
        return None;
    }
    let name = free_name(&names, &format!("{}.tail", segment_name(number)));
    let written = disk.create(&name).and_then(|file| {
        bytes.pieces(from, to, |at, piece| {
            file.write_at(&[IoSlice::new(piece)], at - from)
        })?;
        file.sync_data()
    });
    if written.is_err() {
        let _ = disk.remove(&name);
    }
    written.ok().map(|()| name)
}

/// Overwrites the bytes behind the good part with zeros, so that no later batch can be taken for
/// the next one; returns whether there were any.
fn clear<F: DiskFile>(bytes: &mut Window<F>, used: u64) -> io::Result<bool> {
    let end = bytes.significant(used)?;
    let zeros = vec![0; PIECE.min((end - used) as usize)];
    let mut at = used;
    while at < end {
        let count = zeros.len().min((end - at) as usize);
        bytes
            .file()
            .write_at(&[IoSlice::new(&zeros[..count])], at)?;
        at += count as u64;
    }
    Ok(end > used)
}

/// A sync that failed in an earlier process may have left pages that the system believes to be
/// clean and that are on no disk. Writing the bytes again and syncing makes their durability known.
fn write_anew<F: DiskFile>(bytes: &mut Window<F>, from: u64, to: u64) -> io::Result<()> {
    let file = bytes.file().clone();
    bytes.pieces(from, to, |at, piece| {
        file.write_at(&[IoSlice::new(piece)], at)
    })
}

/// Where the first batch is that nothing claims to be durable: with the header of the segment, if
/// it is the first of all.
fn first_unclaimed<F: DiskFile>(
    bytes: &mut Window<F>,
    number: u64,
    claimed: u64,
) -> io::Result<u64> {
    let mut first = None;
    if let Ok(header) = SegmentHeader::decode(bytes.get(0, SEGMENT_HEADER)?, number) {
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
                    first = Some(offset);
                }
            },
        )?;
    }
    Ok(first
        .filter(|&first| first > SEGMENT_HEADER as u64)
        .unwrap_or(0))
}

/// The length up to which there is room for sure.
fn reserved<F: DiskFile>(file: &F, length: u64) -> u64 {
    // Though the file is that long: blocks may be missing below its length.
    file.reserve(length).map_or(0, |()| length)
}
