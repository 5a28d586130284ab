//! Waiting a little with the next group, so that more share it.
//!
//! The one idea: a group is worth more when others have come to it, and a bounded wait harms little
//! in two cases. With [`Policy::Sync`](crate::Policy::Sync), a writer that takes a group as soon as
//! the disk is free splits the callers that wait for each commit into two halves, one on the disk
//! and one that gathers, and syncs twice as often as it would have to. Released callers come back
//! soon, so the next group is held until as many runs have come as are outstanding. (PostgreSQL's
//! `commit_delay` waits for the same reason, a fixed time.) With
//! [`Policy::Interval`](crate::Policy::Interval) no caller waits for a write, and each costs a
//! wake-up and a call: it is held until it is large.

use std::time::Duration;

use crate::GROUP_WAIT_MAX;
use crate::gather::{Gather, Worth};

/// The longest that a group is held with [`Policy::Interval`](crate::Policy::Interval), if a tenth of the interval is not less.
const HOLD_MAX: Duration = Duration::from_millis(10);
/// Bytes of a group that is worth a write: what stays in a processor's cache on its way to the disk.
const WORTH_A_WRITE: usize = 256 << 10;

/// The event for which the next group waits, and until when.
#[derive(Debug, Default)]
pub(super) struct Awaiting {
    wait: Duration,
    worth: Worth,
    /// Runs of the group in hand.
    runs: u32,
    until: Option<Duration>,
}

impl Awaiting {
    /// A group of so many runs is about to be written.
    pub(super) fn took(&mut self, runs: u32) {
        self.runs = runs;
    }

    /// The group is committed: its senders may come back, in addition to those that have come
    /// meanwhile.
    pub(super) fn begin(&mut self, gather: &Gather, wait: Duration) {
        let runs = self.runs.saturating_add(gather.group.runs);
        *self = Awaiting {
            wait: wait.min(GROUP_WAIT_MAX),
            worth: match wait.is_zero() {
                true => Worth::default(),
                false => Worth::Runs(runs),
            },
            ..Awaiting::default()
        };
    }

    /// That group is written, and will be synced when the interval is over.
    pub(super) fn begin_large(&mut self, interval: Duration) {
        *self = Awaiting {
            wait: hold_of(interval),
            worth: Worth::Bytes(WORTH_A_WRITE),
            ..Awaiting::default()
        };
    }

    /// Whether the gathered records are not to be taken yet.
    pub(super) fn holds(&mut self, gather: &mut Gather, now: Duration) -> bool {
        if gather.group.is_empty() && matches!(self.worth, Worth::Bytes(_)) {
            // The wait begins with the first run, which wakes the writer.
            return false;
        }
        gather.awaited = self.worth;
        // The wait begins at the first question: a step is told the time at its start, and the sync
        // lay within the step.
        let until = *self.until.get_or_insert(now + self.wait);
        if gather.is_awaited() && now < until {
            return true;
        }
        gather.awaited = Worth::default();
        *self = Awaiting::default();
        false
    }

    /// When the wait is over.
    pub(super) fn due(&self) -> Option<Duration> {
        self.until.filter(|_| self.worth != Worth::default())
    }
}

/// How long a group is held, in a log that is synced at this interval.
pub(super) fn hold_of(interval: Duration) -> Duration {
    (interval / 10).min(HOLD_MAX)
}
