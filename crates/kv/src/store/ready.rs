//! Keys with waiters that have changed, in the order of their changes.

use std::collections::{HashSet, VecDeque};

use super::place::Place;

/// Each key once, however often it has changed: a transaction can change a million, and so can one
/// exchange of databases.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    queue: VecDeque<Place>,
    known: HashSet<Place>,
}

impl Ready {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn add(&mut self, place: Place) {
        if self.known.insert(place.clone()) {
            self.queue.push_back(place);
        }
    }

    /// Takes the first ready key.
    pub(crate) fn take(&mut self) -> Option<Place> {
        let place = self.queue.pop_front()?;
        self.known.remove(&place);
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_once_in_the_order_of_changes() {
        let place = |n: u32| (0, Box::from(n.to_be_bytes()));
        let mut ready = Ready::default();
        for n in (0..100_000).chain(0..100_000) {
            ready.add(place(n));
        }
        assert_eq!(ready.take(), Some(place(0)));
        // Changed again, by a client that was served.
        ready.add(place(0));
        let rest: Vec<_> = std::iter::from_fn(|| ready.take()).collect();
        let expected: Vec<_> = (1..100_000).chain([0]).map(place).collect();
        assert_eq!(rest, expected);
        assert!(ready.is_empty());
    }
}
