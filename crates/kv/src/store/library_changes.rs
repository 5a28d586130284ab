//! How libraries of functions change, and who sees which.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::Store;
use super::libraries::{Changed, Libraries, Library, Seen};
use super::view::View;
use crate::commands::Error;

impl Store {
    /// The libraries of functions that are committed, in the order of their names.
    #[must_use]
    pub fn libraries(&self) -> Vec<Library> {
        self.libraries_as(Seen::Committed)
    }

    /// The libraries as a client sees them.
    pub(crate) fn libraries_as(&self, seen: Seen) -> Vec<Library> {
        self.libraries.state().all(seen)
    }

    /// The present entries of the names that have changed since change number `changes`; `None` if these changes are not
    /// known any more.
    pub(crate) fn libraries_since(&self, seen: Seen, changes: u64) -> Option<Vec<Changed>> {
        self.libraries.state().changed(seen, changes)
    }

    /// The libraries that these changes have replaced or removed; `None` if they are not known any
    /// more.
    pub(crate) fn libraries_gone(&self, changes: Range<u64>) -> Option<Vec<u64>> {
        self.libraries.state().gone(changes)
    }

    /// Bytes of memory that libraries take, including libraries that a unit under way is about to
    /// replace.
    pub(crate) fn library_bytes(&self) -> usize {
        self.libraries.state().bytes()
    }

    /// How many times the libraries were changed.
    pub(crate) fn library_changes(&self, seen: Seen) -> u64 {
        match seen {
            Seen::Committed => self.libraries.committed.load(Acquire),
            Seen::Newest => self.libraries.changes.load(Relaxed),
        }
    }

    /// The ticket of the last unit that changed libraries: a client that has looked at the
    /// committed libraries waits for it.
    pub(crate) fn library_ticket(&self) -> u64 {
        self.libraries.ticket.load(Relaxed)
    }
}

impl View<'_, '_> {
    /// Puts a library in, in the place of a library of the same name. The locks of all shards are
    /// held.
    ///
    /// # Errors
    /// The error that there are too many libraries; none has changed.
    pub(crate) fn put_library(&mut self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        self.libraries().put(name, code)?;
        self.libraries_changed();
        Ok(())
    }

    /// Removes a library; false if there is none. The locks of all shards are held.
    pub(crate) fn remove_library(&mut self, name: &[u8]) -> bool {
        let libraries = self.libraries();
        let mut state = libraries.state();
        let removed = state.has(name);
        if removed {
            state.change(libraries.changes.load(Relaxed), name.into(), None);
            drop(state);
            self.libraries_changed();
        }
        removed
    }

    /// Removes all libraries. The locks of all shards are held.
    pub(crate) fn clear_libraries(&mut self) {
        let libraries = self.libraries();
        let number = libraries.changes.load(Relaxed);
        libraries.state().clear(number);
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
