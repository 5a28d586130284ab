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
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use super::image::put_library;
use super::view::View;
use crate::commands::Error;

/// Bytes of all libraries together, at most.
const BYTES_MAX: usize = 64 << 20;
/// Bytes that one takes beside its name and text, about.
const EACH: usize = 256;

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
    fn bytes(&self) -> usize {
        self.name.len() + self.code.len() + EACH
    }
}

/// By their names.
type ByName = BTreeMap<Arc<[u8]>, Library>;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    state: Mutex<State>,
    /// How often they were changed: also the number of the next.
    changes: AtomicU64,
    /// The number of the change that all clients see.
    committed: AtomicU64,
    /// Ticket of the last unit that has changed them.
    ticket: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    all: Arc<ByName>,
    /// What all other clients see while a unit that changes them is not committed.
    before: Option<Arc<ByName>>,
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
    fn state(&self) -> MutexGuard<'_, State> {
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
    fn keep_before(&self) {
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
    fn put(&self, name: &[u8], code: &[u8]) -> Result<(), Error> {
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

impl Store {
    /// The libraries of functions that are committed, in the order of their names.
    #[must_use]
    pub fn libraries(&self) -> Vec<Library> {
        self.libraries_as(Seen::Committed)
    }

    /// The libraries as a client sees them.
    pub(crate) fn libraries_as(&self, seen: Seen) -> Vec<Library> {
        let state = self.libraries.state();
        let all = match (&state.before, seen) {
            (Some(before), Seen::Committed) => before,
            _ => &state.all,
        };
        all.values().cloned().collect()
    }

    /// Bytes of memory that they take, including libraries that a unit under way is about to
    /// replace.
    pub(crate) fn library_bytes(&self) -> usize {
        let state = self.libraries.state();
        let newest = state.all.values().map(Library::bytes).sum::<usize>();
        let before = state
            .before
            .as_ref()
            .filter(|before| !Arc::ptr_eq(before, &state.all));
        newest + before.map_or(0, |before| before.values().map(Library::bytes).sum())
    }

    /// How often they were changed.
    pub(crate) fn library_changes(&self, seen: Seen) -> u64 {
        match seen {
            Seen::Committed => self.libraries.committed.load(Acquire),
            Seen::Newest => self.libraries.changes.load(Relaxed),
        }
    }

    /// What a client that has looked at the committed ones has to wait for: the unit that has
    /// changed them last.
    pub(crate) fn library_ticket(&self) -> u64 {
        self.libraries.ticket.load(Relaxed)
    }
}

impl View<'_, '_> {
    /// Puts a library in, in the place of what has its name. The locks of all shards are held.
    ///
    /// # Errors
    /// There are too many, and nothing has changed.
    pub(crate) fn put_library(&mut self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        self.libraries().put(name, code)?;
        self.libraries_changed();
        Ok(())
    }

    /// Removes a library; false if there is none. The locks of all shards are held.
    pub(crate) fn remove_library(&mut self, name: &[u8]) -> bool {
        let libraries = self.libraries();
        let mut state = libraries.state();
        let removed = state.all.contains_key(name);
        if removed {
            Arc::make_mut(&mut state.all).remove(name);
            drop(state);
            self.libraries_changed();
        }
        removed
    }

    /// Removes all libraries. The locks of all shards are held.
    pub(crate) fn clear_libraries(&mut self) {
        self.libraries().state().all = Arc::default();
        self.libraries_changed();
    }

    /// The libraries of the store, to be changed.
    fn libraries(&self) -> &Libraries {
        let store = self.guards.store();
        if store.effects().is_some() {
            store.libraries.keep_before();
        }
        &store.libraries
    }

    fn libraries_changed(&mut self) {
        let libraries = &self.guards.store().libraries;
        libraries.changes.fetch_add(1, Relaxed);
        if !self.guards.libraries_changed() {
            libraries.commit(0);
        }
        self.changes += 1;
    }
}
