//! Things by their number: given out densely, never twice, and some may be gone again.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

/// The module's comment describes the type.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<T> {
    known: BTreeMap<u32, T>,
    next: u32,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered {
            known: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> Numbered<T> {
    /// The number that the next one gets.
    pub(crate) fn next_number(&self) -> u32 {
        self.next
    }

    /// Numbers up to this one were given out.
    pub(crate) fn insert(&mut self, number: u32, thing: T) {
        self.known.insert(number, thing);
        self.skip_to(number.saturating_add(1));
    }

    /// Numbers below this one were given out.
    pub(crate) fn skip_to(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.known.remove(&number)
    }

    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.known.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.known.get_mut(&number)
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.known.contains_key(&number)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// All, by number.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u32, &T)> {
        self.known.iter().map(|(&number, thing)| (number, thing))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        self.known
            .iter_mut()
            .map(|(&number, thing)| (number, thing))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.known.values()
    }
}

impl<T> Index<u32> for Numbered<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        &self.known[&number]
    }
}

impl<T> IndexMut<u32> for Numbered<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.known.get_mut(&number).expect("a number that is known")
    }
}
