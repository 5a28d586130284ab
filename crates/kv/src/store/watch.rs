//! WATCH: a key that a transaction depends on.
//!
//! A shard counts the changes of a key from the first watcher on. A [`Watch`] remembers the count.

use super::shard::Place;

/// A key as it was when somebody began to watch it. End it with
/// [`Store::unwatch`](super::Store::unwatch) or a transaction.
#[derive(Debug)]
pub struct Watch {
    pub(crate) place: Place,
    pub(crate) version: u64,
    /// It was past its time already, so that its removal changes nothing.
    pub(crate) was_due: bool,
}

impl Watch {
    /// Whether it watches this key.
    #[must_use]
    pub fn is(&self, db: u16, key: &[u8]) -> bool {
        self.place.0 == db && *self.place.1 == *key
    }
}
