//! Events that are counted each time, and logged rarely, so that a flood of events does not flood
//! the log.

use std::time::Duration;

use crate::reactor::throttle::Throttle;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::time::Instant;

/// One log line a second for each reason, over all loops, because the threads engine has one loop for each
/// connection.
pub(crate) struct Throttles {
    refusals: [Throttle; Refusal::KINDS],
    ends: [Throttle; Closed::KINDS],
    /// Lines about connections cut with output queued, whatever the reason.
    pub(crate) cuts: Throttle,
    /// Lines about messages that found no room.
    pub(crate) messages: Throttle,
    /// Lines about sends that found no room in a channel.
    pub(crate) channels: Throttle,
    /// Lines about connections that found no receive buffer.
    pub(crate) buffers: Throttle,
    /// Lines about dials that found no room.
    pub(crate) dials: Throttle,
    /// Lines about names that were not looked up.
    pub(crate) lookups: Throttle,
    /// Lines about attempts to connect that failed.
    pub(crate) attempts: Throttle,
}

const fn a_second() -> Throttle {
    Throttle::new(Duration::from_secs(1))
}

impl Default for Throttles {
    fn default() -> Throttles {
        Throttles {
            refusals: [const { a_second() }; Refusal::KINDS],
            ends: [const { a_second() }; Closed::KINDS],
            cuts: a_second(),
            messages: a_second(),
            channels: a_second(),
            attempts: a_second(),
            buffers: a_second(),
            dials: a_second(),
        }
    }
}

impl Throttles {
    /// Whether this refusal is logged: how many of its kind were not since the last that was.
    pub(crate) fn refused(&self, why: Refusal, now: Instant) -> Option<u64> {
        self.refusals[why.kind()].pass(now)
    }

    /// Whether to log a connection that has ended badly.
    pub(crate) fn ended(&self, why: Closed, now: Instant) -> Option<u64> {
        self.ends[why.kind()].pass(now)
    }
}
