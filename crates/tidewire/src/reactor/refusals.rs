//! Refusals are counted each, and logged so that a flood of them does not become one of lines.

use std::time::Duration;

use crate::reactor::throttle::Throttle;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::time::Instant;

/// One line for each reason a second, over all loops.
pub(crate) struct Refusals([Throttle; Refusal::KINDS]);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals([const { Throttle::new(Duration::from_secs(1)) }; Refusal::KINDS])
    }
}

impl Refusals {
    /// Whether this one is logged: how many of its kind were not since the last that was.
    pub(crate) fn pass(&self, why: Refusal, now: Instant) -> Option<u64> {
        self.0[why.kind()].pass(now)
    }
}
