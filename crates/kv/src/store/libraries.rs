//! The libraries of functions: their texts, which are part of the data. The script engine gives
//! their content a meaning.
//!
//! Libraries are changed by a command under the locks of all shards, as FLUSHALL is, so they have a
//! place in the order of the log and in a snapshot. A command that only looks takes no lock of a
//! shard. So with a log there are two states while a unit is under way: what that unit has made of
//! them, for itself, and what was committed before, for all other clients.

use std::collections::BTreeMap;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::image::put_library;
use crate::commands::Error;

/// Bytes of all libraries together, at most.
pub(super) const BYTES_MAX: usize = 64 << 20;
/// Bytes that one takes beside its name and text, about.
pub(super) const EACH: usize = 256;

/// A library.
#[derive(Clone, Debug)]
pub struct Library {
    /// No other text has the same, as long as the process lives.
    pub id: u64,
    /// Name of the library.
    pub name: Arc<[u8]>,
    /// Text of the library, with the first line.
    pub code: Arc<[u8]>,
}

impl Library {
    pub(super) fn bytes(&self) -> usize {
        self.name.len() + self.code.len() + EACH
    }
}

/// By their names.
type ByName = BTreeMap<Arc<[u8]>, Library>;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    pub(super) state: Mutex<State>,
    /// How often they were changed: also the number of the next.
    pub(super) changes: AtomicU64,
    /// The number of the change that all clients see.
    pub(super) committed: AtomicU64,
    /// Ticket of the last unit that has changed them.
    pub(super) ticket: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) all: Arc<ByName>,
    /// What all other clients see while a unit that changes them is not committed.
    pub(super) before: Option<Arc<ByName>>,
}

/// A view of the libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// What is committed, for all clients.
    Committed,
    /// What the unit sees that is changing them.
    Newest,
}

impl Libraries {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one in, in the place of what has its name, for all to see.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn load(&self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        self.put(name, code)?;
        self.commit(0);
        Ok(())
    }

    /// A unit may be about to change them, of which no other client is to see anything.
    pub(super) fn keep_before(&self) {
        let state = &mut *self.state();
        state.before.get_or_insert_with(|| state.all.clone());
    }

    /// What was changed is committed, with this ticket.
    pub(super) fn commit(&self, ticket: u64) {
        let mut state = self.state();
        // A reader that sees the change, in the state or by its number, finds this ticket.
        self.ticket.store(ticket, Relaxed);
        self.committed.store(self.changes.load(Relaxed), Release);
        state.before = None;
    }

    /// # Errors
    /// There are too many.
    pub(super) fn put(&self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        let mut state = self.state();
        let all = &state.all;
        let library = Library {
            id: self.changes.fetch_add(1, Relaxed),
            name: name.into(),
            code: code.into(),
        };
        let others = all.values().filter(|other| *other.name != *name);
        let bytes = others.map(Library::bytes).sum::<usize>() + library.bytes();
        if bytes > BYTES_MAX {
            return Err(Error::new(
                "ERR the libraries of functions would take more than 64 MiB",
            ));
        }
        Arc::make_mut(&mut state.all).insert(library.name.clone(), library);
        Ok(())
    }

    /// Writes their items.
    pub(super) fn put_items(&self, to: &mut Vec<u8>) {
        for library in self.state().all.values() {
            put_library(&library.name, &library.code, to);
        }
    }
}
