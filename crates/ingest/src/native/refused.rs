//! Log lines about refused clients: address, reason and the name of the token. A server logs each reason once in ten seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{ConnId, Instant, Throttle};

use super::codec::Reason;

/// Least time between two lines of one reason.
const PERIOD: Duration = Duration::from_secs(10);

/// When each reason may be logged again. All loops share it: on the threads engine each connection has a loop of its own.
#[derive(Debug)]
pub(super) struct Lines(Vec<(Reason, Throttle)>);

impl Default for Lines {
    fn default() -> Lines {
        let reasons = Reason::ALL.iter().filter(|reason| is_trouble(**reason));
        Lines(
            reasons
                .map(|reason| (*reason, Throttle::new(PERIOD)))
                .collect(),
        )
    }
}

/// Refusals that one loop counts for its log lines.
#[derive(Debug)]
pub(super) struct Refused {
    lines: Arc<Lines>,
    /// The names of the tokens that connections have shown.
    tokens: BTreeMap<ConnId, Arc<str>>,
}

impl Refused {
    pub(super) fn new(lines: Arc<Lines>) -> Refused {
        Refused {
            lines,
            tokens: BTreeMap::new(),
        }
    }

    /// A connection is let in, with the token of this name.
    pub(super) fn let_in(&mut self, conn: ConnId, token: Arc<str>) {
        self.tokens.insert(conn, token);
    }

    pub(super) fn closed(&mut self, conn: ConnId) {
        self.tokens.remove(&conn);
    }

    /// The name of the token that a connection has shown; empty where none is asked for.
    pub(super) fn token(&self, conn: ConnId) -> &str {
        self.tokens.get(&conn).map_or("", |name| name)
    }

    /// Whether a refusal is logged `now`, and how many of its reason were not since the last one.
    pub(super) fn pass(&self, reason: Reason, now: Instant) -> Option<u64> {
        let mut lines = self.lines.0.iter();
        let (_, throttle) = lines.find(|(known, _)| *known == reason)?;
        throttle.pass(now)
    }
}

/// A refusal that belongs to a client's ordinary life is not logged: another session took its place, another server has its
/// partition, the server stops.
fn is_trouble(reason: Reason) -> bool {
    !matches!(reason, Reason::Fenced | Reason::Moved | Reason::Stopping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_logged_once_whatever_loop_refuses() {
        let lines = Arc::new(Lines::default());
        let loops = [(); 3].map(|()| Refused::new(lines.clone()));
        let begin = Instant::default();
        assert_eq!(loops[0].pass(Reason::Unauthorised, begin), Some(0));
        assert_eq!(loops[1].pass(Reason::Unauthorised, begin), None);
        assert_eq!(loops[1].pass(Reason::Malformed, begin), Some(0));
        assert_eq!(loops[2].pass(Reason::Unauthorised, begin + PERIOD), Some(1));
        assert_eq!(loops[2].pass(Reason::Fenced, begin), None);
    }
}
