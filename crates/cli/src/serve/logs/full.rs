//! Saying that something is full, the disk of the log or streams at their limits: at once, then once a
//! minute with how often, and when it is over.

use std::time::{Duration, Instant};

/// How often a full log is reported again.
const REPEATED: Duration = Duration::from_secs(60);
/// After so long without a refusal, there is room again, or no client asks for any.
const OVER: Duration = Duration::from_secs(10);

/// The state that was last reported.
#[derive(Debug)]
pub(crate) struct Full {
    what: What,
    /// Refusals seen, and told.
    seen: u64,
    told: u64,
    /// Times of the last report and of the last refusal; `None` while nothing is full.
    full: Option<(Instant, Instant)>,
}

/// The limit that is reached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    /// The disk of the log.
    Disk,
    /// Streams that have as many bytes as they may have.
    Streams,
}

/// The news about a full log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    None,
    /// The disk is full, and so many more refusals were given since that was logged.
    Full(u64),
    Over,
}

impl Full {
    pub(crate) fn new(what: What) -> Full {
        Full {
            what,
            seen: 0,
            told: 0,
            full: None,
        }
    }

    /// Logs the news about `refused`, the number of all refusals so far.
    pub(crate) fn look(&mut self, refused: u64) {
        match (self.news(refused, Instant::now()), self.what) {
            (News::None, _) => {}
            (News::Full(refusals), What::Disk) => tracing::warn!(
                refusals,
                "the disk of the durable log is full: producers are refused and wait, and so are changes of keys; make room, \
                 or let the log of messages take less with --retain-bytes"
            ),
            (News::Full(refusals), What::Streams) => tracing::warn!(
                refusals,
                "a stream has reached its limit of bytes: its producers are refused and wait; \
                 `tidewire stream list` shows the stream, `tidewire stream set` changes its \
                 limit or its retention"
            ),
            (News::Over, What::Disk) => {
                tracing::info!("the disk has room again: the log accepts all messages again");
            }
            (News::Over, What::Streams) => {
                tracing::info!("no producer is refused for a full stream any more");
            }
        }
    }

    fn news(&mut self, refused: u64, now: Instant) -> News {
        let more = refused > self.seen;
        self.seen = refused;
        match &mut self.full {
            None if !more => return News::None,
            None => self.full = Some((now, now)),
            Some((told, last)) => {
                if more {
                    *last = now;
                } else if now.duration_since(*last) >= OVER {
                    self.full = None;
                    return News::Over;
                }
                if refused == self.told || now.duration_since(*told) < REPEATED {
                    return News::None;
                }
                *told = now;
            }
        }
        let refusals = refused - std::mem::replace(&mut self.told, refused);
        News::Full(refusals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_then_counted() {
        let began = Instant::now();
        let mut full = Full::new(What::Disk);
        let mut at = |secs: u64, refused| full.news(refused, began + Duration::from_secs(secs));
        assert_eq!(at(0, 0), News::None);
        assert_eq!(at(1, 3), News::Full(3));
        assert_eq!(at(2, 9), News::None);
        assert_eq!(at(60, 60), News::None);
        assert_eq!(at(61, 70), News::Full(67));
        assert_eq!(at(69, 71), News::None);
        assert_eq!(at(78, 71), News::None);
        assert_eq!(at(79, 71), News::Over);
        assert_eq!(at(80, 71), News::None);
        assert_eq!(at(81, 72), News::Full(2));
    }
}
