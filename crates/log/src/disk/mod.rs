//! The file operations of the log, behind a small trait so that a simulated disk can stand in for
//! the real one: all of a log's files live in one flat directory.

mod contents;
mod interface;
mod read_only;
pub mod real;
pub mod sim;

pub(crate) use contents::contents;
pub(crate) use interface::has_no_descriptor;
pub use interface::{Disk, DiskFile};
pub use read_only::ReadOnlyDisk;
