//! A descriptor for its file, of which there are not as many as one would like.

use std::time::Duration;

use super::{Follower, Life};
use crate::network::Lane;

impl<F, L: Lane> Follower<F, L> {
    /// Whether its file is open, or is to be.
    pub(crate) fn needs_room(&self) -> bool {
        self.file.is_some() || self.wants_room()
    }

    /// Whether the next look would open its file.
    pub(crate) fn wants_room(&self) -> bool {
        let is_looked_at = matches!(self.life, Life::Active | Life::Lingering(_));
        is_looked_at && self.file.is_none() && !self.is_truncated
    }

    /// Since when it is looked at only for what is written late: its room may be given to another one.
    pub(crate) fn may_leave(&self) -> Option<Duration> {
        match self.life {
            Life::Lingering(since) if !self.needs_lane() && self.has_file() => Some(since),
            _ => None,
        }
    }

    /// Is over earlier than it would be. What is written to its file yet is found when the next one is rotated.
    pub(crate) fn leave(&mut self) {
        self.life = Life::Done;
        self.file = None;
        self.slot = None;
        self.lacks_room = false;
    }

    /// Closes its file, which is opened again later, for one that comes before it in its path; whether that was possible.
    pub(crate) fn yields(&mut self) -> bool {
        let is_idle = self.slot.is_none() && self.offered.is_empty();
        let is_known = self.is_saved && self.head.len() <= self.saved_head;
        let may = self.life == Life::Active && self.has_file() && !self.is_removed;
        if self.file.is_none() || !is_idle || !is_known || !may {
            return false;
        }
        self.file = None;
        self.displace();
        true
    }
}
