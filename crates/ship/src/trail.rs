//! The files that had one path, one after the other.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::follower::{Follower, Life};

/// Files that were rotated away, and are named by no pattern, that are remembered: they may be met
/// again when the next one is rotated.
const REMEMBERED: usize = 16;

pub(crate) struct Trail<F, L> {
    pub(crate) path: PathBuf,
    /// The oldest first; the last may be the one that has the path now.
    pub(crate) followers: VecDeque<Follower<F, L>>,
}

impl<F, L> Trail<F, L> {
    pub(crate) fn new(path: PathBuf) -> Trail<F, L> {
        Trail {
            path,
            followers: VecDeque::new(),
        }
    }

    /// How many, from the first on, have their turn: in order, each waits for those before.
    pub(crate) fn active(&self) -> usize {
        let waits = |follower: &Follower<F, L>| follower.life == Life::Active;
        let first = self.followers.iter().position(waits);
        first.map_or(self.followers.len(), |first| first + 1)
    }

    /// Drops what is over and need not be remembered.
    pub(crate) fn forget(&mut self) {
        self.followers
            .retain(|follower| !(follower.is_truncated && follower.life == Life::Done));
        let is_over = |follower: &Follower<F, L>| follower.life == Life::Done && !follower.is_here;
        let over = self.followers.iter().filter(|follower| is_over(follower));
        let mut surplus = over.count().saturating_sub(REMEMBERED);
        self.followers.retain(|follower| {
            let goes = surplus > 0 && is_over(follower);
            surplus -= usize::from(goes);
            !goes
        });
    }
}
