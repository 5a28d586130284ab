//! Room of the disk that only what makes room may use.
//!
//! The one idea: the reserve is a file as long as a spare segment, under a name of its own, and becomes the spare by a rename. So
//! no other process can take the space at the moment when it is needed.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};

/// The name of the file.
pub(crate) const RESERVE: &str = "reserve";

/// The state of the reserve.
#[derive(Debug)]
pub(crate) struct Reserve<F>(Mutex<Held<F>>);

#[derive(Debug)]
struct Held<F> {
    file: Option<F>,
    length: u64,
    /// Bytes of a spare that was made of the reserve, and is not in use yet.
    taken: u64,
    /// Whether a caller makes room with the reserve.
    is_lent: bool,
    /// Bytes of the reserve that are lent. They are reserved again even if little space is free: the
    /// borrower has given them back.
    owed: u64,
}

impl<F> Default for Reserve<F> {
    fn default() -> Reserve<F> {
        Reserve(Mutex::new(Held {
            file: None,
            length: 0,
            taken: 0,
            is_lent: false,
            owed: 0,
        }))
    }
}

impl<F: DiskFile> Reserve<F> {
    fn lock(&self) -> MutexGuard<'_, Held<F>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that are reserved, or used as the spare segment.
    pub(crate) fn length(&self) -> u64 {
        let held = self.lock();
        held.length + held.taken
    }

    /// Whether the file is there.
    pub(crate) fn is_there(&self) -> bool {
        self.lock().file.is_some()
    }

    /// Whether the spare segment was the reserve, and a caller wants the reserve.
    pub(crate) fn wants_spare(&self) -> bool {
        let held = self.lock();
        held.is_lent && held.taken > 0
    }

    /// Whether a caller makes room with the reserve.
    pub(crate) fn is_lent(&self) -> bool {
        self.lock().is_lent
    }

    /// The spare that was made of the reserve was not needed, and was renamed back.
    pub(crate) fn put_back(&self, file: F, length: u64) {
        let mut held = self.lock();
        held.file = Some(file);
        held.length = length;
        held.taken = 0;
    }

    /// Whether the spare segment was the reserve.
    pub(crate) fn is_spare(&self) -> bool {
        self.lock().taken > 0
    }

    /// Gives the spare segment to a caller that wants the reserve.
    pub(crate) fn give_spare(&self) {
        let mut held = self.lock();
        held.owed += std::mem::take(&mut held.taken);
    }

    /// Whether bytes that were lent are not held again yet.
    pub(crate) fn is_owed(&self) -> bool {
        self.lock().owed > 0
    }

    /// Notes that no spare is left.
    pub(crate) fn no_spare(&self) {
        self.lock().taken = 0;
    }

    /// Reserves `least` bytes, if `may_take` allows the missing ones beside the lent ones.
    ///
    /// # Errors
    /// [`StorageFull`](io::ErrorKind::StorageFull), also while the reserve is lent, or the error of
    /// the operating system.
    pub(crate) fn hold<D: Disk<File = F>>(
        &self,
        disk: &D,
        least: u64,
        may_take: impl Fn(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut held = self.lock();
        if held.is_lent {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if held.file.is_none() {
            let file = found_or_made(disk)?;
            // Space that an earlier opening has reserved stays reserved, though the settings might
            // need less now. Blocks may be missing below its length.
            held.length = file.len()?;
            if held.length > 0
                && let Err(error) = file.reserve(held.length)
            {
                held.length = 0;
                disk.remove(RESERVE)?;
                return Err(error);
            }
            held.file = Some(file);
        }
        if held.length < least {
            let owed = held.owed.clamp(held.length, least);
            let allowed = if owed < least {
                may_take(least - owed)
            } else {
                Ok(())
            };
            let length = if allowed.is_ok() { least } else { owed };
            if let Some(file) = &held.file
                && length > held.length
            {
                file.reserve(length)?;
                held.length = length;
            }
            held.owed = 0;
            allowed?;
        }
        held.owed = 0;
        // A spare that was made of the reserve is an ordinary spare now.
        held.taken = 0;
        Ok(())
    }

    /// Makes the reserve the spare segment, if it is `least` bytes long.
    pub(crate) fn take<D: Disk<File = F>>(
        &self,
        disk: &D,
        least: u64,
        spare: &str,
    ) -> io::Result<Option<(F, u64)>> {
        let mut held = self.lock();
        if held.length < least.max(1) {
            return Ok(None);
        }
        let Some(file) = held.file.clone() else {
            return Ok(None);
        };
        disk.rename(RESERVE, spare)?;
        held.file = None;
        held.taken = std::mem::take(&mut held.length);
        Ok(Some((file, held.taken)))
    }

    /// Gives the reserved space to the disk until it is reserved again; if a spare was made of it, the
    /// writer gives that.
    pub(crate) fn lend<D: Disk<File = F>>(&self, disk: &D) {
        let mut held = self.lock();
        if held.file.take().is_some() {
            // If that fails the room stays taken, and is found when it is held again.
            let _ = disk.remove(RESERVE);
        }
        held.is_lent = true;
        held.owed += std::mem::take(&mut held.length);
    }

    /// Takes the reserve back; returns whether it was lent.
    pub(crate) fn take_back(&self) -> bool {
        std::mem::take(&mut self.lock().is_lent)
    }

    /// Removes the file of the reserve.
    pub(crate) fn drop_file<D: Disk<File = F>>(&self, disk: &D) {
        let mut held = self.lock();
        if held.file.take().is_some() {
            let _ = disk.remove(RESERVE);
        }
        held.length = 0;
    }
}

fn found_or_made<D: Disk>(disk: &D) -> io::Result<D::File> {
    match disk.create(RESERVE) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(RESERVE),
        made => made,
    }
}
