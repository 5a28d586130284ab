//! Saying why the log takes nothing though its disk is not full: at once, then once a minute for how long,
//! and when it is over.

use std::time::{Duration, Instant};

/// How often a reason that stays is told.
const REPEATED: Duration = Duration::from_secs(60);

/// The state that was last reported.
#[derive(Debug, Default)]
pub(crate) struct Blocked(Option<Told>);

#[derive(Debug)]
struct Told {
    why: String,
    since: Instant,
    told: Instant,
}

/// The news about a blocked log, and how long the log has been blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    None,
    Blocked(Duration),
    Over(Duration),
}

impl Blocked {
    /// Logs a new reason why the log is blocked, if there is one.
    pub(crate) fn look(&mut self, why: Option<&str>) {
        match self.news(why, Instant::now()) {
            News::None => {}
            News::Blocked(since) => tracing::warn!(
                reason = why,
                seconds = since.as_secs(),
                "the durable log accepts no messages for now: producers wait; the server retries by itself"
            ),
            News::Over(since) => tracing::info!(
                seconds = since.as_secs(),
                "the durable log takes messages again"
            ),
        }
    }

    fn news(&mut self, why: Option<&str>, now: Instant) -> News {
        match (&mut self.0, why) {
            (None, None) => News::None,
            (Some(told), None) => {
                let since = now - told.since;
                self.0 = None;
                News::Over(since)
            }
            (Some(told), Some(why)) => {
                if told.why == why && now - told.told < REPEATED {
                    return News::None;
                }
                why.clone_into(&mut told.why);
                told.told = now;
                News::Blocked(now - told.since)
            }
            (None, Some(why)) => {
                self.0 = Some(Told {
                    why: why.to_owned(),
                    since: now,
                    told: now,
                });
                News::Blocked(Duration::ZERO)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_then_once_a_minute_and_when_it_is_over() {
        let began = Instant::now();
        let mut blocked = Blocked::default();
        let secs = Duration::from_secs;
        let mut at = |after: u64, why| blocked.news(why, began + secs(after));
        assert_eq!(at(0, None), News::None);
        assert_eq!(at(1, Some("a")), News::Blocked(secs(0)));
        assert_eq!(at(2, Some("a")), News::None);
        assert_eq!(at(3, Some("b")), News::Blocked(secs(2)));
        assert_eq!(at(62, Some("b")), News::None);
        assert_eq!(at(63, Some("b")), News::Blocked(secs(62)));
        assert_eq!(at(70, None), News::Over(secs(69)));
        assert_eq!(at(71, None), News::None);
        assert_eq!(at(72, Some("b")), News::Blocked(secs(0)));
    }
}
