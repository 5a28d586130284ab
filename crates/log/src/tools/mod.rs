//! Tools for a log: what is in it, whether all of it is as it was written, and how to go on if not.
//!
//! All but [`repair`] change nothing, take any [`Disk`], a
//! [`ReadOnlyDisk`](crate::disk::ReadOnlyDisk) in particular, and may be used while a process writes
//! the log: what is being written just then looks like a torn tail. [`repair`] is for a log that no
//! process has open.

mod backup;
mod check;
mod described;
mod doubt;
mod dump;
mod extract;
mod heads;
mod info;
mod inside;
mod lost;
mod mend;
mod naming;
mod repair;
mod rescue;
mod salvage;

use crate::disk::Disk;
use crate::recovery::refuse_later;
use crate::{Kind, OpenError};

pub use backup::{Backup, BackupError, Earlier, backup, backup_since};
pub use check::{Problem, Report, check};
pub use described::{CursorInfo, StreamInfo};
pub use dump::{Item, dump, dump_file};
pub use extract::{Extracted, extract};
pub use info::{Info, SegmentInfo, info};
pub use repair::{Gap, Loss, RepairError, Repaired, loss, repair};

/// The kind of a log, if one of its segments records it: segments of version 0.2.0 and earlier do
/// not.
///
/// # Errors
/// [`OpenError::Later`] if a later version has written it; what the system says.
pub fn kind<D: Disk>(disk: &D) -> Result<Option<Kind>, OpenError> {
    refuse_later(disk)
}
