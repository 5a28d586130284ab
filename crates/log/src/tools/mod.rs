//! Tools for a log: what is in it, whether all of it is as it was written, and how to go on when it
//! is not.
//!
//! All but [`repair`] change nothing, take any [`Disk`](crate::disk::Disk), a
//! [`ReadOnlyDisk`](crate::disk::ReadOnlyDisk) in particular, and may be used while a process writes
//! the log: what is being written just then looks like a torn tail. [`repair`] is for a log that no
//! process has open.

mod backup;
mod check;
mod doubt;
mod dump;
mod heads;
mod info;
mod inside;
mod mend;
mod naming;
mod repair;
mod rescue;
mod salvage;

pub use backup::{Backup, BackupError, backup};
pub use check::{Problem, Report, check};
pub use dump::{Item, dump, dump_file};
pub use info::{CursorInfo, Info, SegmentInfo, StreamInfo, info};
pub use repair::{Gap, Loss, RepairError, Repaired, loss, repair};
