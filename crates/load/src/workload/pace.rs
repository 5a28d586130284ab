//! Sending by the clock, however long replies take.

use std::time::Duration;

use tidewire::Instant;

/// When the messages of one connection are to be sent.
pub(super) struct Pace {
    every: Duration,
    /// From the begin of the load, so that connections take turns.
    offset: Duration,
    next: Option<Instant>,
}

impl Pace {
    /// `rate` messages a second over all connections, of which this is number `connection`.
    pub(super) fn new(rate: f64, connection: u64, connections: usize) -> Pace {
        let seconds = connections as f64 / rate;
        let every = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Pace {
            every,
            offset: every.mul_f64(connection as f64 / connections as f64),
            next: None,
        }
    }

    /// Tells `send` the times that have come, at most `most`; how many there were.
    pub(super) fn take_due(
        &mut self,
        most: u64,
        now: Instant,
        mut send: impl FnMut(Instant),
    ) -> u64 {
        let next = self.next.get_or_insert(now + self.offset);
        let mut due = 0;
        while due < most && *next <= now {
            send(*next);
            *next = *next + self.every;
            due += 1;
        }
        due
    }

    /// The next time, if it has not come.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.next.filter(|next| *next > now)
    }
}
