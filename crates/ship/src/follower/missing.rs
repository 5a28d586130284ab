//! A file that is nowhere to be found, and how it is known again.
//!
//! Whether it was removed, or is on a file system that is not mounted at present, cannot be told.
//! So it is remembered, and known again by what it was: its inode and time of birth, on whatever
//! device, and what was shipped of it.

use std::io;
use std::time::Duration;

use super::reading::fits;
use super::{Around, Follower, Life};
use crate::counts::Counts;
use crate::file_system::{FileId, FileSystem, Seen};
use crate::fingerprint::HEAD;
use crate::network::{Lane, Network};
use crate::pattern::is_packed;

impl<F, L: Lane> Follower<F, L> {
    /// The file is nowhere to be found.
    pub(super) fn gone<S: FileSystem, N: Network>(&mut self, around: &mut Around<'_, S, N>) {
        let path = self.entry.path.display();
        if self.entry.done && !self.is_verified && !self.entry.unsure {
            // The file was shipped whole, and removed since.
        } else if self.entry.done && !self.is_verified {
            around.counts.losses += 1;
            around.events.push(format!(
                "{path} was shipped whole and is not there any more; the server was set back, and may have lost what it had of it"
            ));
        } else if self.life == Life::Active && self.entry.acked == 0 && !self.has_head() {
            self.blank = Some(around.now);
            around.must_scan = true;
        } else if self.life == Life::Active {
            let told = self.is_lost(around.counts);
            around.events.push(told);
        }
        self.life = Life::Missing;
        self.trouble = None;
    }

    /// Counts the missing file as a loss; what there is to log.
    pub(crate) fn is_lost(&mut self, counts: &mut Counts) -> String {
        self.is_loss = true;
        self.blank = None;
        counts.losses += 1;
        format!(
            "{}, shipped up to byte {}, is not there, nor in its directory under another \
             name: if it was removed or moved between two looks, what it had after that is not shipped. If it comes back, as with its file system, shipping goes on there",
            self.entry.path.display(),
            self.entry.acked
        )
    }

    /// The follower's file, if it is among these and has another device by now.
    pub(super) fn on_another_device<S, N>(
        &self,
        all: &[Seen],
        around: &Around<'_, S, N>,
    ) -> io::Result<Option<Seen>>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        for seen in all {
            let may_be = self.may_be(seen) && !around.tracked.contains(&seen.id);
            if may_be && self.is_again(around.files, seen)? {
                return Ok(Some(seen.clone()));
            }
        }
        Ok(None)
    }

    /// Notes that the file was found on another device.
    pub(super) fn is_moved<S, N>(&mut self, id: FileId, around: &mut Around<'_, S, N>)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        around.tracked.remove(&self.entry.id);
        around.tracked.insert(id);
        self.entry.id = id;
        self.is_saved = false;
        if !self.entry.done {
            around.events.push(self.back());
        }
    }

    /// Whether its file may be this one, without a look at what is inside.
    pub(crate) fn may_be(&self, seen: &Seen) -> bool {
        let entry = &self.entry;
        if entry.id == seen.id {
            return true;
        }
        // Without a time of birth, files of new file systems are alike: same inode, same first line. Of what
        // nothing was shipped of, nothing can be taken for shipped.
        let is_known_well = match (entry.id.born, entry.head.len) {
            (_, 0) => entry.acked == 0,
            (Some(_), _) => true,
            (None, len) => len == HEAD,
        };
        entry.id.is_but_for_device(seen.id)
            && is_known_well
            && entry.path.parent() == seen.path.parent()
    }

    /// Whether a file that [may be](Follower::may_be) its own has what was shipped. On the same device only the
    /// beginning counts: that the rest is as it was is looked at whenever a file is opened.
    pub(crate) fn is_again<S: FileSystem<File = F>>(
        &self,
        files: &S,
        seen: &Seen,
    ) -> io::Result<bool> {
        let entry = &self.entry;
        if seen.len < entry.acked && !is_packed(&seen.path) {
            return Ok(false);
        }
        let file = files.open(&seen.path)?;
        let opened = files.stat(&file)?;
        let is_same =
            opened.id == seen.id && opened.len >= entry.acked && fits(files, &file, &entry.head)?;
        Ok(is_same && (seen.id == entry.id || fits(files, &file, &entry.tail)?))
    }

    /// Notes that the file was found again, under the path that is followed or another one; returns
    /// what there is to log.
    pub(crate) fn come_back(
        &mut self,
        seen: &Seen,
        has_path: bool,
        now: Duration,
        counts: &mut Counts,
    ) -> Option<String> {
        counts.losses -= u64::from(std::mem::take(&mut self.is_loss));
        self.blank = None;
        let is_news = self.life == Life::Missing || self.entry.id != seen.id;
        self.entry.id = seen.id;
        self.entry.path.clone_from(&seen.path);
        self.is_saved &= !is_news;
        if self.life == Life::Failed {
            return None;
        }
        self.file = None;
        self.slot = None;
        self.trouble = None;
        let is_whole = self.life == Life::Done || self.entry.done;
        let has_more = seen.len != self.entry.acked && !is_packed(&seen.path);
        if is_whole && !has_path && !has_more {
            self.life = Life::Done;
            return None;
        }
        self.revive(now);
        if has_path {
            self.left = None;
        }
        is_news.then(|| self.back())
    }

    fn back(&self) -> String {
        let path = self.entry.path.display();
        format!(
            "{path} is there again, perhaps on a file system that was mounted anew; shipping goes on \
             behind byte {}",
            self.entry.acked
        )
    }
}
