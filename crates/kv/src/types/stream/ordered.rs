//! Things with ids, in their order, in chunks: an id costs no allocation of its own.

use std::collections::VecDeque;

use super::id::StreamId;
use crate::allocator::block_of;

/// Most elements of a chunk.
const MOST: usize = 64;

/// An element with an id.
pub(super) trait Keyed {
    fn id(&self) -> StreamId;
}

impl Keyed for StreamId {
    fn id(&self) -> StreamId {
        *self
    }
}

/// Elements in the order of their ids, each once.
#[derive(Debug)]
pub(super) struct Ordered<T> {
    /// No chunk is empty.
    chunks: VecDeque<Vec<T>>,
    len: usize,
    /// Bytes of memory of all chunks.
    heap: usize,
}

/// A copy has no room to spare, so it takes less.
impl<T: Clone> Clone for Ordered<T> {
    fn clone(&self) -> Ordered<T> {
        let chunks = self.chunks.clone();
        Ordered {
            heap: chunks
                .iter()
                .map(|chunk| block_of::<T>(chunk.capacity()))
                .sum(),
            len: self.len,
            chunks,
        }
    }
}

impl<T> Default for Ordered<T> {
    fn default() -> Ordered<T> {
        Ordered {
            chunks: VecDeque::new(),
            len: 0,
            heap: 0,
        }
    }
}

impl<T: Keyed> Ordered<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Bytes of memory that it owns.
    pub(super) fn heap(&self) -> usize {
        self.heap + block_of::<Vec<T>>(self.chunks.capacity())
    }

    /// The chunk in which an id is, or would be.
    fn chunk(&self, id: StreamId) -> Option<usize> {
        // Most elements are added and removed at either end.
        if let Some(last) = self.chunks.len().checked_sub(1)
            && self.chunks[last][0].id() <= id
        {
            return Some(last);
        }
        let after = self.chunks.partition_point(|chunk| chunk[0].id() <= id);
        (!self.chunks.is_empty()).then(|| after.saturating_sub(1))
    }

    fn find(&self, id: StreamId) -> Option<(usize, Result<usize, usize>)> {
        let chunk = self.chunk(id)?;
        let at = self.chunks[chunk].binary_search_by_key(&id, Keyed::id);
        Some((chunk, at))
    }

    pub(super) fn get(&self, id: StreamId) -> Option<&T> {
        let (chunk, at) = self.find(id)?;
        Some(&self.chunks[chunk][at.ok()?])
    }

    /// An element to be changed; its id must stay.
    pub(super) fn get_mut(&mut self, id: StreamId) -> Option<&mut T> {
        let (chunk, at) = self.find(id)?;
        Some(&mut self.chunks[chunk][at.ok()?])
    }

    /// Adds an element; false, and nothing happens, if there is one with its id.
    pub(super) fn insert(&mut self, element: T) -> bool {
        let Some((mut number, at)) = self.find(element.id()) else {
            self.add_chunk(0, vec![element]);
            self.len += 1;
            return true;
        };
        let Err(mut at) = at else { return false };
        self.len += 1;
        if self.chunks[number].len() >= MOST {
            if number + 1 == self.chunks.len() && at == MOST {
                let mut chunk = Vec::with_capacity(MOST);
                chunk.push(element);
                self.add_chunk(number + 1, chunk);
                return true;
            }
            let behind = self.change(number, |chunk| {
                let behind = chunk.split_off(MOST / 2);
                chunk.shrink_to_fit();
                behind
            });
            self.add_chunk(number + 1, behind);
            if at > MOST / 2 {
                (number, at) = (number + 1, at - MOST / 2);
            }
        }
        self.change(number, |chunk| chunk.insert(at, element));
        true
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<T> {
        let (number, at) = self.find(id)?;
        let at = at.ok()?;
        let element = self.change(number, |chunk| {
            let element = chunk.remove(at);
            crate::types::spare::spare(chunk);
            element
        });
        self.len -= 1;
        if self.chunks[number].is_empty() {
            self.drop_chunk(number);
        }
        Some(element)
    }

    fn add_chunk(&mut self, number: usize, chunk: Vec<T>) {
        self.heap += block_of::<T>(chunk.capacity());
        self.chunks.insert(number, chunk);
    }

    fn drop_chunk(&mut self, number: usize) {
        if let Some(chunk) = self.chunks.remove(number) {
            self.heap -= block_of::<T>(chunk.capacity());
        }
        if self.chunks.capacity() > 16 && self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let chunk = &mut self.chunks[number];
        self.heap -= block_of::<T>(chunk.capacity());
        let result = change(chunk);
        self.heap += block_of::<T>(chunk.capacity());
        result
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.chunks.front()?.first()
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.chunks.back()?.last()
    }

    /// Elements whose id is at least this one.
    pub(super) fn from(&self, id: StreamId) -> impl Iterator<Item = &T> {
        let (number, at) = match self.find(id) {
            Some((number, Ok(at) | Err(at))) => (number, at),
            None => (0, 0),
        };
        let first = self
            .chunks
            .get(number)
            .map_or(&[][..], |chunk| &chunk[at..]);
        let rest = self.chunks.iter().skip(number + 1);
        first.iter().chain(rest.flatten())
    }

    /// Frees up to about `most` elements of what is not used any more; how many.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while freed < most
            && let Some(chunk) = self.chunks.pop_back()
        {
            self.heap -= block_of::<T>(chunk.capacity());
            self.len -= chunk.len();
            freed += chunk.len();
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_what_a_plain_set_does(
            acts in proptest::collection::vec((0u8..4, 0u64..400), 1..1500),
        ) {
            let (mut ordered, mut model) = (Ordered::default(), BTreeSet::new());
            for (act, seq) in acts {
                let id = StreamId { ms: seq / 7, seq };
                match act {
                    0 | 1 => prop_assert_eq!(ordered.insert(id), model.insert(id)),
                    2 => prop_assert_eq!(ordered.remove(id).is_some(), model.remove(&id)),
                    _ => prop_assert!(ordered.from(id).eq(model.range(id..))),
                }
                prop_assert_eq!(ordered.get(id).is_some(), model.contains(&id));
                prop_assert_eq!(ordered.len(), model.len());
                prop_assert_eq!(ordered.first(), model.first());
                prop_assert_eq!(ordered.last(), model.last());
                let heap: usize = ordered.chunks.iter().map(|c| block_of::<StreamId>(c.capacity())).sum();
                prop_assert_eq!(ordered.heap, heap);
            }
        }
    }

    #[test]
    fn ids_that_rise_fill_their_chunks() {
        let mut ordered = Ordered::default();
        for seq in 0..10_000 {
            ordered.insert(StreamId { ms: 1, seq });
        }
        assert_eq!(ordered.chunks(), 10_000_usize.div_ceil(MOST));
        while ordered.free_some(1000) > 0 {}
        assert_eq!((ordered.len(), ordered.heap), (0, 0));
    }
}
