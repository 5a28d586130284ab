//! How long connections wait for their share of a loop's turns. One waiting connection at a time is timed, so
//! that waiting costs the many others nothing.

use std::time::Duration;

use crate::reactor::throttle::Throttle;
use crate::vocabulary::time::Instant;

/// A wait that an operator should know of.
const LONG: Duration = Duration::from_secs(1);
/// Between two lines about that.
const TELL_EVERY: Duration = Duration::from_secs(10);

/// The waits of one queue.
pub(crate) struct Queueing {
    /// The connection that is timed, and from when on.
    timed: Option<(u32, Instant)>,
    lines: Throttle,
}

impl Default for Queueing {
    fn default() -> Queueing {
        Queueing {
            timed: None,
            lines: Throttle::new(TELL_EVERY),
        }
    }
}

impl Queueing {
    /// A turn ends, and this connection was the last to join the waiting ones.
    pub(crate) fn goes_on(&mut self, last: u32, now: Instant) {
        self.timed.get_or_insert((last, now));
    }

    /// The turn of connection `index` has come, if it is still open: returns how long it has waited, if it is the
    /// connection that is timed.
    pub(crate) fn served(&mut self, index: u32, now: Instant) -> Option<Duration> {
        let timed = self.timed.take_if(|(timed, _)| *timed == index);
        timed.map(|(_, since)| now.since(since))
    }

    /// Logs a long wait, unless one was logged just before; `limit` is the limit's name in the
    /// metrics.
    pub(crate) fn tell(&self, limit: &str, waited: Option<Duration>, now: Instant) {
        if let Some(waited) = waited
            && waited >= LONG
            && let Some(held_back) = self.lines.pass(now)
        {
            let seconds = waited.as_secs_f64();
            tracing::warn!(limit, seconds, held_back, "output delayed by fair queueing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::lines_of_tests::logged;

    #[test]
    fn one_is_timed_until_its_turn_has_come() {
        let mut queueing = Queueing::default();
        let at = |ms: u64| Instant::from_nanos(1) + Duration::from_millis(ms);
        assert_eq!(queueing.served(1, at(0)), None);
        queueing.goes_on(1, at(0));
        queueing.goes_on(2, at(1));
        assert_eq!(queueing.served(2, at(5)), None);
        assert_eq!(queueing.served(1, at(7)), Some(Duration::from_millis(7)));
        assert_eq!(queueing.served(1, at(8)), None, "it is timed once");
        queueing.goes_on(2, at(9));
        assert_eq!(queueing.served(2, at(9)), Some(Duration::ZERO));
    }

    #[test]
    fn a_long_wait_is_told_and_then_not_for_a_while() {
        let queueing = Queueing::default();
        let second = Duration::from_secs(1);
        let told = logged(|| {
            for (at, waited) in [
                (1, second / 2),
                (2, second),
                (3, second),
                (11, second),
                (12, 2 * second),
            ] {
                let now = Instant::default() + at * second;
                queueing.tell("turn", None, now);
                queueing.tell("turn", Some(waited), now);
            }
        });
        let line = |seconds, held_back| {
            format!(
                "WARN message=output delayed by fair queueing \
                 limit=\"turn\" seconds={seconds} held_back={held_back}"
            )
        };
        assert_eq!(told, [line("1.0", 0), line("2.0", 2)]);
    }
}
