//! What a process has seen of the proofs of a home's owner, before it takes the home over.
//!
//! One idea: a follower that reads the marks sees each transaction of the owner a moment after it was committed. If the last
//! transaction that the home knows of that owner is the one that was seen last, the owner sent nothing that counts since that
//! moment, and its lease ends at most its length later. So a successor that has seen it waits from then, and not from when it
//! fenced the owner.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::home::Owner;

/// How many owners are remembered.
const OWNERS: usize = 8;

/// The last transaction of each owner that was seen, of the last few owners. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Vec<Seen>>>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    owner: Owner,
    number: u64,
    at: Duration,
}

impl Witness {
    /// This transaction of the owner was seen at home at `at` at the latest, by the clock that the replicator is driven with.
    pub fn sees(&self, owner: Owner, number: u64, at: Duration) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Seen { owner, number, at };
        match seen.iter_mut().find(|seen| seen.owner == owner) {
            Some(seen) if number > seen.number => *seen = next,
            Some(_) => {}
            None => {
                if seen.len() >= OWNERS {
                    seen.remove(0);
                }
                seen.push(next);
            }
        }
    }

    /// When this transaction of the owner was seen, if none of that owner was seen behind it.
    pub(crate) fn saw_last(&self, owner: Owner, number: u64) -> Option<Duration> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen = seen.iter();
        let found = seen.find(|seen| seen.owner == owner && seen.number == number);
        found.map(|seen| seen.at)
    }

    /// When the owner was seen last, whether or not that was its last transaction: a mistake to make on purpose.
    pub(crate) fn saw_any(&self, owner: Owner) -> Option<Duration> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = seen.iter().find(|seen| seen.owner == owner);
        found.map(|seen| seen.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_the_last_transaction_of_that_owner_says_when_it_was_seen() {
        let (one, other) = (Owner { log: 1, session: 1 }, Owner { log: 2, session: 1 });
        let witness = Witness::default();
        assert_eq!(witness.saw_last(one, 5), None);
        witness.sees(one, 5, SECOND);
        // A transaction may be seen again: the first time counts.
        witness.sees(one, 5, 2 * SECOND);
        assert_eq!(witness.saw_last(one, 5), Some(SECOND));
        assert_eq!(witness.saw_last(one, 6), None);
        assert_eq!(witness.saw_last(other, 5), None);
        witness.sees(other, 7, 3 * SECOND);
        // The claim of the next owner is seen before the former owner's lease is waited for.
        assert_eq!(witness.saw_last(one, 5), Some(SECOND));
        assert_eq!(witness.saw_last(other, 7), Some(3 * SECOND));
    }

    #[test]
    fn only_the_last_few_owners_are_remembered() {
        let witness = Witness::default();
        let owner = |log| Owner { log, session: 1 };
        for log in 0..100 {
            witness.sees(owner(log), log, SECOND);
        }
        assert_eq!(witness.saw_last(owner(0), 0), None);
        assert_eq!(witness.saw_last(owner(99), 99), Some(SECOND));
        let seen = witness.0.lock().expect("no panic").len();
        assert_eq!(seen, OWNERS);
    }
}
