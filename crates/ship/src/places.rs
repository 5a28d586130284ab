//! What is new in a directory since it was looked through last.

use crate::file_system::Seen;
use crate::state::{Entry, Surveyed};

impl Surveyed {
    /// Whether this file may have come since. A file that was renamed has its birth, and one that was compressed the time
    /// of its last writing, so neither is new.
    pub(crate) fn is_newer(&self, seen: &Seen) -> bool {
        let is_known = |id| seen.id == id || seen.id.is_but_for_device(id);
        let is_younger = match (seen.id.born, self.born) {
            (Some(born), Some(last)) => born >= last,
            _ => true,
        };
        is_younger && seen.modified >= self.modified && !self.newest.iter().any(|&id| is_known(id))
    }

    /// What is there now, but for what is not yet known for what it is.
    pub(crate) fn of(all: &[Seen], undecided: &[Seen]) -> Surveyed {
        let decided = || all.iter().filter(|seen| !undecided.contains(seen));
        let modified = decided().map(|seen| seen.modified).max();
        let born = decided().filter_map(|seen| seen.id.born).max();
        // What is undecided must be newer next time too.
        let least = undecided.iter().map(|seen| seen.modified).min();
        let modified = modified.into_iter().chain(least).min_by_key(|at| *at);
        let least = undecided.iter().filter_map(|seen| seen.id.born).min();
        let born = match (born, least) {
            (Some(born), Some(least)) => Some(born.min(least)),
            (born, None) => born,
            (None, least) => least,
        };
        let is_newest = |seen: &&Seen| seen.id.born >= born;
        Surveyed {
            modified: modified.unwrap_or(i128::MIN),
            born,
            newest: decided().filter(is_newest).map(|seen| seen.id).collect(),
        }
    }

    /// What a checkpoint tells that does not say it itself, from the last file of a path.
    pub(crate) fn as_of(last: &Entry) -> Surveyed {
        Surveyed {
            modified: last.modified,
            born: last.id.born,
            newest: vec![last.id],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::file_system::FileId;

    fn seen(inode: u64, born: i128, modified: i128) -> Seen {
        Seen {
            path: PathBuf::from(format!("/l/{inode}")),
            id: FileId {
                device: 1,
                inode,
                born: Some(born),
            },
            len: 1,
            modified,
            changed: modified,
            removed: false,
        }
    }

    #[test]
    fn what_came_since_is_newer_and_what_was_renamed_or_compressed_is_not() {
        let all = [seen(1, 10, 30), seen(2, 20, 25)];
        let surveyed = Surveyed::of(&all, &[]);
        assert!(!all.iter().any(|seen| surveyed.is_newer(seen)));
        // In the same tick of the clock.
        assert!(surveyed.is_newer(&seen(3, 20, 30)));
        assert!(surveyed.is_newer(&seen(3, 31, 40)));
        // Compressed, of what had been there.
        assert!(!surveyed.is_newer(&seen(4, 50, 25)));
        // Written to, and renamed.
        assert!(!surveyed.is_newer(&seen(1, 10, 60)));
        let surveyed = Surveyed::of(&all, &all[1..]);
        assert!(surveyed.is_newer(&all[1]) && !surveyed.is_newer(&all[0]));
    }
}
