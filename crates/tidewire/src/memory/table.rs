//! Tables by a small index that grow chunk by chunk. Growing copies nothing, so no connection pays for
//! the others, and memory that many connections used is given back when they have left.
//!
//! The lowest free place is taken first, which keeps what is in use close together.

use std::fmt;
use std::ops::{Index, IndexMut};

/// A chunk has at most this many bytes, and more than half of it: allocators take chunks of this
/// size from the kernel, and give them back as a whole. Only the used part of a chunk's memory is
/// resident.
const CHUNK_BYTES: usize = 256 << 10;

/// Up to this size the first chunk grows by doubling: many tables have one connection only. Beyond it, the
/// chunk is allocated whole, so that outgrown pieces do not stay with the allocator.
const DOUBLED_BYTES: usize = 4 << 10;

struct Chunk<T> {
    /// The places of a chunk, at most [`Table::CHUNK`]. No memory while none is taken, except for
    /// one chunk of the table.
    places: Vec<Option<T>>,
    /// How many are taken.
    taken: usize,
    /// All places before this one are taken.
    low: usize,
}

impl<T> Chunk<T> {
    const EMPTY: Chunk<T> = Chunk {
        places: Vec::new(),
        taken: 0,
        low: 0,
    };
}

pub(crate) struct Table<T> {
    /// The first chunk is part of the table, so that its entries, in most tables all, are one
    /// pointer nearer.
    first: Chunk<T>,
    /// All others.
    more: Vec<Chunk<T>>,
    len: usize,
    /// No chunk before this one has a free place.
    open: usize,
    /// An allocated chunk of which no entry is in use. One such chunk may stay, so that connections
    /// that come and go one at a time do not allocate. The first empty chunk stays: so the allocator
    /// gets the most back.
    spare: Option<usize>,
}

impl<T> Table<T> {
    /// Places of a chunk, a power of two.
    const CHUNK: usize = {
        let places = CHUNK_BYTES / size_of::<Option<T>>();
        1 << if places > 64 { places.ilog2() } else { 6 }
    };

    pub(crate) const fn new() -> Table<T> {
        Table {
            first: Chunk::EMPTY,
            more: Vec::new(),
            len: 0,
            open: 0,
            spare: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All indices are below this.
    pub(crate) fn end(&self) -> usize {
        match self.more.len() {
            0 => self.first.places.len(),
            more => (1 + more) * Self::CHUNK,
        }
    }

    fn chunk_mut(&mut self, at: usize) -> Option<&mut Chunk<T>> {
        match at.checked_sub(1) {
            None => Some(&mut self.first),
            Some(at) => self.more.get_mut(at),
        }
    }

    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        if index < Self::CHUNK {
            return self.first.places.get(index)?.as_ref();
        }
        let chunk = self.more.get(index / Self::CHUNK - 1)?;
        chunk.places.get(index % Self::CHUNK)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        if index < Self::CHUNK {
            return self.first.places.get_mut(index)?.as_mut();
        }
        let chunk = self.more.get_mut(index / Self::CHUNK - 1)?;
        chunk.places.get_mut(index % Self::CHUNK)?.as_mut()
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.get(index).is_some()
    }

    /// Puts what `make` makes into the lowest free place, whose index it is told; the index.
    pub(crate) fn insert_with(&mut self, make: impl FnOnce(usize) -> T) -> usize {
        let index = self.lowest_free();
        self.put(index, make(index));
        index
    }

    pub(crate) fn insert(&mut self, value: T) -> usize {
        self.insert_with(|_| value)
    }

    fn lowest_free(&mut self) -> usize {
        loop {
            let open = self.open;
            let Some(chunk) = self.chunk_mut(open) else {
                return open * Self::CHUNK;
            };
            if chunk.taken < Self::CHUNK {
                while chunk.places.get(chunk.low).is_some_and(Option::is_some) {
                    chunk.low += 1;
                }
                return open * Self::CHUNK + chunk.low;
            }
            self.open += 1;
        }
    }

    /// Puts a value at its index; an old value there is dropped.
    pub(crate) fn put(&mut self, index: usize, value: T) {
        let (at, place) = (index / Self::CHUNK, index % Self::CHUNK);
        if self.more.len() < at {
            self.more.resize_with(at, || Chunk::EMPTY);
        }
        if self.spare == Some(at) {
            self.spare = None;
        }
        let chunk = self.chunk_mut(at).expect("made above");
        while chunk.places.len() <= place {
            let len = chunk.places.len();
            let small = at == 0 && len * size_of::<Option<T>>() < DOUBLED_BYTES;
            if len == chunk.places.capacity() && !small {
                chunk.places.reserve_exact(Self::CHUNK - len);
            }
            chunk.places.push(None);
        }
        let new = chunk.places[place].replace(value).is_none();
        chunk.taken += usize::from(new);
        self.len += usize::from(new);
    }

    pub(crate) fn remove(&mut self, index: usize) -> Option<T> {
        let at = index / Self::CHUNK;
        let chunk = self.chunk_mut(at)?;
        let value = chunk.places.get_mut(index % Self::CHUNK)?.take()?;
        chunk.taken -= 1;
        chunk.low = chunk.low.min(index % Self::CHUNK);
        let emptied = chunk.taken == 0;
        self.len -= 1;
        self.open = self.open.min(at);
        if emptied && let Some(other) = self.spare.replace(at) {
            self.spare = Some(at.min(other));
            // One of the two groups is not the first.
            self.more[at.max(other) - 1].places = Vec::new();
            self.trim();
        }
        Some(value)
    }

    /// Forgets chunks at the end that have no memory.
    fn trim(&mut self) {
        while self.more.last().is_some_and(|c| c.places.capacity() == 0) {
            self.more.pop();
        }
        if self.more.len() * 4 < self.more.capacity() {
            self.more.shrink_to(self.more.len() * 2);
        }
    }

    /// Every index with its value, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        let chunks = std::iter::once(&self.first).chain(&self.more).enumerate();
        chunks.flat_map(|(at, chunk)| {
            let places = chunk.places.iter().enumerate();
            places.filter_map(move |(i, value)| Some((at * Self::CHUNK + i, value.as_ref()?)))
        })
    }

    /// Every index with its value, in order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let chunks = std::iter::once(&mut self.first).chain(&mut self.more);
        let chunks = chunks.enumerate();
        chunks.flat_map(|(at, chunk)| {
            let places = chunk.places.iter_mut().enumerate();
            places.filter_map(move |(i, value)| Some((at * Self::CHUNK + i, value.as_mut()?)))
        })
    }
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table::new()
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} of {})", self.len, self.end())
    }
}

impl<T> Index<usize> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match self.get(index) {
            Some(value) => value,
            None => nothing_at(index),
        }
    }
}

impl<T> IndexMut<usize> for Table<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        match self.get_mut(index) {
            Some(value) => value,
            None => nothing_at(index),
        }
    }
}

#[cold]
fn nothing_at(index: usize) -> ! {
    panic!("nothing is at {index} in this table")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    impl<T> Table<T> {
        fn places(&self) -> usize {
            std::iter::once(&self.first)
                .chain(&self.more)
                .map(|c| c.places.capacity())
                .sum()
        }
    }

    /// An element so large that a chunk has the fewest places.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Wide([u64; 512]);

    fn wide(i: usize) -> Wide {
        Wide([i as u64; 512])
    }

    const CHUNK: usize = Table::<Wide>::CHUNK;

    #[derive(Clone, Debug)]
    enum Step {
        Insert,
        Put(usize),
        Remove(usize),
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_table_is_a_map(
            steps in proptest::collection::vec(prop_oneof![
                3 => Just(Step::Insert),
                1 => (0usize..400).prop_map(Step::Put),
                3 => (0usize..400).prop_map(Step::Remove),
            ], 0..400),
        ) {
            let (mut table, mut model) = (Table::new(), BTreeMap::new());
            for (i, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert => {
                        let index = table.insert_with(|index| wide(i + index));
                        let lowest = (0..).find(|i| !model.contains_key(i)).unwrap();
                        prop_assert_eq!(index, lowest);
                        model.insert(index, wide(i + index));
                    }
                    Step::Put(index) => {
                        table.put(index, wide(i));
                        model.insert(index, wide(i));
                    }
                    Step::Remove(index) => {
                        prop_assert_eq!(table.remove(index), model.remove(&index));
                    }
                }
                prop_assert_eq!((table.len, table.is_empty()), (model.len(), model.is_empty()));
            }
            prop_assert!(table.iter().eq(model.iter().map(|(i, v)| (*i, v))));
            prop_assert!(table.iter_mut().map(|(i, v)| (i, *v)).eq(model.clone()));
            for index in 0..500 {
                prop_assert_eq!(table.get(index), model.get(&index));
            }
            prop_assert!(model.keys().all(|&i| i < table.end()));
            let used: BTreeSet<usize> = model.keys().map(|i| i / CHUNK).collect();
            prop_assert!(table.places() <= (used.len() + 1) * CHUNK);
        }
    }

    #[test]
    fn a_crowd_leaves_no_trace_and_costs_no_copy() {
        let mut table = Table::new();
        for i in 0..1000 {
            table.insert(wide(i));
        }
        assert!(table.places() <= 1000 + CHUNK);
        let at = std::ptr::from_ref(&table[CHUNK]);
        for i in 1000..2000 {
            table.insert(wide(i));
        }
        assert_eq!(std::ptr::from_ref(&table[CHUNK]), at, "nothing has moved");
        for i in 10..2000 {
            table.remove(i);
        }
        assert!(table.places() <= 2 * CHUNK && table.more.capacity() <= 8);
        assert_eq!(table.insert(wide(7)), 10);
        assert!((0..11).all(|i| table.remove(i).is_some()));
        assert!(table.is_empty() && table.places() <= CHUNK);
    }

    #[test]
    fn one_that_comes_and_goes_does_not_allocate_each_time() {
        let mut table = Table::new();
        assert!((0..=CHUNK).all(|i| table.insert(wide(i)) == i));
        let at = std::ptr::from_ref(&table[CHUNK]);
        for i in 0..10 {
            table.remove(CHUNK);
            assert_eq!(table.insert(wide(i)), CHUNK);
            assert_eq!(std::ptr::from_ref(&table[CHUNK]), at);
        }
    }

    #[test]
    #[should_panic(expected = "nothing is at 3")]
    fn a_free_index_has_no_owner() {
        let table: Table<u8> = Table::new();
        let _ = table[3];
    }
}
