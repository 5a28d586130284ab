//! The timers of one connection beyond its first: each timer has a key that the protocol chose. All timers share the
//! connection's one entry in the timer wheel, which stands for the earliest.

use std::collections::{BTreeMap, BTreeSet};

use crate::memory::kept::{Kept, Tally};
use crate::vocabulary::time::Instant;

/// Timers of one connection that expire before others get their turn.
const EXPIRE_MAX: usize = 256;

/// Bytes for which a timer counts in what its connection holds: its two entries in half-full trees.
const SIZE: usize = 128;

/// The timers of a connection that has set one with a key.
#[derive(Default)]
pub(crate) struct Timers {
    /// The timer without a key.
    own: Option<Instant>,
    by_key: BTreeMap<u64, Armed>,
    /// In the order in which they expire.
    by_time: BTreeSet<(Instant, u64)>,
}

/// A timer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Own,
    Key(u64),
}

struct Armed {
    at: Instant,
    _tally: Tally,
}

impl Timers {
    /// Beside the timer that was set before.
    pub(crate) fn beside(own: Option<Instant>) -> Timers {
        Timers {
            own,
            ..Timers::default()
        }
    }

    pub(crate) fn own(&self) -> Option<Instant> {
        self.own
    }

    pub(crate) fn set_own(&mut self, at: Option<Instant>) {
        self.own = at;
    }

    pub(crate) fn at(&self, key: u64) -> Option<Instant> {
        self.by_key.get(&key).map(|armed| armed.at)
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        let keyed = self.by_time.first().map(|&(at, _)| at);
        [self.own, keyed].into_iter().flatten().min()
    }

    pub(crate) fn set(&mut self, key: u64, at: Instant, account: &Kept) {
        self.clear(key);
        let _tally = account.tally(SIZE);
        self.by_key.insert(key, Armed { at, _tally });
        self.by_time.insert((at, key));
    }

    pub(crate) fn clear(&mut self, key: u64) {
        if let Some(armed) = self.by_key.remove(&key) {
            self.by_time.remove(&(armed.at, key));
        }
    }

    /// Takes out the first that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Due> {
        let first = self.by_time.first().filter(|(at, _)| *at <= now).copied();
        match (self.own.filter(|&own| own <= now), first) {
            (Some(own), first) if first.is_none_or(|(at, _)| own <= at) => {
                self.own = None;
                Some(Due::Own)
            }
            (_, Some((_, key))) => {
                self.clear(key);
                Some(Due::Key(key))
            }
            _ => None,
        }
    }

    /// How many are due, of those that expire before others get their turn.
    pub(crate) fn due(&self, now: Instant) -> usize {
        let own = usize::from(self.own.is_some_and(|own| own <= now));
        let keyed = self.by_time.range(..=(now, u64::MAX)).take(EXPIRE_MAX);
        (own + keyed.count()).min(EXPIRE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    /// The timers that expire by `now`: their keys, `None` for the timer without a key.
    fn expire(timers: &mut Timers, now: u64) -> Vec<Option<u64>> {
        let due = std::iter::from_fn(|| timers.take_due(at(now)));
        due.map(|due| match due {
            Due::Own => None,
            Due::Key(key) => Some(key),
        })
        .collect()
    }

    #[test]
    fn timers_expire_in_order_and_count_while_they_are_set() {
        let (mut timers, account) = (Timers::default(), Kept::default());
        for (key, ns) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 40)] {
            timers.set(key, at(ns), &account);
        }
        timers.own = Some(at(20));
        assert_eq!(account.bytes(), 5 * SIZE);
        assert_eq!(timers.next(), Some(at(10)));
        assert_eq!(timers.due(at(9)), 0);
        assert_eq!(timers.due(at(20)), 4);
        // Moved away, moved closer, forgotten.
        timers.set(2, at(50), &account);
        timers.set(5, at(5), &account);
        timers.clear(1);
        timers.clear(7);
        assert_eq!(account.bytes(), 4 * SIZE);
        assert_eq!(expire(&mut timers, 20), [Some(5), Some(4), None, Some(3)]);
        assert_eq!(expire(&mut timers, 49), []);
        assert_eq!((timers.next(), account.bytes()), (Some(at(50)), SIZE));
        assert_eq!(expire(&mut timers, 50), [Some(2)]);
        assert_eq!((timers.next(), account.bytes()), (None, 0));
    }
}
