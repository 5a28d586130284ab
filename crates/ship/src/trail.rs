//! The files that had one path, one after the other.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use crate::follower::{Follower, Life};
use crate::network::Lane;

/// Files of one path that are over and remembered: they may be met again when the next one is rotated,
/// or when their file system is mounted again.
const REMEMBERED: usize = 64;

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

    /// How many, from the first on, have their turn: in order, each waits for those before.
    pub(crate) fn active(&self) -> usize {
        let waits =
            |follower: &Follower<F, L>| follower.life == Life::Active && !follower.is_stuck();
        let first = self.followers.iter().position(waits);
        first.map_or(self.followers.len(), |first| first + 1)
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

    /// Those that need only be remembered: shipped and rotated away, or missing, and named by no pattern.
    pub(crate) fn over(&self) -> impl Iterator<Item = &Follower<F, L>> {
        self.followers.iter().filter(|follower| follower.is_over())
    }

    /// Drops what is over and need not be remembered.
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
