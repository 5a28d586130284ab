//! WATCH: a key that a transaction depends on.
//!
//! A shard counts the changes of a key from the first watcher on. A [`Watch`] remembers the count.

use super::place::Place;

/// A key as it was when a client began to watch it. End the watch with
/// [`Store::unwatch`](super::Store::unwatch) or a transaction.
#[derive(Debug)]
pub struct Watch {
    pub(crate) place: Place,
    pub(crate) version: u64,
}
