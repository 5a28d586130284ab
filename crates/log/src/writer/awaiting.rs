//! Waiting a little for those who were told of a commit, so that they share the next one.
//!
//! The one idea: a writer that takes a group as soon as the disk is free splits those who wait for
//! each commit into two halves, one on the disk and one that gathers, and syncs twice as often
//! as it would have to. Whoever was released comes back soon, so the next group is held until as
//! many runs have come as are outstanding, for a bounded time. (PostgreSQL's `commit_delay` waits for the
//! same reason, a fixed time.)

use std::time::Duration;

use crate::GROUP_WAIT_MAX;
use crate::gather::Gather;

/// For how many runs the next group waits, and until when.
#[derive(Debug, Default)]
pub(super) struct Awaiting {
    wait: Duration,
    runs: u32,
    until: Option<Duration>,
}

impl Awaiting {
    /// A group of so many runs is about to be written.
    pub(super) fn took(&mut self, runs: u32) {
        self.runs = runs;
    }

    /// That group is committed: its senders may come back, beside those that have come meanwhile.
    pub(super) fn begin(&mut self, gather: &Gather, wait: Duration) {
        let runs = self.runs.saturating_add(gather.group.runs);
        *self = Awaiting {
            wait: wait.min(GROUP_WAIT_MAX),
            runs: if wait.is_zero() { 0 } else { runs },
            until: None,
        };
    }

    /// Whether what has gathered is not to be taken yet.
    pub(super) fn holds(&mut self, gather: &mut Gather, now: Duration) -> bool {
        gather.awaited = self.runs;
        // The wait begins when it is first asked about: a step is told the time at its start,
        // and the sync was in it.
        let until = *self.until.get_or_insert(now + self.wait);
        if gather.is_awaited() && now < until {
            return true;
        }
        gather.awaited = 0;
        *self = Awaiting::default();
        false
    }

    /// When the wait is over.
    pub(super) fn due(&self) -> Option<Duration> {
        self.until.filter(|_| self.runs > 0)
    }
}
