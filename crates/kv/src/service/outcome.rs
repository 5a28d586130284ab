//! How commands end, and how that is counted.

use super::stats::LoopStats;
use super::table::Entry;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command's reply is written.
    Done,
    /// The command has done nothing yet and is to be tried again.
    Later,
    /// The command waits for a key; the commands behind it wait too.
    Waits,
}

/// Counts an error reply by its first word.
#[cold]
pub(crate) fn count_error(line: &[u8], stats: &LoopStats) {
    stats.errors.add(1);
    let word = line[1..].split(|b| b.is_ascii_whitespace()).next();
    stats.error(word.unwrap_or_default());
}

/// Counts a command of a transaction or a script and how it ended.
pub(crate) fn count_as_called(entry: &Entry, reply: &[u8], stats: &LoopStats) {
    stats.commands.add(1);
    stats.command(entry.id).calls.add(1);
    if reply.first() == Some(&b'-') {
        stats.command(entry.id).failed.add(1);
        count_error(reply, stats);
    }
}
