//! Snapshots: all keys as they were at a position of the log, which is cut behind that.
//! `docs/formats/kv-snapshot.md` draws the file.

mod copy;
mod file;
mod format;
mod keeper;
mod load;
mod thread;
mod told;

pub use copy::copy;
pub use format::{Header, Wrong, name};
pub use keeper::Keeper;
pub use load::{Found, Instead, SnapshotError};
pub use load::{is_there, load};
pub use thread::Running;
pub use told::{Snapshots, Status};
