//! Log lines about refused clients: address, reason and the name of the token. Each loop logs a reason once in ten seconds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{ConnId, Instant, Throttle};

use super::codec::Reason;

/// Least time between two lines of one reason on one loop.
const PERIOD: Duration = Duration::from_secs(10);

/// What one loop keeps for these lines.
#[derive(Debug, Default)]
pub(super) struct Refused {
    lines: Vec<(Reason, Throttle)>,
    /// The names of the tokens that connections have shown.
    tokens: BTreeMap<ConnId, Arc<str>>,
}

impl Refused {
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

    /// Whether a refusal is logged `now`, and how many of its kind were not since the last one.
    pub(super) fn pass(&mut self, reason: Reason, now: Instant) -> Option<u64> {
        if !is_trouble(reason) {
            return None;
        }
        let at = match self.lines.iter().position(|(known, _)| *known == reason) {
            Some(at) => at,
            None => {
                self.lines.push((reason, Throttle::new(PERIOD)));
                self.lines.len() - 1
            }
        };
        self.lines[at].1.pass(now)
    }
}

/// What belongs to a client's ordinary life is not logged: another session took its place, another server has its partition, the server stops.
fn is_trouble(reason: Reason) -> bool {
    !matches!(reason, Reason::Fenced | Reason::Moved | Reason::Stopping)
}
