//! Whether this server owns the store, and may say so.

use super::shared::Shared;
use super::table::{Entry, What};
use crate::commands::Error;

/// Whether this server only shows what others write, or have written, or may have by now.
pub(super) fn is_slave(shared: &Shared) -> bool {
    let durable = shared.durable.get();
    durable.is_some_and(|durable| {
        let log = &durable.log;
        log.follows() || log.lost().is_some() || !log.may_serve()
    })
}

/// Why a command is not run by a server that cannot prove that the store is its own; `None` if it may be. The words that clients of
/// Redis know for a replica that serves nothing old.
pub(super) fn unproven(shared: &Shared, entry: &Entry) -> Option<Error> {
    let log = &shared.durable.get()?.log;
    let is_write = matches!(entry.what, What::Data(spec) if spec.is_write());
    match log.lost() {
        // The store refuses it, in the words for a change.
        Some(_) if is_write => None,
        Some(_) if needs_proof(entry) => Some(Error::new(
            "MASTERDOWN another server has taken this store over, and what is here may be old: ask that one",
        )),
        None if needs_proof(entry) => Some(Error::new(
            "MASTERDOWN this server has not reached the home of its store for too long to prove that it is still the owner: \
             see home_lease in INFO replication",
        )),
        _ => None,
    }
}

fn needs_proof(entry: &Entry) -> bool {
    entry.needs_keys() || entry.name == "exec"
}
