//! The libraries of functions: their texts, which are part of the data. The script engine gives
//! their content a meaning.
//!
//! A command changes libraries under the locks of all shards, as FLUSHALL does, so changes have a
//! place in the order of the log and in a snapshot. A command that only reads libraries takes no
//! lock of a shard. So with a log there are two states while a unit is in progress: the unit itself
//! sees its own changes, and all other clients see the committed libraries.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
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
    /// A number that no other text has while the process lives.
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

/// Libraries by their names.
type ByName = BTreeMap<Arc<[u8]>, Library>;

/// All libraries of functions.
#[derive(Debug, Default)]
pub(crate) struct Libraries {
    pub(super) state: Mutex<State>,
    /// How many times the libraries were changed: also the number of the next library.
    pub(super) changes: AtomicU64,
    /// The number of the change that all clients see.
    pub(super) committed: AtomicU64,
    /// Ticket of the last unit that has changed libraries.
    pub(super) ticket: AtomicU64,
}

/// Changes that are noted: a reader that knows what there was before looks at these alone.
const NOTED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct State {
    all: ByName,
    /// Bytes of memory that the libraries take.
    bytes: usize,
    /// The libraries as all other clients see them while a unit that changed libraries is not
    /// committed.
    before: Option<BTreeMap<Arc<[u8]>, Option<Library>>>,
    noted: VecDeque<Noted>,
    /// All changes from this number on are noted.
    noted_from: u64,
}

/// A library was put in, replaced or removed.
#[derive(Debug)]
struct Noted {
    /// Number of the change.
    number: u64,
    name: Arc<[u8]>,
    /// The library that is not there any more.
    gone: Option<u64>,
}

impl State {
    /// Puts a library in or removes the one of this name, as the change of this number; whether there was one.
    pub(super) fn change(&mut self, number: u64, name: Arc<[u8]>, new: Option<Library>) -> bool {
        self.bytes += new.as_ref().map_or(0, Library::bytes);
        let old = match new {
            Some(new) => self.all.insert(name.clone(), new),
            None => self.all.remove(&name),
        };
        self.bytes -= old.as_ref().map_or(0, Library::bytes);
        let gone = old.as_ref().map(|old| old.id);
        if let Some(before) = &mut self.before {
            before.entry(name.clone()).or_insert(old);
        }
        self.noted.push_back(Noted { number, name, gone });
        if self.noted.len() > NOTED_MAX
            && let Some(oldest) = self.noted.pop_front()
        {
            self.noted_from = oldest.number + 1;
        }
        gone.is_some()
    }

    /// Removes all, as the change of this number.
    pub(super) fn clear(&mut self, number: u64) {
        let all = std::mem::take(&mut self.all);
        self.bytes = 0;
        if let Some(before) = &mut self.before {
            for (name, old) in all {
                before.entry(name).or_insert(Some(old));
            }
        }
        self.noted.clear();
        self.noted_from = number + 1;
    }

    /// Bytes of memory that the libraries take, including libraries that a unit under way has replaced or
    /// removed.
    pub(super) fn bytes(&self) -> usize {
        let before = self.before.iter().flat_map(BTreeMap::values).flatten();
        self.bytes + before.map(Library::bytes).sum::<usize>()
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.all.contains_key(name)
    }

    /// All libraries, in the order of their names.
    pub(super) fn all(&self, seen: Seen) -> Vec<Library> {
        match (&self.before, seen) {
            (Some(before), Seen::Committed) if !before.is_empty() => {
                let mut all = self.all.clone();
                for (name, old) in before {
                    match old {
                        Some(old) => all.insert(name.clone(), old.clone()),
                        None => all.remove(name),
                    };
                }
                all.into_values().collect()
            }
            _ => self.all.values().cloned().collect(),
        }
    }

    /// The present entries of the names that have changed since change number `from`; `None` if these changes are not known any
    /// more.
    pub(super) fn changed(&self, seen: Seen, from: u64) -> Option<Vec<Changed>> {
        let now = |name: &Arc<[u8]>| match (&self.before, seen) {
            (Some(before), Seen::Committed) => match before.get(name) {
                Some(old) => old.clone(),
                None => self.all.get(name).cloned(),
            },
            _ => self.all.get(name).cloned(),
        };
        let names = self.noted(from)?.map(|noted| &noted.name);
        Some(names.map(|name| (name.clone(), now(name))).collect())
    }

    /// The libraries that these changes have replaced or removed; `None` if they are not known any
    /// more.
    pub(super) fn gone(&self, changes: Range<u64>) -> Option<Vec<u64>> {
        let noted = self.noted(changes.start)?;
        let noted = noted.filter(|noted| noted.number < changes.end);
        Some(noted.filter_map(|noted| noted.gone).collect())
    }

    /// The changes from this number on, the last first.
    fn noted(&self, from: u64) -> Option<impl Iterator<Item = &Noted>> {
        let all = self.noted.iter().rev();
        (from >= self.noted_from).then(|| all.take_while(move |noted| noted.number >= from))
    }
}

/// A name, and the library of this name.
pub(crate) type Changed = (Arc<[u8]>, Option<Library>);

/// A view of the libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The committed libraries, for all clients.
    Committed,
    /// The libraries as the changing unit sees them.
    Newest,
}

impl Libraries {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts one in, in the place of what has its name, for all to see.
    ///
    /// # Errors
    /// The error that there are too many libraries.
    pub(super) fn load(&self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        self.put(name, code)?;
        self.commit(0);
        Ok(())
    }

    /// A unit may be about to change them, of which no other client is to see anything.
    pub(super) fn keep_before(&self) {
        self.state().before.get_or_insert_default();
    }

    /// The changes are committed, with this ticket.
    pub(super) fn commit(&self, ticket: u64) {
        let mut state = self.state();
        // A reader that sees the change, in the state or by its number, finds this ticket.
        self.ticket.store(ticket, Relaxed);
        self.committed.store(self.changes.load(Relaxed), Release);
        state.before = None;
    }

    /// # Errors
    /// The error that there are too many libraries.
    pub(super) fn put(&self, name: &[u8], code: &[u8]) -> Result<(), Error> {
        let mut state = self.state();
        let mut library = Library {
            id: 0,
            name: name.into(),
            code: code.into(),
        };
        let old = state.all.get(name).map_or(0, Library::bytes);
        if state.bytes - old + library.bytes() > BYTES_MAX {
            return Err(Error::new(
                "ERR the libraries of functions would take more than 64 MiB",
            ));
        }
        library.id = self.changes.fetch_add(1, Relaxed);
        state.change(library.id, library.name.clone(), Some(library));
        Ok(())
    }

    /// Writes the items of the libraries.
    pub(super) fn put_items(&self, to: &mut Vec<u8>) {
        for library in self.state().all.values() {
            put_library(&library.name, &library.code, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = Vec<(Vec<u8>, u64)>;

    fn names(all: impl IntoIterator<Item = Library>) -> Names {
        let all = all.into_iter();
        all.map(|library| (library.name.to_vec(), library.id))
            .collect()
    }

    /// The former state plus the reported changes is the present state, for the unit and for all other clients.
    #[test]
    fn what_has_changed_and_what_was_known_is_what_there_is() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut chance = fastrand::Rng::with_seed(seed);
        let libraries = Libraries::default();
        let mut known = [(0, BTreeMap::new()), (0, BTreeMap::new())];
        let mut committed = Names::new();
        let (mut told, mut forgotten) = (0, 0);
        for step in 0..20_000 {
            let name = format!("l{}", chance.u8(..20));
            if chance.bool() {
                libraries.keep_before();
            }
            let is_unit = libraries.state().before.is_some();
            match chance.u16(..1000) {
                0 => {
                    let number = libraries.changes.fetch_add(1, Relaxed);
                    libraries.state().clear(number);
                }
                1..200 => {
                    let number = libraries.changes.load(Relaxed);
                    libraries
                        .state()
                        .change(number, name.as_bytes().into(), None);
                    libraries.changes.fetch_add(1, Relaxed);
                }
                200..600 => libraries.put(name.as_bytes(), b"text").unwrap(),
                _ => {}
            }
            if !is_unit || chance.u8(..4) == 0 {
                libraries.commit(0);
                committed = names(libraries.state().all(Seen::Newest));
            }
            assert_eq!(
                names(libraries.state().all(Seen::Committed)),
                committed,
                "seed {seed}, step {step}"
            );
            let (own, seen, changes) = match chance.u8(..40) {
                0..20 => (0, Seen::Committed, libraries.committed.load(Relaxed)),
                20..39 => (1, Seen::Newest, libraries.changes.load(Relaxed)),
                // Now and then there is nothing for long.
                _ => {
                    known[1].0 = 0;
                    continue;
                }
            };
            let state = libraries.state();
            let (was, map): &mut (u64, BTreeMap<Vec<u8>, u64>) = &mut known[own];
            let before = map.clone();
            match state.changed(seen, *was) {
                Some(changed) => {
                    told += 1;
                    for (name, now) in changed {
                        match now {
                            Some(now) => map.insert(name.to_vec(), now.id),
                            None => map.remove(&name[..]),
                        };
                    }
                }
                None => {
                    forgotten += 1;
                    *map = names(state.all(seen)).into_iter().collect();
                }
            }
            let all: BTreeMap<_, _> = names(state.all(seen)).into_iter().collect();
            assert_eq!(*map, all, "seed {seed}, step {step}, {seen:?}");
            if let (Seen::Committed, Some(gone)) = (seen, state.gone(*was..changes)) {
                let is_left = |id: &&u64| !all.values().any(|now| now == *id);
                for id in before.values().filter(is_left) {
                    assert!(gone.contains(id), "seed {seed}, step {step}: {id}");
                }
                assert!(
                    gone.iter().all(|id| is_left(&id)),
                    "seed {seed}, step {step}"
                );
            }
            *was = changes;
            let bytes: usize = state.all.values().map(Library::bytes).sum();
            assert_eq!(state.bytes, bytes, "seed {seed}, step {step}");
        }
        assert!(told > 1000 && forgotten > 3, "{told} {forgotten}");
    }

    #[test]
    fn one_library_more_is_one_change() {
        let libraries = Libraries::default();
        for n in 0..1000 {
            libraries.load(format!("l{n}").as_bytes(), b"text").unwrap();
        }
        let before = libraries.committed.load(Relaxed);
        libraries.keep_before();
        libraries.put(b"new", b"text").unwrap();
        let state = libraries.state();
        assert_eq!(state.before.as_ref().map(BTreeMap::len), Some(1));
        assert_eq!(state.changed(Seen::Newest, before).unwrap().len(), 1);
        assert!(state.changed(Seen::Newest, 0).is_none());
    }
}
