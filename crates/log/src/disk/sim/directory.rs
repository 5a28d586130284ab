//! A directory in memory, as a log sees it and as a test breaks it.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::faults::{Faults, Survival};
use super::file::SimFile;
use super::state::State;
use crate::disk::Disk;

/// A directory in memory. Clones stand for one disk.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk without faults and without a limit to its capacity. The seed decides what
    /// [`SimDisk::crash`] and failing operations leave behind.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::from(State::new(seed))
    }

    /// Replaces the faults that are still to come; they count from now.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Limits the space to this many bytes, in whole [`BLOCK`](super::BLOCK)s. Stored data stays, even above
    /// the limit.
    pub fn set_capacity(&self, bytes: u64) {
        self.lock().capacity = bytes;
    }

    /// The bytes in use: whole blocks of all files that have a name or are open.
    pub fn used(&self) -> u64 {
        self.lock().used()
    }

    /// The most that [`SimDisk::used`] has ever been, also within a step of the disk's user.
    pub fn most_used(&self) -> u64 {
        self.lock().most_used
    }

    /// How many changing operations were requested, on this disk and on the disks that it was made
    /// from, failed ones included. [`Faults::power`] counts these operations.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Whether the disk still answers: `false` after [`Faults::power`] has struck, and after
    /// [`SimDisk::crash`] or [`SimDisk::kill`] have made a successor.
    pub fn has_power(&self) -> bool {
        self.lock().powered
    }

    /// The disk as it is found after a power loss now; the seed chooses which unsynced writes survive. Every
    /// later operation on this disk fails with [`PowerLost`](super::PowerLost); the new disk has the same
    /// capacity and no faults.
    #[must_use]
    pub fn crash(&self) -> SimDisk {
        let survival = Survival::any(&mut self.lock().random);
        self.crash_with(survival)
    }

    /// Like [`SimDisk::crash`], in this way.
    #[must_use]
    pub fn crash_with(&self, survival: Survival) -> SimDisk {
        SimDisk::from(self.lock().crash(survival))
    }

    /// The disk as it is found after the process was killed now: everything handed to the system is
    /// there, synced or not, and what was not synced can still be lost. Every later operation on
    /// this one fails with [`PowerLost`](super::PowerLost).
    #[must_use]
    pub fn kill(&self) -> SimDisk {
        let mut state = self.lock();
        let successor = state.successor();
        state.powered = false;
        SimDisk::from(successor)
    }

    /// An independent copy without faults; this disk stays usable.
    #[must_use]
    pub fn fork(&self) -> SimDisk {
        SimDisk::from(self.lock().successor())
    }

    /// Turns one bit (0 to 7) of a stored byte over, as a decaying medium does: in what is proven
    /// and in every later version. `false` if the disk has no such file or byte.
    pub fn flip(&self, name: &str, offset: u64, bit: u8) -> bool {
        self.lock().flip(name, offset, bit)
    }

    /// The contents of a file as a process sees them; `None` if no file has this name. This
    /// function works without power.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().contents(name)
    }

    /// The names of all files as a process sees them, sorted. Works without power.
    pub fn names(&self) -> Vec<String> {
        self.lock().names.sorted()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking test may still want to look at its disk.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<State> for SimDisk {
    fn from(state: State) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(state)),
        }
    }
}

impl Disk for SimDisk {
    type File = SimFile;

    fn free(&self) -> Option<u64> {
        let state = self.lock();
        Some(state.capacity.saturating_sub(state.used()))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.lock().list()
    }

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let (inode, open) = self.lock().create(name)?;
        Ok(SimFile::new(self.state.clone(), inode, open))
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let (inode, open) = self.lock().open(name)?;
        Ok(SimFile::new(self.state.clone(), inode, open))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.lock().rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().remove(name)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.lock().sync_directory()
    }
}
