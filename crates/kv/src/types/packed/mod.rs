//! A few elements in one allocation: what small collections are, and what large ones are made of.
//!
//! The one idea: the bytes that are needed to find an element (descriptors) lie apart from its
//! contents (payload).
//!
//! ```text
//! | payloads, the first one first | free | descriptors, the last one first |
//! ```
//!
//! A [descriptor](code) is a byte that says how long a payload is and what it means. So the place
//! of an element is a sum over a row of bytes, and a processor adds up many of them at a time. A
//! search compares descriptors and touches only payloads of equal length. Both ends are found at
//! once, and adding at the end moves nothing.

mod code;

use std::ops::Range;

pub(super) use code::Code;

use super::text::Text;
use crate::allocator::{block, fitting, growing};

/// Elements packed one after the other; at most 65,535 elements, of at most 4 GiB together.
#[derive(Clone, Default)]
pub(super) struct Packed {
    /// Payloads from the front, descriptors from the back.
    room: Box<[u8]>,
    /// Bytes of all payloads.
    payload: u32,
    count: u16,
}

/// Most elements that a packed collection can have.
pub(super) const ELEMENTS_MAX: usize = u16::MAX as usize;

impl Packed {
    pub(super) fn len(&self) -> usize {
        self.count.into()
    }

    /// Bytes that the elements take.
    pub(super) fn size(&self) -> usize {
        self.payload as usize + self.len()
    }

    /// Bytes of memory.
    pub(super) fn heap(&self) -> usize {
        block(self.room.len())
    }

    /// The bytes that an element takes.
    pub(super) fn size_of(code: &Code<'_>) -> usize {
        code.size() + 1
    }

    /// The descriptors, the last one first.
    fn descriptors(&self) -> &[u8] {
        &self.room[self.room.len() - self.len()..]
    }

    #[inline]
    fn descriptor(&self, at: usize) -> u8 {
        self.room[self.room.len() - 1 - at]
    }

    /// Where the payload of an element begins, or where all end.
    fn offset(&self, at: usize) -> usize {
        let descriptors = self.descriptors();
        let (behind, before) = descriptors.split_at(self.len() - at);
        if behind.len() < before.len()
            && let Some(size) = code::sizes(behind)
        {
            return self.payload as usize - size;
        }
        code::sizes(before).unwrap_or_else(|| {
            let mut offset = 0;
            for &descriptor in before.iter().rev() {
                offset += code::size(descriptor, &self.room[offset..]);
            }
            offset
        })
    }

    pub(super) fn get(&self, at: usize) -> Text<'_> {
        let (descriptor, offset) = (self.descriptor(at), self.offset(at));
        code::text(descriptor, &self.room[offset..self.payload as usize])
    }

    /// An element in its written form.
    pub(super) fn code(&self, at: usize) -> Code<'_> {
        let (descriptor, offset) = (self.descriptor(at), self.offset(at));
        Code::read(descriptor, &self.room[offset..self.payload as usize])
    }

    /// The number that an element is to its owner, if it is one.
    pub(super) fn reference(&self, at: usize) -> Option<u32> {
        let (descriptor, offset) = (self.descriptor(at), self.offset(at));
        code::reference(descriptor, &self.room[offset..])
    }

    pub(super) fn score(&self, at: usize) -> f64 {
        let (descriptor, offset) = (self.descriptor(at), self.offset(at));
        code::score(descriptor, &self.room[offset..])
    }

    /// Whether an element is this one.
    pub(super) fn is(&self, at: usize, wanted: &Code<'_>) -> bool {
        self.descriptor(at) == wanted.descriptor && {
            let offset = self.offset(at);
            self.is_at(offset, wanted)
        }
    }

    fn is_at(&self, offset: usize, wanted: &Code<'_>) -> bool {
        let payload = &self.room[offset..self.payload as usize];
        payload.get(..wanted.size()).is_some_and(|p| wanted.is(p))
    }

    /// The first element that equals `wanted`, among the elements `first`, `first + step`, ...
    pub(super) fn find(&self, wanted: &Code<'_>, first: usize, step: usize) -> Option<usize> {
        Some(self.find_place(wanted, first, step)?.0)
    }

    /// As [`find`](Packed::find), with the place of the element's payload.
    #[inline]
    fn find_place(&self, wanted: &Code<'_>, first: usize, step: usize) -> Option<(usize, usize)> {
        let (mut offset, mut next) = (0, first);
        for (at, &descriptor) in self.descriptors().iter().rev().enumerate() {
            if at == next {
                if descriptor == wanted.descriptor && self.is_at(offset, wanted) {
                    return Some((at, offset));
                }
                next += step;
            }
            offset += if descriptor == code::LONG {
                code::size(descriptor, &self.room[offset..])
            } else {
                usize::from(code::short_size(descriptor))
            };
        }
        None
    }

    /// The element behind the first one that is this, among elements at 0, 2, ...
    pub(super) fn find_behind(&self, wanted: &Code<'_>) -> Option<Text<'_>> {
        let (at, offset) = self.find_place(wanted, 0, 2)?;
        let payload = &self.room[offset + wanted.size()..self.payload as usize];
        Some(code::text(self.descriptor(at + 1), payload))
    }

    /// How many pairs of a score and a text come first, as `comes` says: all up to some place do, and none
    /// after it.
    pub(super) fn count_pairs(&self, comes: impl Fn(f64, Raw<'_>) -> bool) -> usize {
        let (mut offset, mut n) = (0, 0);
        let (pairs, _) = self.descriptors().as_chunks::<2>();
        for &[member, score] in pairs.iter().rev() {
            // Scores and what a text of a pair begins with are within the payloads.
            let value = code::score(score, &self.room[offset..]);
            offset += usize::from(code::short_size(score));
            let raw = Raw {
                descriptor: member,
                from: &self.room[offset..],
            };
            if !comes(value, raw) {
                break;
            }
            offset += raw.size();
            n += 1;
        }
        n
    }

    /// All elements in order.
    pub(super) fn iter(&self) -> Iter<'_> {
        self.iter_from(0)
    }

    /// The elements from one on.
    pub(super) fn iter_from(&self, at: usize) -> Iter<'_> {
        Iter {
            packed: self,
            at,
            offset: self.offset(at),
            end: self.len(),
            end_offset: self.payload as usize,
        }
    }

    /// Adds elements in front of the one at `at`, or at the end.
    pub(super) fn insert(&mut self, at: usize, codes: &[Code<'_>]) {
        self.splice(at, 0, codes);
    }

    /// Puts another element in the place of one.
    pub(super) fn replace(&mut self, at: usize, code: Code<'_>) {
        self.splice(at, 1, &[code]);
    }

    /// Takes `n` elements out.
    pub(super) fn remove(&mut self, at: usize, n: usize) {
        self.splice(at, n, &[]);
    }

    /// Puts `codes` in the place of the `n` elements at `at`.
    pub(super) fn splice(&mut self, at: usize, n: usize, codes: &[Code<'_>]) {
        let start = self.offset(at);
        let end = if n == 0 { start } else { self.offset(at + n) };
        let new: usize = codes.iter().map(Code::size).sum();
        let payload = self.payload as usize + new - (end - start);
        let count = self.len() + codes.len() - n;
        assert!(
            count <= ELEMENTS_MAX && payload <= u32::MAX as usize,
            "as much as its owner lets in"
        );
        if payload + count > self.room.len() {
            self.set_room(growing(payload + count));
        }
        let last = self.room.len();
        let behind = last - self.len()..last - at - n;
        // If descriptors are removed, payloads may have to move into their place; if descriptors are
        // added, the other way round.
        if codes.len() < n {
            self.room.copy_within(behind.clone(), last - count);
        }
        self.room
            .copy_within(end..self.payload as usize, start + new);
        if codes.len() > n {
            self.room.copy_within(behind, last - count);
        }
        let mut offset = start;
        for (i, code) in codes.iter().enumerate() {
            let next = offset + code.size();
            code.write(&mut self.room[offset..next]);
            self.room[last - 1 - at - i] = code.descriptor;
            offset = next;
        }
        self.payload = payload as u32;
        self.count = count as u16;
        // Reserved memory is not given back before it was used.
        if new < end - start || codes.len() < n {
            self.trim();
        }
    }

    /// Gives memory back where more than half is free.
    pub(super) fn trim(&mut self) {
        if self.size() < self.room.len() / 2 {
            self.set_room(growing(self.size()));
        }
    }

    /// Takes the elements from `at` on out.
    pub(super) fn split(&mut self, at: usize) -> Packed {
        let offset = self.offset(at);
        let behind = self.part(at..self.len(), offset..self.payload as usize);
        *self = self.part(0..at, 0..offset);
        behind
    }

    /// A copy of some elements, whose payloads are at `payloads`.
    fn part(&self, elements: Range<usize>, payloads: Range<usize>) -> Packed {
        let mut part = Packed {
            room: Box::default(),
            payload: payloads.len() as u32,
            count: elements.len() as u16,
        };
        let mut room = vec![0; growing(part.size())].into_boxed_slice();
        room[..payloads.len()].copy_from_slice(&self.room[payloads]);
        let (last, own) = (self.room.len(), room.len());
        let descriptors = &self.room[last - elements.end..last - elements.start];
        room[own - elements.len()..].copy_from_slice(descriptors);
        part.room = room;
        part
    }

    /// Reserves memory for this many bytes, so that adding elements one by one moves none of them.
    pub(super) fn reserve(&mut self, more: usize) {
        let wanted = self.size() + more;
        if wanted > self.room.len() {
            self.set_room(fitting(wanted));
        }
    }

    fn set_room(&mut self, bytes: usize) {
        let mut room = vec![0; bytes].into_boxed_slice();
        let payload = self.payload as usize;
        room[..payload].copy_from_slice(&self.room[..payload]);
        room[bytes - self.len()..].copy_from_slice(self.descriptors());
        self.room = room;
    }
}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Elements in order, or from the end.
#[derive(Clone)]
pub(super) struct Iter<'a> {
    packed: &'a Packed,
    at: usize,
    offset: usize,
    end: usize,
    end_offset: usize,
}

impl<'a> Iter<'a> {
    /// The next element, which is not decoded yet.
    #[inline]
    pub(super) fn advance(&mut self) -> Option<Raw<'a>> {
        if self.at == self.end {
            return None;
        }
        let descriptor = self.packed.descriptor(self.at);
        let from = &self.packed.room[self.offset..];
        let raw = Raw { descriptor, from };
        self.at += 1;
        self.offset += raw.size();
        Some(raw)
    }

    /// As [`advance`](Iter::advance), from the end.
    #[inline]
    pub(super) fn retreat(&mut self) -> Option<Raw<'a>> {
        if self.at == self.end {
            return None;
        }
        self.end -= 1;
        let descriptor = self.packed.descriptor(self.end);
        let size = code::sizes(&[descriptor]);
        let start = size.map_or_else(
            || self.packed.offset(self.end),
            |size| self.end_offset - size,
        );
        let from = &self.packed.room[start..];
        self.end_offset = start;
        Some(Raw { descriptor, from })
    }
}

/// An element as it stands in the collection.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    descriptor: u8,
    /// Payload of the element, and the bytes behind it.
    from: &'a [u8],
}

impl<'a> Raw<'a> {
    #[inline]
    fn size(self) -> usize {
        if self.descriptor == code::LONG {
            code::size(self.descriptor, self.from)
        } else {
            usize::from(code::short_size(self.descriptor))
        }
    }

    #[inline]
    pub(super) fn text(self) -> Text<'a> {
        code::text(self.descriptor, self.from)
    }

    #[inline]
    pub(super) fn score(self) -> f64 {
        code::score(self.descriptor, self.from)
    }

    /// Bytes that the element would take in a listpack.
    pub(super) fn listed(self) -> usize {
        code::listed(self.descriptor, &self.from[..self.size()])
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Text<'a>;

    #[inline]
    fn next(&mut self) -> Option<Text<'a>> {
        self.advance().map(Raw::text)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.end - self.at;
        (left, Some(left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.retreat().map(Raw::text)
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            3 => any::<i64>().prop_map(|n| n.to_string().into_bytes()),
            3 => (-300i64..300).prop_map(|n| n.to_string().into_bytes()),
            4 => (0usize..20, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
            1 => (180usize..400).prop_map(|len| vec![b'x'; len]),
        ]
    }

    #[derive(Clone, Debug)]
    enum Act {
        Splice(usize, usize, Vec<Vec<u8>>),
        Split(usize),
        Reserve(usize),
    }

    fn acts() -> impl Strategy<Value = Act> {
        prop_oneof![
            8 => (any::<usize>(), 0usize..4, proptest::collection::vec(texts(), 0..4))
                .prop_map(|(at, n, new)| Act::Splice(at, n, new)),
            1 => any::<usize>().prop_map(Act::Split),
            1 => (0usize..500).prop_map(Act::Reserve),
        ]
    }

    proptest! {
        #[test]
        fn does_what_a_plain_vector_does(acts in proptest::collection::vec(acts(), 1..60)) {
            let (mut packed, mut model) = (Packed::default(), Vec::<Vec<u8>>::new());
            for act in acts {
                match act {
                    Act::Splice(at, n, new) => {
                        let at = at % (model.len() + 1);
                        let n = n.min(model.len() - at);
                        let codes: Vec<Code<'_>> = new.iter().map(|text| Code::of(text)).collect();
                        packed.splice(at, n, &codes);
                        model.splice(at..at + n, new);
                    }
                    Act::Split(at) => {
                        let at = at % (model.len() + 1);
                        let behind = packed.split(at);
                        let tail = model.split_off(at);
                        prop_assert!(behind.iter().map(|text| text.to_vec()).eq(tail));
                    }
                    Act::Reserve(more) => packed.reserve(more),
                }
                prop_assert_eq!(packed.len(), model.len());
                prop_assert!(packed.iter().map(|text| text.to_vec()).eq(model.iter().cloned()));
                let back = packed.iter().rev().map(|text| text.to_vec());
                prop_assert!(back.eq(model.iter().rev().cloned()));
                for (at, text) in model.iter().enumerate() {
                    let code = Code::of(text);
                    prop_assert_eq!(&*packed.get(at), &text[..]);
                    prop_assert!(packed.is(at, &code) && packed.code(at).descriptor == code.descriptor);
                    let first = model.iter().position(|other| other == text);
                    prop_assert_eq!(packed.find(&code, 0, 1), first);
                    let even = model.iter().step_by(2).position(|other| other == text);
                    prop_assert_eq!(packed.find(&code, 0, 2), even.map(|at| at * 2));
                }
                let rest = model.len() / 3;
                prop_assert!(packed.iter_from(rest).map(|text| text.to_vec()).eq(model[rest..].iter().cloned()));
            }
        }
    }

    #[test]
    fn it_takes_what_it_holds_and_gives_back() {
        let mut packed = Packed::default();
        assert_eq!(packed.heap(), 0);
        for n in 0..1000 {
            packed.insert(packed.len(), &[Code::of(format!("member:{n}").as_bytes())]);
            let heap = packed.heap();
            assert!(heap <= packed.size() + packed.size() / 4 + 32, "{heap}");
        }
        for n in (0..1000).rev() {
            packed.remove(n / 2, 1);
            assert!(packed.heap() <= 2 * packed.size() + 40);
        }
        assert_eq!((packed.len(), packed.heap()), (0, 0));
        assert_eq!(size_of::<Packed>(), 24);
    }
}
