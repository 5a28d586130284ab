//! Words that are left at home with the next transaction, beside what the log holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::home::Words;

/// The name of the word for how many bytes of records were ever carried to a home that
/// [needs all](crate::Settings::needs_all): a little-endian number, in the transaction of the last of them.
pub(crate) const CARRIED: &str = "carried";

/// The position in that note.
pub(crate) fn carried(words: &Words) -> u64 {
    let word = words.get(CARRIED).and_then(|word| word.first_chunk());
    word.copied().map_or(0, u64::from_le_bytes)
}

/// The name of the word for where a home that [needs all](crate::Settings::needs_all) begins, if what is before was in no
/// record any more when it was given to the log: a little-endian position.
const BEGINS: &str = "begins";

/// The name of the word for the newest snapshot at home, which stands for the records before it.
pub const SNAPSHOT: &str = "snapshot";

/// The first position of a home according to its notes: 0 for most.
#[must_use]
pub fn begins(words: &Words) -> u64 {
    let word = words.get(BEGINS).and_then(|word| word.first_chunk());
    word.copied().map_or(0, u64::from_le_bytes)
}

/// Whether a home has all that its first owner had: it begins with the first record, or has a snapshot of what was before.
#[must_use]
pub fn is_whole(words: &Words) -> bool {
    begins(words) == 0 || words.contains_key(SNAPSHOT)
}

/// Notes that are to be stored in the home, and notes that are there. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    pending: Words,
    home: Words,
}

impl Notes {
    /// Has this stand at home under that name, in the place of what did. The replicator's driver is
    /// to be woken.
    pub fn put(&self, name: &str, word: &[u8]) {
        self.lock().pending.insert(name.into(), word.into());
    }

    /// Writes a note that the home begins at this position.
    pub(crate) fn put_begins(&self, position: u64) {
        self.put(BEGINS, &position.to_le_bytes());
    }

    /// The value in the home under that name, as far as this owner has put it there.
    #[must_use]
    pub fn at_home(&self, name: &str) -> Option<Arc<[u8]>> {
        self.lock().home.get(name).cloned()
    }

    pub(crate) fn pending(&self) -> Words {
        self.lock().pending.clone()
    }

    pub(crate) fn are_pending(&self) -> bool {
        !self.lock().pending.is_empty()
    }

    /// The notes `words` were committed.
    pub(crate) fn arrived(&self, words: Words) {
        let mut inner = self.lock();
        for (name, word) in words {
            if inner.pending.get(&name) == Some(&word) {
                inner.pending.remove(&name);
            }
            inner.home.insert(name, word);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
