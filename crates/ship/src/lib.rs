//! Ships files to a server of the native protocol: each line once, in order, whatever happens.
//!
//! The idea that everything rests on: **the id of a message is where it ends in its file**, and each
//! file is a producer of its own. So the mark that the server keeps for a producer *is* a position in
//! the file; the two cannot disagree, whoever is killed in between. `docs/ship.md` has the invariants
//! and why they suffice.
//!
//! * [`Shipper`] is all of it as a state machine driven by steps, without clock, disk or socket: these
//!   come as a [`FileSystem`], a [`Store`] and a [`Network`]. Tests drive it through thousands of
//!   random schedules.
//! * [`Disk`], [`StateDirectory`] and [`Servers`] are the real ones.
//! * [`journal`] ships journald's export format, which has no offsets, by counting from a cursor.

#![forbid(unsafe_code)]

mod age;
mod buffer;
mod disk;
mod file_system;
mod fingerprint;
mod follower;
pub mod journal;
mod lag;
mod line;
mod network;
mod packed;
mod pattern;
mod places;
mod scan;
mod servers;
mod settings;
mod shipper;
mod state;
mod store;
mod trail;
mod watched;

pub use disk::Disk;
pub use disk::Opened;
pub use file_system::{FileId, FileSystem, Found, Seen};
pub use network::{Ended, Lane, Matter, Network, Stand};
pub use pattern::{Pattern, Unusable, is_packed};
pub use servers::{Bell, Servers};
pub use settings::{From, Oversized, Settings};
pub use shipper::{Counts, Fatal, Following, Shipper, Step};
pub use state::{Checkpoint, Entry, Surveyed};
pub use store::{StateDirectory, Store, StoreError, write_atomically};
pub use watched::WatchedDisk;
