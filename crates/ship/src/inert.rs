//! Files that are known and not asked for this time.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::counts::Counts;
use crate::file_system::{FileId, FileSystem, Seen};
use crate::follower::Follower;
use crate::network::Lane;
use crate::state::Entry;

/// The entries of inert files, which stay in the checkpoint unchanged.
#[derive(Debug, Default)]
pub(crate) struct Inert(BTreeMap<FileId, Vec<Entry>>);

impl Inert {
    pub(crate) fn add(&mut self, entry: Entry) {
        self.0.entry(entry.id).or_default().push(entry);
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().flatten()
    }

    /// The follower of a file that is asked for under another path now, because it was moved there, or its directory was: it goes on where it
    /// was. `None` if the file is not known, or is not what was shipped of it.
    pub(crate) fn take_up<F, L: Lane, S: FileSystem<File = F>>(
        &mut self,
        files: &S,
        seen: &Seen,
        now: Duration,
    ) -> io::Result<Option<Follower<F, L>>> {
        let Some(entries) = self.0.get_mut(&seen.id) else {
            return Ok(None);
        };
        for at in 0..entries.len() {
            let followed: PathBuf = seen.path.clone();
            let mut follower = Follower::new(
                Entry {
                    followed,
                    ..entries[at].clone()
                },
                false,
                now,
            );
            if !follower.is_again(files, seen)? {
                continue;
            }
            entries.remove(at);
            if entries.is_empty() {
                self.0.remove(&seen.id);
            }
            // The loss of a file that was gone was counted by the process that missed it.
            follower.come_back(seen, true, now, &mut Counts::default());
            follower.is_here = true;
            return Ok(Some(follower));
        }
        Ok(None)
    }
}
