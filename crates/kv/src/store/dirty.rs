//! Keys whose last change has not settled: a command that reads one waits for that change.
//!
//! A key is known by its hash alone, so two may be taken for one, and the same key of two databases
//! is: then a client waits a little longer.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A key's hash is a hash already.
#[derive(Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        // The key's twelve highest bits say the shard, and the bits that are looked at are equal
        // for all. The map goes by the lowest bits, and by the seven highest.
        self.0.rotate_left(32)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only hashes are keys");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Dirty keys of one shard.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    /// The ticket of each key's last change.
    tickets: HashMap<u64, u64, BuildHasherDefault<AsIs>>,
    /// The tickets, the oldest first.
    order: VecDeque<(u64, u64)>,
    /// Ticket of the last change of all keys at once.
    all: u64,
}

/// Changes that are forgotten for each that is added, at most: so settled ones become fewer and
/// fewer, and no holder of the lock has much to do at once.
pub(crate) const SOME: usize = 4;
/// Keys for which memory is kept while there are none.
const KEEP: usize = 1024;

impl Dirty {
    /// A key was changed by the unit with this ticket.
    pub(crate) fn add(&mut self, hash: u64, ticket: u64) {
        if self.tickets.insert(hash, ticket) != Some(ticket) {
            self.order.push_back((ticket, hash));
        }
    }

    /// All keys were.
    pub(crate) fn add_all(&mut self, ticket: u64) {
        self.all = ticket;
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty() && self.all == 0
    }

    /// The ticket that must settle before a reader of this key is answered; 0 for none.
    #[inline]
    pub(crate) fn ticket(&self, hash: u64) -> u64 {
        let own = self.tickets.get(&hash).copied();
        own.unwrap_or(0).max(self.all)
    }

    /// Forgets changes that have settled, `most` at most. A settled change that stays does no harm:
    /// a reader sees that it has settled. Returns whether there may be more.
    pub(crate) fn purge(&mut self, settled: u64, most: usize) -> bool {
        let before = self.order.len();
        for _ in 0..most {
            let Some(&(ticket, hash)) = self.order.front().filter(|(ticket, _)| *ticket <= settled)
            else {
                break;
            };
            self.order.pop_front();
            if self.tickets.get(&hash) == Some(&ticket) {
                self.tickets.remove(&hash);
            }
        }
        if self.all <= settled {
            self.all = 0;
        }
        let is_all = before - self.order.len() < most;
        if self.order.is_empty() && self.order.capacity() > KEEP {
            *self = Dirty {
                all: self.all,
                ..Dirty::default()
            };
        }
        !is_all
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn keys_of_one_shard_are_spread_in_the_map() {
        let mut rng = fastrand::Rng::with_seed(1);
        let hashes: Vec<u64> = (0..1000)
            .map(|_| AsIs(rng.u64(..) >> 12 | 0xabc << 52).finish())
            .collect();
        let places = |bits: fn(u64) -> u64| {
            let all: BTreeSet<u64> = hashes.iter().map(|hash| bits(*hash)).collect();
            all.len()
        };
        // Spread over 1,024 places, and over 128 tags.
        assert!(places(|hash| hash & 1023) > 500);
        assert!(places(|hash| hash >> 57) > 100);
    }

    #[test]
    fn readers_wait_for_the_last_change_until_it_has_settled() {
        let mut dirty = Dirty::default();
        assert!(dirty.is_empty());
        dirty.add(1, 10);
        dirty.add(2, 11);
        dirty.add(1, 12);
        assert_eq!([1, 2, 3].map(|key| dirty.ticket(key)), [12, 11, 0]);
        dirty.purge(10, SOME);
        assert_eq!([1, 2, 3].map(|key| dirty.ticket(key)), [12, 11, 0]);
        dirty.purge(11, SOME);
        assert_eq!([1, 2, 3].map(|key| dirty.ticket(key)), [12, 0, 0]);
        dirty.add_all(13);
        assert_eq!([1, 2, 3].map(|key| dirty.ticket(key)), [13, 13, 13]);
        dirty.purge(13, SOME);
        assert!(dirty.is_empty());
        (0..10_000).for_each(|key| dirty.add(key, 14));
        dirty.purge(14, SOME);
        assert_eq!(dirty.order.len(), 10_000 - SOME, "a few at once");
        dirty.purge(14, usize::MAX);
        assert!(dirty.is_empty() && dirty.order.capacity() <= KEEP);
    }
}
