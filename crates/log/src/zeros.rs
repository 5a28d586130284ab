//! Writing zeros ahead of the log: blocks that were written before take a group without a change of
//! the file system's metadata, which makes syncing it several times faster than blocks that are
//! only reserved.
//!
//! The one idea: a separate thread writes the zeros, a piece at a time, and the writer never waits
//! for more than one piece. Nothing depends on the zeros: reserved blocks read as zeros anyway, and
//! a spare that is taken half done is as good as one that was never begun.

use std::io::IoSlice;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::disk::DiskFile;

/// Bytes written at a time, which is what the writer may have to wait for.
const PIECE: usize = 1 << 20;
/// Bytes between two syncs.
const SYNC_EVERY: u64 = 8 << 20;

/// The file to fill, and how far.
#[derive(Debug)]
pub(crate) struct Zeros<F> {
    spare: Mutex<Spare<F>>,
    changed: Condvar,
}

#[derive(Debug)]
struct Spare<F> {
    file: Option<F>,
    /// Zeros were written up to here.
    filled: u64,
    /// Zeros are wanted up to here: with the segment in use half full, the spare is filled.
    wanted: u64,
    length: u64,
    over: bool,
}

impl<F> Default for Zeros<F> {
    fn default() -> Zeros<F> {
        Zeros {
            spare: Mutex::new(Spare {
                file: None,
                filled: 0,
                wanted: 0,
                length: 0,
                over: false,
            }),
            changed: Condvar::new(),
        }
    }
}

impl<F: DiskFile> Zeros<F> {
    /// Begins with a new spare, which is to be `length` bytes long; room is reserved for a part of
    /// it.
    pub(crate) fn begin(&self, file: F, length: u64) {
        let mut spare = self.lock();
        spare.file = Some(file);
        spare.filled = 0;
        spare.wanted = 0;
        spare.length = length;
    }

    /// The segment in use is filled up to `used` of `length` bytes: the spare is to be two times as
    /// far, so that the work is spread and done in time.
    pub(crate) fn keep_up(&self, used: u64, length: u64) {
        let mut spare = self.lock();
        if spare.file.is_none() || spare.wanted >= spare.length {
            return;
        }
        let share = (used as f64 / length.max(1) as f64 * 2.0).min(1.0);
        let wanted = (share * spare.length as f64) as u64 + SYNC_EVERY;
        spare.wanted = spare.wanted.max(wanted.min(spare.length));
        if spare.wanted >= spare.filled + PIECE as u64 {
            self.changed.notify_one();
        }
    }

    /// The spare is taken into use: nothing more is written to it once this returns. How far it was
    /// filled.
    pub(crate) fn end(&self) -> u64 {
        let mut spare = self.lock();
        spare.file = None;
        std::mem::take(&mut spare.filled)
    }

    /// Ends [`Zeros::run`].
    pub(crate) fn close(&self) {
        let mut spare = self.lock();
        spare.file = None;
        spare.over = true;
        self.changed.notify_one();
    }

    /// Fills spares until [`Zeros::close`].
    pub(crate) fn run(&self) {
        let zeros = vec![0; PIECE];
        let mut spare = self.lock();
        while !spare.over {
            let Some(file) = spare.file.clone().filter(|_| spare.filled < spare.wanted) else {
                spare = self
                    .changed
                    .wait(spare)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let piece = (spare.length - spare.filled).min(PIECE as u64);
            // Under the lock: the writer must not put a batch where zeros are still to come.
            let parts = [IoSlice::new(&zeros[..piece as usize])];
            if file.write_at(&parts, spare.filled).is_err() {
                spare.file = None;
                continue;
            }
            spare.filled += piece;
            let ends = spare.filled >= spare.length;
            drop(spare);
            if (ends || self.lock().filled.is_multiple_of(SYNC_EVERY)) && file.sync_data().is_err()
            {
                // Only zeros were lost; the writer's own syncs show what is wrong with the disk.
                self.lock().file = None;
            }
            spare = self.lock();
        }
    }

    #[cfg(test)]
    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().wanted > 0
    }

    fn lock(&self) -> MutexGuard<'_, Spare<F>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::disk::Disk;
    use crate::disk::real::RealDisk;

    fn eventually(holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(30));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_spare_is_filled_as_far_as_is_wanted_and_never_after_it_was_taken() {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(directory.path()).unwrap();
        let file = disk.create("spare").unwrap();
        let length = 20 << 20;
        let zeros = Arc::new(Zeros::default());
        let thread = std::thread::spawn({
            let zeros = zeros.clone();
            move || zeros.run()
        });
        zeros.begin(file.clone(), length);
        zeros.keep_up(0, 100);
        eventually(|| zeros.lock().filled == SYNC_EVERY);
        zeros.keep_up(50, 100);
        eventually(|| zeros.lock().filled == length);
        assert_eq!(file.len().unwrap(), length);

        let next = disk.create("next").unwrap();
        zeros.begin(next.clone(), length);
        zeros.keep_up(100, 100);
        eventually(|| zeros.lock().filled > 0);
        zeros.end();
        let taken = next.len().unwrap();
        next.write_at(&[IoSlice::new(b"batch")], 0).unwrap();
        zeros.keep_up(100, 100);
        zeros.close();
        thread.join().unwrap();
        assert_eq!(next.len().unwrap(), taken);
        let mut read = [0; 5];
        next.read_at(&mut read, 0).unwrap();
        assert_eq!(&read, b"batch");
    }
}
