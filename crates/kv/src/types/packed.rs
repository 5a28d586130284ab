//! A few byte strings in one allocation: what small collections are made of.

use crate::allocator::{block, block_of};

/// Elements packed one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Packed {
    bytes: Vec<u8>,
    /// Where each element ends in `bytes`.
    ends: Vec<u32>,
}

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn span(&self, at: usize) -> std::ops::Range<usize> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        start as usize..self.ends[at] as usize
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.bytes[self.span(at)]
    }

    /// Bytes of all elements.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of memory.
    pub(super) fn heap(&self) -> usize {
        block(self.bytes.capacity()) + block_of::<u32>(self.ends.capacity())
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(super) fn insert(&mut self, at: usize, element: &[u8]) {
        let start = if at == 0 {
            0
        } else {
            self.ends[at - 1] as usize
        };
        if at == self.len() {
            self.bytes.extend_from_slice(element);
        } else {
            self.bytes.splice(start..start, element.iter().copied());
        }
        let more = element.len() as u32;
        self.ends.insert(at, start as u32 + more);
        self.ends[at + 1..].iter_mut().for_each(|end| *end += more);
    }

    /// Puts another element in the place of one.
    pub(super) fn replace(&mut self, at: usize, element: &[u8]) {
        let span = self.span(at);
        let more = element.len() as i64 - span.len() as i64;
        self.bytes.splice(span, element.iter().copied());
        let moved = |end: &mut u32| *end = (i64::from(*end) + more) as u32;
        self.ends[at..].iter_mut().for_each(moved);
    }

    pub(super) fn remove(&mut self, at: usize) -> Vec<u8> {
        let span = self.span(at);
        let less = span.len() as u32;
        let element = self.bytes.drain(span).collect();
        self.ends.remove(at);
        self.ends[at..].iter_mut().for_each(|end| *end -= less);
        super::spare(&mut self.bytes);
        super::spare(&mut self.ends);
        element
    }

    pub(super) fn split(&mut self, at: usize) -> Packed {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        let bytes = self.bytes.split_off(start as usize);
        let ends = self.ends.split_off(at);
        super::spare(&mut self.bytes);
        super::spare(&mut self.ends);
        Packed {
            bytes,
            ends: ends.into_iter().map(|end| end - start).collect(),
        }
    }
}
