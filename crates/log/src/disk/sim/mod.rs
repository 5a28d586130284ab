//! A simulated disk for tests: a flat directory in memory that does, from a seed, what a real disk
//! may do to unsynced data.
//!
//! The one idea: every change is kept twice, as processes see it (the page cache) and as a sync has
//! proven it, with all versions between. [`SimDisk::crash`] picks among these versions: each sector
//! of 512 bytes independently keeps the synced contents, or a later version, or is torn between
//! two; lengths and names are chosen independently too. [`SimDisk::kill`] keeps the page cache, as
//! SIGKILL does. The results are deterministic as long as one thread at a time uses the disk.
//!
//! ```
//! use std::io::IoSlice;
//! use tidewire_log::disk::sim::{SimDisk, Survival};
//! use tidewire_log::disk::{Disk, DiskFile};
//!
//! let disk = SimDisk::new(7);
//! let file = disk.create("a")?;
//! file.write_at(&[IoSlice::new(b"proven")], 0)?;
//! file.sync_data()?;
//! disk.sync_directory()?;
//! file.write_at(&[IoSlice::new(b" not proven")], 6)?;
//!
//! let after = disk.crash_with(Survival::Nothing);
//! assert_eq!(after.contents("a").as_deref(), Some(&b"proven"[..]));
//! assert!(file.sync_data().is_err(), "the old disk has no power any more");
//! # Ok::<(), std::io::Error>(())
//! ```

mod directory;
mod faults;
mod file;
mod inode;
mod names;
mod sizes;
mod sparse;
mod state;
#[cfg(test)]
mod tests;

pub use directory::SimDisk;
pub use faults::{Faults, PowerLost, Survival};
pub use file::SimFile;
pub use sizes::{BLOCK, SECTOR};
