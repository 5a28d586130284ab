//! The files that had one path, one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use crate::age::begun;
use crate::counts::Fatal;
use crate::file_system::{FileId, FileSystem, Seen};
use crate::follower::{Around, Driven, Follower, Life};
use crate::network::{Lane, Network};

/// Files of one path that are over and remembered: they may be met again when the next one is rotated,
/// or when their file system is mounted again.
const REMEMBERED: usize = 64;

/// The files of directories.
pub(crate) type Lists = BTreeMap<PathBuf, Vec<Seen>>;

pub(crate) struct Trail<F, L> {
    pub(crate) path: PathBuf,
    /// The oldest first; the last may be the one that has the path now.
    pub(crate) followers: VecDeque<Follower<F, L>>,
}

impl<F, L: Lane> Trail<F, L> {
    pub(crate) fn new(path: PathBuf) -> Trail<F, L> {
        Trail {
            path,
            followers: VecDeque::new(),
        }
    }

    /// How many followers, from the first on, have their turn: in order, each waits for the ones
    /// before.
    pub(crate) fn active(&self) -> usize {
        let waits =
            |follower: &Follower<F, L>| follower.life == Life::Active && !follower.is_stuck();
        let first = self.followers.iter().position(waits);
        first.map_or(self.followers.len(), |first| first + 1)
    }

    /// Whether a file behind this place could be closed for the one there, which has its turn first.
    pub(crate) fn yields_behind(&mut self, at: usize) -> bool {
        self.followers
            .range_mut(at + 1..)
            .rev()
            .any(Follower::yields)
    }

    /// Has the followers that have their turn go on.
    pub(crate) fn drive<S, N>(&mut self, around: &mut Around<'_, S, N>) -> Result<Driven, Fatal>
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let mut came = Driven::default();
        for at in 0..self.followers.len() {
            // A truncated file sends only what is in memory, also out of its turn.
            if at >= self.active() && !self.followers[at].is_truncated {
                continue;
            }
            let follower = &mut self.followers[at];
            if !follower.is_saved {
                continue;
            }
            let driven = follower.drive(around)?;
            came.busy |= driven.busy;
            came.dirty |= driven.dirty;
        }
        Ok(came)
    }

    pub(crate) fn lanes(&self) -> usize {
        self.followers.iter().filter(|f| f.has_lane()).count()
    }

    /// How many wait for a lane.
    pub(crate) fn waits(&self) -> usize {
        self.followers.iter().filter(|f| f.is_waiting()).count()
    }

    /// Whether an event may happen before the next look.
    pub(crate) fn is_hot(&self) -> bool {
        self.followers.iter().any(Follower::is_hot)
    }

    /// A server may have less of these than it had: it is asked.
    fn doubt_those(
        &mut self,
        now: Duration,
        is_known: bool,
        which: impl Fn(&Follower<F, L>) -> bool,
    ) {
        let mut must_wait = false;
        for follower in &mut self.followers {
            if must_wait {
                follower.wait_again();
            }
            must_wait |= which(follower) && follower.doubt(now, is_known);
        }
    }

    /// A server may have less of any of what is remembered than it had.
    pub(crate) fn doubt(&mut self, now: Duration) {
        self.doubt_those(now, true, |_| true);
    }

    pub(crate) fn doubt_active(&mut self, now: Duration) {
        self.doubt_those(now, false, |follower| follower.life == Life::Active);
    }

    pub(crate) fn doubt_some(&mut self, now: Duration, producers: &[String]) {
        self.doubt_those(now, false, |follower| {
            producers.contains(&follower.entry.producer)
        });
    }

    /// Whether files may have had the path since it was looked at last of which nothing is known.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.followers
            .back()
            .is_none_or(|last| !self.stands() || !last.is_checked)
    }

    /// Whether the last file has the path, with what it had.
    pub(crate) fn stands(&self) -> bool {
        let last = self.followers.back();
        last.is_some_and(|last| last.life == Life::Active && last.left.is_none() && last.has_file())
    }

    /// Adds one that had the path before the file that has it now. `lists` says what is in directories, in the order of age.
    pub(crate) fn insert(&mut self, follower: Follower<F, L>, lists: &Lists) {
        let mut at = self.followers.len() - usize::from(self.stands());
        // Younger files of which nothing was sent come after it.
        while at > 0 {
            let before = &self.followers[at - 1];
            let is_begun = before.entry.acked > 0 || before.has_lane();
            if is_begun || before.life != Life::Active || !is_younger(before, &follower, lists) {
                break;
            }
            at -= 1;
        }
        self.followers.insert(at, follower);
    }

    /// The follower at this place has the path now: it is the newest.
    pub(crate) fn has_path(&mut self, at: usize, now: Duration) {
        for earlier in &mut self.followers {
            earlier.left.get_or_insert(now);
        }
        if let Some(follower) = self.followers.remove(at) {
            self.followers.push_back(follower);
        }
        if let Some(newest) = self.followers.back_mut() {
            newest.left = None;
        }
    }

    /// The follower at this place, which is not shipped whole, has the path; others may have had it since it had left it.
    pub(crate) fn has_path_again(&mut self, at: usize, now: Duration) {
        if at + 1 < self.followers.len() {
            self.followers[at].wait_again();
            self.has_path(at, now);
        }
    }

    /// Followers that need only be remembered: shipped and rotated away, or missing, and named by
    /// no pattern.
    pub(crate) fn over(&self) -> impl Iterator<Item = &Follower<F, L>> {
        self.followers.iter().filter(|follower| follower.is_over())
    }

    /// Drops followers that are over and need not be remembered.
    pub(crate) fn forget(&mut self) {
        self.followers
            .retain(|follower| !(follower.is_truncated && follower.life == Life::Done));
        let mut surplus = self.over().count().saturating_sub(REMEMBERED);
        self.followers.retain(|follower| {
            let goes = surplus > 0 && follower.is_over();
            surplus -= usize::from(goes);
            !goes
        });
    }
}

/// Whether what the one holds was begun after what the other holds.
fn is_younger<F, L: Lane>(one: &Follower<F, L>, other: &Follower<F, L>, lists: &Lists) -> bool {
    let place = |all: &[Seen], id: FileId| all.iter().position(|seen| seen.id == id);
    let both = lists
        .values()
        .find_map(|all| Some((place(all, one.entry.id)?, place(all, other.entry.id)?)));
    if let Some((one, other)) = both {
        return one > other;
    }
    let age = |f: &Follower<F, L>| begun(&f.entry.path, f.entry.id, f.entry.modified);
    age(one) > age(other)
}
