//! A vector in chunks: what is there never moves, and memory comes and goes a chunk at a time.
//!
//! A plain vector doubles: half of it may be unused, and an unlucky push copies everything. Here at
//! most one chunk is unused, and a push or pop copies at most one chunk.

use crate::allocator::block_of;

/// Bytes of a chunk, about: a size that every allocator has without a rest, and aligned.
const CHUNK_BYTES: usize = 4096;

/// Elements by their index.
#[derive(Debug)]
pub(super) struct Row<T> {
    /// All chunks are full but the last, and none is empty. The first one grows by doubling; the
    /// others are allocated whole.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Row<T> {
    fn default() -> Row<T> {
        Row { chunks: Vec::new() }
    }
}

impl<T: Clone> Clone for Row<T> {
    fn clone(&self) -> Row<T> {
        let mut copy = Row::default();
        self.iter().for_each(|element| copy.push(element.clone()));
        copy
    }
}

impl<T> Row<T> {
    /// Elements of a chunk.
    const CHUNK: usize = CHUNK_BYTES / size_of::<T>();

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self.chunks.last() {
            None => 0,
            Some(last) => (self.chunks.len() - 1) * Self::CHUNK + last.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> &T {
        &self.chunks[at / Self::CHUNK][at % Self::CHUNK]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at / Self::CHUNK][at % Self::CHUNK]
    }

    pub(super) fn push(&mut self, element: T) {
        let first = self.chunks.len() <= 1;
        match self.chunks.last_mut() {
            Some(last) if last.len() < Self::CHUNK => {
                if first && last.len() == last.capacity() {
                    last.reserve_exact(last.len().min(Self::CHUNK - last.len()));
                }
                last.push(element);
            }
            last => {
                let room = if last.is_some() { Self::CHUNK } else { 4 };
                let mut chunk = Vec::with_capacity(room);
                chunk.push(element);
                self.chunks.push(chunk);
            }
        }
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let last = self.chunks.last_mut()?;
        let element = last.pop();
        if last.is_empty() {
            self.chunks.pop();
            if self.chunks.len() < self.chunks.capacity() / 4 {
                self.chunks.shrink_to(self.chunks.len() * 2);
            }
        } else if self.chunks.len() == 1 {
            super::spare::spare(&mut self.chunks[0]);
        }
        element
    }

    /// Removes an element; the last element takes its place.
    pub(super) fn swap_remove(&mut self, at: usize) -> Option<T> {
        let last = self.pop()?;
        if at == self.len() {
            return Some(last);
        }
        Some(std::mem::replace(self.get_mut(at), last))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }

    /// Bytes of memory, without what elements own.
    pub(super) fn heap(&self) -> usize {
        let list = block_of::<Vec<T>>(self.chunks.capacity());
        let Some(last) = self.chunks.last() else {
            return list;
        };
        list + (self.chunks.len() - 1) * block_of::<T>(Self::CHUNK) + block_of::<T>(last.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_vector_that_gives_memory_back() {
        let (mut row, mut model) = (Row::default(), Vec::new());
        let mut rng = fastrand::Rng::with_seed(1);
        for most in [10, 3000, 20, 600, 0] {
            while row.len() != most {
                if row.len() < most {
                    row.push(rng.u64(..));
                    model.push(*row.get(model.len()));
                } else {
                    let at = rng.usize(..row.len());
                    assert_eq!(row.swap_remove(at), Some(model.swap_remove(at)));
                }
            }
            assert!(row.iter().eq(&model));
            assert!(row.clone().iter().eq(&model));
            let least = most * size_of::<u64>();
            assert!(row.heap() >= least && row.heap() <= 4 * least + 2 * CHUNK_BYTES);
        }
        assert_eq!(row.pop(), None);
        assert!(row.heap() < 200, "{}", row.heap());
    }
}
