//! The libraries of functions: their texts, which are part of the data. What is in them is for who runs them.
//!
//! They are changed by a command under the locks of all shards, as FLUSHALL is, so they have a place in the order of
//! the log and in a snapshot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
    /// Its name.
    pub name: Arc<[u8]>,
    /// Its text, with the first line.
    pub code: Arc<[u8]>,
}

impl Library {
    fn bytes(&self) -> usize {
        self.name.len() + self.code.len() + EACH
    }
}

/// All of them, by their names.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    all: Mutex<BTreeMap<Arc<[u8]>, Library>>,
    /// How often they were changed: also the number of the next.
    changes: AtomicU64,
}

impl Libraries {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Arc<[u8]>, Library>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one in, in the place of what has its name.
    ///
    /// # Errors
    /// There are too many.
    pub(crate) fn put(&self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        let mut all = self.all();
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
        all.insert(library.name.clone(), library);
        Ok(())
    }

    /// Writes their items.
    pub(super) fn put_items(&self, to: &mut Vec<u8>) {
        for library in self.all().values() {
            put_library(&library.name, &library.code, to);
        }
    }
}

impl Store {
    /// The libraries of functions, in the order of their names.
    #[must_use]
    pub fn libraries(&self) -> Vec<Library> {
        self.libraries.all().values().cloned().collect()
    }

    /// How often they were changed.
    pub(crate) fn library_changes(&self) -> u64 {
        self.libraries.changes.load(Relaxed)
    }
}

impl View<'_, '_> {
    /// Puts a library in, in the place of what has its name. The locks of all shards are held.
    ///
    /// # Errors
    /// There are too many, and nothing has changed.
    pub(crate) fn put_library(&mut self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        self.guards.store().libraries.put(name, code)?;
        self.libraries_changed();
        Ok(())
    }

    /// Removes a library; false if there is none. The locks of all shards are held.
    pub(crate) fn remove_library(&mut self, name: &[u8]) -> bool {
        let removed = self.guards.store().libraries.all().remove(name).is_some();
        if removed {
            self.libraries_changed();
        }
        removed
    }

    /// Removes all libraries. The locks of all shards are held.
    pub(crate) fn clear_libraries(&mut self) {
        self.guards.store().libraries.all().clear();
        self.libraries_changed();
    }

    fn libraries_changed(&mut self) {
        self.guards.store().libraries.changes.fetch_add(1, Relaxed);
        // Whoever uses one waits for it to be durable.
        self.guards.touch_all();
        self.changes += 1;
    }
}
