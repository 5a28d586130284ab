//! Named cursors of readers, on their way home.
//!
//! The one idea: a cursor is useful only with the records before it, so in the home a cursor never stands behind the
//! last record. A cursor that is ahead in the log stands at that end meanwhile, and moves with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidewire_log::{Log, Ticket};

use crate::home::{Cursors, Moves};

/// How many go with one transaction, at most. The log bounds how many there are.
const AT_ONCE: usize = 1000;
/// How many the log is asked for at once.
const PIECE: usize = 1000;
/// The first character of cursors that are the server's own, which stay.
const OWN: char = '@';

/// The cursors in the home, and the ones that must be sent.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    home: Cursors,
    /// Positions of cursors in the log, where they differ from the home; `None` for removed
    /// cursors.
    pending: Moves,
    /// The commit at the last look into the log.
    seen: Option<Ticket>,
    /// Whether more records are in the home since the last look.
    is_stale: bool,
    /// When the log is looked at again, at the earliest.
    due: Duration,
}

impl Sending {
    /// Home is opened, and holds these.
    pub(crate) fn begin(&mut self, held: &Cursors) {
        self.home.clone_from(held);
        self.pending.clear();
        self.is_stale = true;
    }

    /// Looks at the log, if that is due; whether there is anything to send now. `ends` is up to where streams are at home.
    pub(crate) fn look(
        &mut self,
        now: Duration,
        every: Duration,
        log: &dyn Log,
        ends: &BTreeMap<Arc<str>, u64>,
    ) -> bool {
        self.due = now + every;
        // The ticket is read first: the cursors may be newer than the ticket, never older.
        self.seen = Some(log.progress().committed);
        self.is_stale = false;
        let mut standing = Cursors::new();
        for stream in log.streams("", usize::MAX) {
            // A stream that is not at home has no position to begin from.
            let is_home = ends.get(&stream.name).is_some_and(|&end| end > 0);
            if is_home && log.comes_home(&stream.name) {
                add_readers(log, &stream.name, &mut standing);
            }
        }
        self.pending.clear();
        for (of, &position) in &standing {
            let end = ends.get(&of.0).copied().unwrap_or(0);
            if self.home.get(of) != Some(&position.min(end)) {
                self.pending.insert(of.clone(), Some(position));
            }
        }
        let gone = self.home.keys();
        let gone = gone.filter(|of| !standing.contains_key(*of) && log.comes_home(&of.0));
        self.pending.extend(gone.map(|of| (of.clone(), None)));
        self.are_pending()
    }

    /// When the log is to be looked at; `None` while nothing can have changed.
    pub(crate) fn due(&self, log: &dyn Log) -> Option<Duration> {
        let is_seen = self.seen == Some(log.progress().committed);
        (self.is_stale || !is_seen).then_some(self.due)
    }

    pub(crate) fn are_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The cursors to send with a transaction after which the streams' records are in the home up
    /// to `end`.
    pub(crate) fn take(&mut self, end: impl Fn(&str) -> u64) -> Moves {
        // Removed cursors make room for other cursors.
        let (gone, others): (Vec<_>, Vec<_>) =
            (self.pending.iter()).partition(|(_, position)| position.is_none());
        let all = gone.into_iter().chain(others);
        let moves = all.take(AT_ONCE).map(|(of, position)| {
            let position = position.map(|position| position.min(end(&of.0)));
            (of.clone(), position)
        });
        let moves: Moves = moves.collect();
        self.pending.retain(|of, _| !moves.contains_key(of));
        moves
    }

    /// A transaction is committed, with these. Whether it `extends` what is at home.
    pub(crate) fn arrived(&mut self, moves: Moves, extends: bool) {
        self.is_stale |= extends;
        for (of, position) in moves {
            match position {
                Some(position) => self.home.insert(of, position),
                None => self.home.remove(&of),
            };
        }
    }
}

/// The cursors of a stream that are readers'.
fn add_readers(log: &dyn Log, stream: &str, to: &mut Cursors) {
    let mut after: Arc<str> = "".into();
    loop {
        let piece = log.cursors(stream, &after, PIECE);
        let Some(last) = piece.last() else { return };
        after = last.name.clone();
        for cursor in piece.into_iter().filter(|it| !it.name.starts_with(OWN)) {
            to.insert((cursor.stream, cursor.name), cursor.position);
        }
    }
}
