//! A file that was truncated, replaced or compressed, and the copies that may have its rest.

use std::io;

use super::hole::{are_zeros, beginning};
use super::likeness::{Likeness, is_no_copy};
use super::reading::{fits, read};
use super::{Around, Follower, Life};
use crate::age::put_in_order;
use crate::buffer::KEPT;
use crate::file_system::{FileSystem, Seen};
use crate::fingerprint::HEAD;
use crate::network::{Lane, Network};
use crate::pattern::{is_packed, is_rotated};

impl<F, L: Lane> Follower<F, L> {
    /// The file is shorter than what was seen, or begins otherwise: it was truncated. If it was copied
    /// before, as logrotate's `copytruncate` does, the copy has the rest.
    pub(super) fn truncated<S, N>(&mut self, around: &mut Around<'_, S, N>) -> io::Result<()>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        self.left.get_or_insert(around.now);
        around.must_scan = true;
        around.tracked.remove(&self.entry.id);
        around
            .emptied
            .note(self.entry.id, self.entry.followed.clone());
        self.seeking = Some(around.now);
        self.seek_copy(around)
    }

    /// What was read before is not there any more, but the file begins as it did and is no shorter: it was truncated and
    /// has got the same beginning again, such as a line of names, if there is a copy of what it had; else it was changed.
    pub(super) fn rewritten<S, N>(
        &mut self,
        around: &mut Around<'_, S, N>,
        at: u64,
    ) -> io::Result<()>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let file = self.file.as_ref().expect("it is open");
        let (from, len) = match self.is_placed {
            true => (self.buffer.kept().0, KEPT),
            false => (self.entry.tail.at, self.entry.tail.len.min(KEPT)),
        };
        let now = read(around.files, file, from, len)?;
        // A hole is there: its writer goes on where it was before the file was truncated.
        let is_hole = now.iter().all(|byte| *byte == 0);
        if is_hole || self.copy(around)?.is_some() {
            return self.truncated(around);
        }
        self.changed(around, at);
        Ok(())
    }

    /// Looks for the copy of a file that was truncated; when there has been none for long enough, that is a loss.
    pub(super) fn seek_copy<S, N>(&mut self, around: &mut Around<'_, S, N>) -> io::Result<()>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let path = self.entry.path.clone();
        if let Some((file, seen)) = self.copy(around)? {
            around.events.push(format!(
                "{} was truncated; the rest of it is shipped from its copy {}",
                path.display(),
                seen.path.display()
            ));
            self.takes(&seen, around);
            self.file = Some(file);
            self.len = seen.len;
            self.seeking = None;
            if self.slot.is_none() {
                // The rest is all in the copy.
                self.displace();
            }
            if self.head.is_empty()
                && let Some(file) = &self.file
            {
                self.head = beginning(around.files, file, HEAD)?;
            }
            return Ok(());
        }
        let since = self.seeking.unwrap_or(around.now);
        // A copy may be moved or compressed at this moment.
        if around.now.saturating_sub(since) >= around.settings.rotate_wait {
            self.lose(
                around,
                "was truncated, and no copy of it is beside it: what was written to it",
            );
        }
        Ok(())
    }

    /// The bytes of the file that are not in memory are lost.
    pub(crate) fn lose<S: FileSystem, N: Network>(
        &mut self,
        around: &mut Around<'_, S, N>,
        how: &str,
    ) {
        around.counts.losses += 1;
        around.events.push(format!(
            "{} {how} after byte {} is lost",
            self.entry.path.display(),
            self.end()
        ));
        self.seeking = None;
        self.is_truncated = true;
        self.is_removed = false;
        self.file = None;
        self.len = self.end();
    }

    /// Gives the follower another file with the same contents.
    pub(super) fn takes<S, N>(&mut self, seen: &Seen, around: &mut Around<'_, S, N>)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        if self.has_file() {
            around.tracked.remove(&self.entry.id);
        }
        around.tracked.insert(seen.id);
        self.entry.id = seen.id;
        self.entry.path.clone_from(&seen.path);
        self.entry.modified = seen.modified;
        self.is_saved = false;
        self.is_removed = seen.removed;
    }

    /// A copy with all that was seen of the file, if there is one; the oldest, because what comes later may begin alike.
    pub(super) fn copy<S, N>(&self, around: &Around<'_, S, N>) -> io::Result<Option<(F, Seen)>>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let entry = &self.entry;
        let target = around.files.target(&entry.followed);
        let least = self.end().max(self.len).max(self.seen_to());
        let mut copies = around.files.siblings(&entry.path)?;
        copies.retain(|seen| {
            (is_rotated(&seen.path, &entry.followed) || is_rotated(&seen.path, &target))
                && (is_packed(&seen.path) || seen.len >= least)
                // A copy has the last that was written, or is newer.
                && seen.modified >= entry.modified
                && !around.tracked.contains(&seen.id)
        });
        put_in_order(&mut copies);
        for mut seen in copies {
            let file = match around.files.open(&seen.path) {
                // The file may not be read, or has gone, or is not whole yet.
                Err(e) if is_no_copy(&e, &seen) => continue,
                file => file?,
            };
            let opened = around.files.stat(&file)?;
            if opened.id == seen.id && opened.len >= least && self.is_of(around.files, &file)? {
                seen.len = opened.len;
                return Ok(Some((file, seen)));
            }
        }
        Ok(None)
    }

    /// Whether this file has all that was seen so far.
    pub(crate) fn is_of<S: FileSystem<File = F>>(&self, files: &S, file: &F) -> io::Result<bool> {
        let begins = match self.head.is_empty() {
            false => read(files, file, 0, self.head.len())? == self.head,
            true => self.entry.head.len > 0 && fits(files, file, &self.entry.head)?,
        };
        if !begins {
            return Ok(false);
        }
        if self.is_placed {
            let (at, kept) = self.buffer.kept();
            if !self.has_read_zeros() || self.seen_end.1.is_empty() {
                return Ok(read(files, file, at, kept.len())? == kept);
            }
        }
        let (at, end) = &self.seen_end;
        Ok(match end.is_empty() {
            false => read(files, file, *at, end.len())? == *end,
            true => fits(files, file, &self.entry.tail)?,
        })
    }

    /// Whether all that was seen of it are zeros, with which every file begins whose writer goes on where it was before a truncation (a hole):
    /// they say nothing of which one it is.
    fn is_known_by_zeros(&self) -> bool {
        let begins_so = match self.head.is_empty() {
            false => are_zeros(&self.head),
            true => self.entry.head.is_of_zeros(),
        };
        let ends_so = || match (self.is_placed, &*self.seen_end.1) {
            (true, end) => are_zeros(self.buffer.kept().1) && are_zeros(end),
            (false, []) => self.entry.tail.is_of_zeros(),
            (false, end) => are_zeros(end),
        };
        begins_so && ends_so()
    }

    /// Whether what was read of it up to now are zeros: then its end, which was seen before it had its turn, is more to know it by.
    pub(super) fn has_read_zeros(&self) -> bool {
        self.is_placed && are_zeros(&self.head) && are_zeros(self.buffer.kept().1)
    }

    /// What a file, called as a rotated one of this follower's path and opened, is to this follower.
    pub(crate) fn likeness<S: FileSystem<File = F>>(
        &self,
        files: &S,
        (file, len): (&F, u64),
    ) -> io::Result<Likeness> {
        if self.is_truncated || !self.has_head() {
            return self.is_copied(files, (file, len));
        }
        let is_alike = len >= self.end().max(self.seen_to()) && self.is_of(files, file)?;
        // What is known to be of it was looked for already, among the files that are judged now.
        let is_known_by_length = self.life == Life::Done && len == self.entry.acked;
        let is_all = is_alike && (is_known_by_length || !self.is_known_by_zeros());
        let is_open = self.file.is_some() && self.seeking.is_none();
        match self.life {
            // The follower itself finds the copy.
            Life::Active | Life::Lingering(_) if is_all && self.left.is_some() => {
                Ok(Likeness::Same)
            }
            Life::Active if is_open && self.left.is_none() => self.is_copied(files, (file, len)),
            Life::Done if is_all && len == self.entry.acked => Ok(Likeness::Same),
            Life::Done | Life::Missing if is_all => Ok(Likeness::Rest),
            Life::Failed if is_all => Ok(Likeness::Same),
            _ => Ok(Likeness::None),
        }
    }

    /// Whether a file may be a copy that is being made of the one that has the path, which stands as it was: it has
    /// nothing that this has not.
    fn is_copied<S: FileSystem<File = F>>(
        &self,
        files: &S,
        (file, len): (&F, u64),
    ) -> io::Result<Likeness> {
        let Some(original) = self.file.as_ref().filter(|_| self.has_file()) else {
            return Ok(Likeness::None);
        };
        let standing = files.stat(original)?;
        let is_known_now = standing.len >= self.end().max(self.seen_to());
        if !is_known_now {
            // The file has just been truncated, which the next look finds; then it is known whose
            // copy this is.
            return Ok(Likeness::Prefix);
        }
        let head = (len as usize).min(HEAD);
        let tail = (len as usize).min(KEPT);
        let at = len - tail as u64;
        let alike = |at, len| -> io::Result<bool> {
            Ok(read(files, file, at, len)? == read(files, original, at, len)?)
        };
        let is_prefix = len <= standing.len && alike(0, head)? && alike(at, tail)?;
        Ok(if is_prefix {
            Likeness::Prefix
        } else {
            Likeness::None
        })
    }

    /// Goes on with a file that has what was shipped of its own, which has gone, and more.
    pub(crate) fn goes_on_with<S, N>(&mut self, seen: &Seen, around: &mut Around<'_, S, N>)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let is_back = self.life == Life::Missing;
        self.takes(seen, around);
        let said = self.come_back(seen, false, around.now, around.counts);
        if is_back {
            around.events.extend(said);
        }
        if self.life == Life::Done {
            self.revive(around.now);
        }
        self.is_saved = false;
    }
}
