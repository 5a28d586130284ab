//! Goes past the holes of a file.

use std::io;

use super::hole::{Hole, are_zeros};
use super::reading::read;
use super::{Around, Follower};
use crate::buffer::KEPT;
use crate::file_system::FileSystem;
use crate::network::{Lane, Network};

impl<F, L: Lane> Follower<F, L> {
    /// Up to where there is something to read: a hole at the end is not read before something follows it, or is written to it.
    pub(super) fn readable(&self) -> u64 {
        match self.holes.ahead {
            Some(hole) if hole.to >= self.len => hole.from.min(self.len),
            // Nothing but a hole.
            None if self.file.is_some() && !self.has_head() => 0,
            _ => self.len,
        }
    }

    /// Passes over zeros at which a message would begin, and finds a hole in what was just read, which the buffer ends at from now on.
    pub(super) fn meet_holes<S, N>(&mut self, around: &mut Around<'_, S, N>)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let Some(file) = &self.file else { return };
        let hole = around.files.hole_from(file, self.buffer.rest_from());
        if hole < self.buffer.end() {
            let data = around.files.data_from(file, hole);
            if data > hole
                && let Some(from) = self.buffer.end_at_hole(hole, data)
            {
                self.holes.ahead = Some(Hole {
                    from,
                    block: hole,
                    to: data,
                });
            }
        }
        if self.buffer.begins_in_zeros() {
            let from = self.buffer.next();
            let passed = self.buffer.pass_zeros();
            self.holes.passed.get_or_insert((from, 0)).1 += passed;
        }
        if self.buffer.has_rest() {
            self.tell_passed(around);
        }
    }

    /// Goes on behind the hole that the buffer ends at: a line that was begun before it ends there. Whether there was one.
    pub(super) fn pass_hole(&mut self) -> bool {
        let Some(hole) = self.holes.ahead else {
            return false;
        };
        if hole.to >= self.len || self.buffer.end() != hole.from {
            return false;
        }
        if self.buffer.has_rest() {
            self.buffer.close_all();
            return true;
        }
        self.jump(hole);
        true
    }

    fn jump(&mut self, hole: Hole) {
        self.holes.ahead = None;
        self.buffer.seek(hole.to, &[0; KEPT]);
        self.holes.passed.get_or_insert((hole.from, 0)).1 += hole.to - hole.from;
    }

    /// Says that nothing follows a hole as yet.
    pub(super) fn tell_hole_at_end<S: FileSystem, N: Network>(
        &mut self,
        around: &mut Around<'_, S, N>,
    ) {
        let Some(hole) = self.holes.ahead else { return };
        if self.holes.told.replace(hole.from) != Some(hole.from) {
            around.events.push(format!(
                "{}: from byte {} on the file has a hole of {} bytes and nothing else. It is not shipped; what is written there, or \
                 behind it, is",
                self.entry.path.display(),
                hole.from,
                self.len - hole.from
            ));
        }
    }

    /// Nothing is added to the file any more: a hole at its end is passed over.
    pub(super) fn pass_hole_at_end<S: FileSystem, N: Network>(
        &mut self,
        around: &mut Around<'_, S, N>,
    ) {
        if let Some(hole) = self.holes.ahead {
            self.jump(Hole {
                to: self.len,
                ..hole
            });
            self.entry.acked = self.len;
        }
        self.tell_passed(around);
    }

    fn tell_passed<S: FileSystem, N: Network>(&mut self, around: &mut Around<'_, S, N>) {
        let Some((at, len)) = self.holes.passed.take() else {
            return;
        };
        around.counts.holes += len;
        around.events.push(format!(
            "{}: {len} bytes of zeros from byte {at} on are not shipped. They are a hole, as a writer leaves that \
             does not append (O_APPEND) when its file is truncated",
            self.entry.path.display()
        ));
    }

    /// The file was looked at: whether the hole is as it was.
    pub(super) fn look_at_hole<S: FileSystem<File = F>>(
        &mut self,
        files: &S,
        is_touched: bool,
    ) -> io::Result<()> {
        let (Some(hole), Some(file)) = (self.holes.ahead, &self.file) else {
            return Ok(());
        };
        // What was written within the tick of the last write has the time of it.
        let stands = || -> io::Result<bool> {
            let begins = read(files, file, hole.from, KEPT)?;
            Ok(are_zeros(&begins) && files.data_from(file, hole.block) == hole.to)
        };
        if is_touched || !stands()? {
            self.holes.ahead = None;
        }
        Ok(())
    }
}
