//! The locks of shards. With debug assertions each thread keeps the set of locks that it has: a
//! call that could wait for its own thread, or for another in a circle, panics in any test that
//! comes by, and not only where it really waits.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError, TryLockError};

use super::Store;
use super::shard::Shard;

/// A locked shard.
pub(crate) struct ShardGuard<'a> {
    shard: MutexGuard<'a, Shard>,
    /// Dropped behind the lock.
    #[cfg(debug_assertions)]
    _held: held::Held,
}

impl Store {
    /// Locks a shard. The calling thread has no other lock of this store, not even through a [`Runner`](super::Runner): two
    /// threads that took them in another order would wait for each other.
    #[inline]
    pub(super) fn lock(&self, at: usize) -> ShardGuard<'_> {
        #[cfg(debug_assertions)]
        held::check(self.addresses(0), "no lock of a shard may be held here");
        self.lock_anyway(at)
    }

    /// Locks a shard behind all that the calling thread has of this store.
    #[inline]
    pub(super) fn lock_next(&self, at: usize) -> ShardGuard<'_> {
        #[cfg(debug_assertions)]
        held::check(self.addresses(at), "shards are locked in ascending order");
        self.lock_anyway(at)
    }

    /// The lock of a shard, unless another has it.
    #[inline]
    pub(super) fn try_lock(&self, at: usize) -> Option<ShardGuard<'_>> {
        match self.shards[at].0.try_lock() {
            Ok(shard) => Some(ShardGuard::new(shard)),
            Err(TryLockError::Poisoned(poisoned)) => Some(ShardGuard::new(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A panic of the thread that had the lock has ended one connection, and the shard goes on.
    #[inline]
    fn lock_anyway(&self, at: usize) -> ShardGuard<'_> {
        let shard = self.shards[at].0.lock();
        ShardGuard::new(shard.unwrap_or_else(PoisonError::into_inner))
    }

    /// Where the shards from `first` on are in memory, which is in their order.
    #[cfg(debug_assertions)]
    fn addresses(&self, first: usize) -> std::ops::Range<usize> {
        let range = self.shards.as_ptr_range();
        let width = size_of_val(&self.shards[0]);
        range.start as usize + first * width..range.end as usize
    }
}

impl<'a> ShardGuard<'a> {
    #[inline]
    fn new(shard: MutexGuard<'a, Shard>) -> ShardGuard<'a> {
        ShardGuard {
            #[cfg(debug_assertions)]
            _held: held::Held::new(&shard),
            shard,
        }
    }
}

impl Deref for ShardGuard<'_> {
    type Target = Shard;

    #[inline]
    fn deref(&self) -> &Shard {
        &self.shard
    }
}

impl DerefMut for ShardGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }
}

impl fmt::Debug for ShardGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardGuard")
    }
}

/// The locks that each thread holds.
#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::ops::Range;

    use super::super::shard::Shard;

    thread_local! {
        /// Addresses of the shards whose locks this thread has.
        static HELD: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
    }

    /// One lock of this thread.
    pub(super) struct Held(usize);

    impl Held {
        pub(super) fn new(shard: &Shard) -> Held {
            let at = std::ptr::from_ref(shard) as usize;
            HELD.with_borrow_mut(|held| held.insert(at));
            Held(at)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| held.remove(&self.0));
        }
    }

    /// # Panics
    /// If this thread has the lock of a shard that stands there.
    #[track_caller]
    pub(super) fn check(addresses: Range<usize>, rule: &str) {
        let breaks = HELD.with_borrow(|held| held.range(addresses).next().is_some());
        assert!(!breaks, "{rule}: this thread could wait for itself");
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::super::Settings;
    use super::*;
    use crate::commands::find;
    use crate::reply::{Proto, Reply};

    const NOW: u64 = 1_700_000_000_000;

    fn store() -> Store {
        Store::new(Settings {
            shards: 8,
            ..Settings::default()
        })
    }

    #[test]
    #[should_panic = "no lock of a shard may be held here"]
    fn a_watch_does_not_end_while_a_runner_of_the_thread_holds_its_key() {
        let store = store();
        let watch = store.watch(0, b"k", NOW);
        let mut runner = store.runner(NOW, 1);
        let mut reply = Reply::new(Proto::Resp2);
        let set = find(b"set").expect("a command");
        runner.run(set, 0, &[b"set", b"k", b"v"], &mut reply);
        store.unwatch(watch);
    }

    #[test]
    #[should_panic = "no lock of a shard may be held here"]
    fn nor_while_it_holds_another() {
        let store = store();
        let _last = store.lock(7);
        let _ = store.keys();
    }

    #[test]
    #[should_panic = "shards are locked in ascending order"]
    fn shards_are_locked_in_ascending_order_alone() {
        let store = store();
        let _fourth = store.lock(3);
        drop(store.lock_next(5));
        let _ = store.lock_next(2);
    }

    #[test]
    fn other_stores_and_locks_that_were_let_go_do_not_count() {
        let (store, other) = (store(), self::store());
        let here = store.lock(7);
        drop(other.lock(0));
        drop(here);
        drop(store.lock(0));
        let _ = store.keys();
    }
}
