//! Going on after damage: by cutting the log off where it begins.
//!
//! The one idea: whoever cuts must know what is lost. [`loss`] says it, [`repair`] takes what was
//! said and refuses if it is not what would be lost now. Nothing is destroyed: what is cut off is
//! kept in files beside the log.

use std::io::{self, IoSlice};

use crate::disk::{Disk, DiskFile};
use crate::format::segment_name;
use crate::recovery::{Manner, contents, free_name, load, significant};
use crate::{Damage, OpenError, Verify};

/// What cutting a log off at its first damage would lose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where the log would end, and why.
    pub damage: Damage,
    /// The last batch that is known to have been durable. Those from the one in `damage` up to here
    /// were acknowledged and would be lost, if it is not above.
    pub durable_through: u64,
    /// How many batches behind it are whole and would be lost with it.
    pub whole_batches: u64,
    /// How many bytes that are not zero would be cut off.
    pub bytes: u64,
    /// The files they would be kept in.
    pub kept_in: Vec<String>,
}

/// A log that was cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The files in which what was cut off is kept.
    pub kept_in: Vec<String>,
}

/// Why a log was not repaired. Nothing was changed unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The log is not what it was when the loss was told.
    #[error("cutting would not lose what was agreed to; ask again what would be lost")]
    Changed,
    /// The system says so.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// What [`repair`] would lose; `None` if everything is as it was written.
///
/// # Errors
/// [`OpenError::Io`].
pub fn loss<D: Disk>(disk: &D) -> Result<Option<Loss>, OpenError> {
    Ok(plan(disk)?.map(|plan| plan.loss))
}

struct Plan {
    loss: Loss,
    /// The segment that is cut, and where.
    cut: Option<(u64, u64)>,
    /// The segments that go as a whole.
    beyond: Vec<u64>,
}

fn plan<D: Disk>(disk: &D) -> Result<Option<Plan>, OpenError> {
    let loaded = load(disk, Verify::All, Manner::Lenient)?;
    let Some(damage) = loaded.fault else {
        return Ok(None);
    };
    // If it is in a segment that begins well, that one is shortened.
    let last = loaded.segments.last();
    let cut = last
        .filter(|found| segment_name(found.number) == damage.file)
        .map(|found| (found.number, found.view.used));
    let names = disk
        .list()
        .map_err(|error| OpenError::io("listing the log's directory", error))?;
    let tail = cut.map(|(number, _)| free_name(&names, &format!("{}.tail", segment_name(number))));
    let whole = loaded.beyond.iter();
    let whole = whole.map(|&number| free_name(&names, &format!("{}.cut", segment_name(number))));
    let loss = Loss {
        damage,
        durable_through: loaded.claims.through,
        whole_batches: loaded.claims.found,
        bytes: loaded.beyond_bytes,
        kept_in: tail.into_iter().chain(whole).collect(),
    };
    Ok(Some(Plan {
        loss,
        cut,
        beyond: loaded.beyond,
    }))
}

/// Cuts a log off at its first damage, after keeping what is cut off in files beside it.
///
/// # Errors
/// [`RepairError::Changed`] if `agreed` is not what [`loss`] says now; what the system says, after
/// which it can be tried again.
pub fn repair<D: Disk>(disk: &D, agreed: &Loss) -> Result<Repaired, RepairError> {
    let Some(plan) = plan(disk)?.filter(|plan| plan.loss == *agreed) else {
        return Err(RepairError::Changed);
    };
    let mut kept_in = plan.loss.kept_in.iter();
    if let Some((number, used)) = plan.cut
        && let Some(kept) = kept_in.next()
    {
        keep_tail(disk, number, used, kept)
            .map_err(|error| OpenError::io("keeping what is to be cut off", error))?;
    }
    for (&number, kept) in plan.beyond.iter().zip(kept_in).rev() {
        let name = segment_name(number);
        disk.rename(&name, kept)
            .map_err(|error| OpenError::io(format!("renaming {name}"), error))?;
    }
    disk.sync_directory()
        .map_err(|error| OpenError::io("syncing the log's directory", error))?;
    if let Some((number, used)) = plan.cut {
        let name = segment_name(number);
        disk.open(&name)
            .and_then(|file| {
                file.truncate(used)?;
                file.sync_data()
            })
            .map_err(|error| OpenError::io(format!("cutting {name}"), error))?;
    }
    Ok(Repaired {
        kept_in: plan.loss.kept_in,
    })
}

fn keep_tail<D: Disk>(disk: &D, number: u64, used: u64, kept: &str) -> io::Result<()> {
    let mut bytes = Vec::new();
    contents(disk, &segment_name(number), &mut bytes)?;
    let rest = &bytes[used as usize..];
    let file = disk.create(kept)?;
    file.write_at(&[IoSlice::new(&rest[..significant(rest) as usize])], 0)?;
    file.sync_data()?;
    disk.sync_directory()
}
