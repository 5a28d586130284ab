//! Tools for a log that no process has open: what is in it, whether all of it is as it was written,
//! and how to go on when it is not.
//!
//! All but [`repair`] change nothing.

mod check;
mod dump;
mod info;
mod repair;

pub use check::{Problem, Report, check};
pub use dump::{Item, dump};
pub use info::{CursorInfo, Info, SegmentInfo, StreamInfo, info};
pub use repair::{Loss, RepairError, Repaired, loss, repair};
