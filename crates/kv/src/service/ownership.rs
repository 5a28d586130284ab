//! Whether this server owns the store, and may say so.

use super::shared::Shared;
use super::table::{Entry, What};
use crate::commands::Error;

/// Whether this server only shows what other servers write, or have written, or may have written by now.
pub(super) fn is_slave(shared: &Shared) -> bool {
    if shared.sentinel.get().is_some() && shared.store.is_loading() {
        // Whether the store is still this server's is not known before the home has said so.
        return true;
    }
    let durable = shared.durable.get();
    durable.is_some_and(|durable| {
        let log = &durable.log;
        log.follows() || log.lost().is_some() || !log.may_serve()
    })
}

/// Whether this server has owned the store, and what its clients were told of it may be old by now.
pub(super) fn is_former_owner(shared: &Shared) -> bool {
    let durable = shared.durable.get();
    is_slave(shared) && durable.is_some_and(|durable| !durable.log.follows())
}

/// Why a server that cannot prove that it owns the store does not run this command; `None` if it may
/// run it.
pub(super) fn unproven(shared: &Shared, entry: &Entry) -> Option<Error> {
    let log = &shared.durable.get()?.log;
    let is_write = matches!(entry.what, What::Data(spec) if spec.is_write());
    if log.follows() {
        return is_write.then(|| owned_elsewhere(shared)).flatten();
    }
    match log.lost() {
        // The store refuses the command, with its error for a change.
        Some(_) if is_write => None,
        lost if needs_proof(entry) => Some(masterdown(lost.is_some())),
        _ => None,
    }
}

/// Whether commands have to be asked about one by one: a server that cannot prove that it owns the store refuses some, and one that
/// follows and knows the owner says where that is.
pub(super) fn is_asked_for(shared: &Shared) -> bool {
    let durable = shared.durable.get();
    durable.is_some_and(|durable| {
        let log = &durable.log;
        !log.may_serve() || (log.follows() && shared.sentinel.get().is_some())
    })
}

/// Why a follower takes no change, where the owner is known; else the store says why.
fn owned_elsewhere(shared: &Shared) -> Option<Error> {
    let owner = shared.sentinel.get()?.other_owner()?;
    Some(Error::text(format!(
        "READONLY this server follows the store of {owner} and takes no changes: ask that one; nothing was changed"
    )))
}

/// Why nothing can be said now of what is in the store; `None` if it can.
pub(super) fn stale(shared: &Shared) -> Option<Error> {
    let log = &shared.durable.get()?.log;
    (!log.may_serve()).then(|| masterdown(log.lost().is_some()))
}

/// The words that clients of Redis know for a replica that serves nothing old.
fn masterdown(is_lost: bool) -> Error {
    Error::new(match is_lost {
        true => {
            "MASTERDOWN another server has taken this store over, and what is here may be old: ask that one"
        }
        false => {
            "MASTERDOWN this server has not reached the home of its store for too long to prove that it is still the owner: \
             see home_lease in INFO replication"
        }
    })
}

fn needs_proof(entry: &Entry) -> bool {
    entry.needs_keys() || entry.name == "exec"
}
