//! Lists: short ones are packed, others a deque of packed blocks.
//!
//! The one idea: both ends are cheap because only the block at that end is touched, and an element
//! in the middle is found by counting blocks, not elements.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::blocks::Blocks;
use super::fit::ListFit;
use super::frozen::Piece;
use super::packed::{Code, Packed};
use super::text::Text;
use crate::allocator::block;

/// One end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The head.
    Left,
    /// The tail.
    Right,
}

#[derive(Clone, Debug)]
enum Form {
    /// A list of at most the size of a block.
    Packed(Packed),
    Blocks(Box<Blocks>),
}

/// Elements in order.
///
/// A caller that changes a list announces it: [`expect`](List::expect) for elements that it will add,
/// and [`settle`](List::settle) after it has removed some. The list's encoding depends on these calls,
/// as in Redis.
#[derive(Clone, Debug)]
pub struct List {
    form: Form,
}

impl Default for List {
    fn default() -> List {
        List {
            form: Form::Packed(Packed::default()),
        }
    }
}

impl List {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len(),
            Form::Blocks(blocks) => blocks.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the list's encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match &self.form {
            Form::Blocks(blocks) if blocks.is_long => "quicklist",
            _ => "listpack",
        }
    }

    /// Bytes of memory that the list owns, as the allocator counts; takes constant time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.heap(),
            Form::Blocks(blocks) => block(size_of::<Blocks>()) + blocks.heap(),
        }
    }

    /// Frees up to about `most` elements of a list that is not used any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        match &mut self.form {
            Form::Packed(_) => 0,
            Form::Blocks(blocks) => blocks.free_some(most),
        }
    }

    /// Prepares the list for these elements, which are about to be added.
    pub fn expect(&mut self, elements: &[&[u8]], fit: ListFit) {
        let more: usize = elements.iter().map(|element| element.len()).sum();
        let len = self.len() + elements.len();
        match &mut self.form {
            Form::Blocks(blocks) => {
                blocks.is_long |= !fit.holds(len, blocks.listed() + more);
            }
            // No element takes more than that in a listpack, besides what it takes here.
            Form::Packed(packed) if fit.holds(len, packed.size() + 10 * len + more) => {
                if packed.len() == 0 && elements.len() > 1 {
                    let sizes = elements
                        .iter()
                        .map(|element| Packed::size_of(&Code::of(element)));
                    packed.reserve(sizes.sum::<usize>().min(super::blocks::BLOCK_BYTES));
                }
            }
            Form::Packed(packed) if fit.holds(len, super::blocks::listed(packed) + more) => {}
            Form::Packed(_) => self.blocks().is_long = true,
        }
    }

    /// Elements were taken out, or replaced.
    pub fn settle(&mut self, fit: ListFit) {
        if let Form::Blocks(blocks) = &mut self.form {
            if blocks.is_long && fit.holds_twice(blocks.len(), blocks.listed()) {
                blocks.is_long = false;
            }
            if let Some(packed) = blocks.take_only() {
                self.form = Form::Packed(packed);
            }
        }
    }

    /// The list as blocks; a list of one block is converted.
    fn blocks(&mut self) -> &mut Blocks {
        if let Form::Packed(packed) = &mut self.form {
            let blocks = Blocks::new(std::mem::take(packed));
            self.form = Form::Blocks(Box::new(blocks));
        }
        match &mut self.form {
            Form::Blocks(blocks) => blocks,
            Form::Packed(_) => unreachable!("it was made blocks if it was packed"),
        }
    }

    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        let at = if end == End::Left { 0 } else { self.len() };
        self.insert(at, element);
    }

    /// Takes the element at an end.
    pub fn pop(&mut self, end: End) -> Option<Vec<u8>> {
        let last = self.len().checked_sub(1)?;
        let at = if end == End::Left { 0 } else { last };
        let element = self.get(at)?.to_vec();
        self.remove(at);
        Some(element)
    }

    /// The element at an index from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Text<'_>> {
        match &self.form {
            Form::Packed(packed) => (index < packed.len()).then(|| packed.get(index)),
            Form::Blocks(blocks) => blocks.get(index),
        }
    }

    /// Puts another element in the place of one; whether there was one.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        let code = Code::of(element);
        if let Form::Packed(packed) = &mut self.form
            && index < packed.len()
            && super::blocks::has_room(packed, &code)
        {
            packed.replace(index, code);
            return true;
        }
        let there = self.remove(index);
        if there {
            self.insert(index, element);
        }
        there
    }

    /// Adds an element in front of the one at `index`, which is at most the length.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let code = Code::of(element);
        match &mut self.form {
            Form::Packed(packed) if super::blocks::has_room(packed, &code) => {
                packed.insert(index, &[code]);
            }
            _ => self.blocks().insert(index, code),
        }
    }

    /// Takes out the element at an index; whether there was one.
    pub fn remove(&mut self, index: usize) -> bool {
        let there = index < self.len();
        if there {
            match &mut self.form {
                Form::Packed(packed) => packed.remove(index, 1),
                Form::Blocks(blocks) => blocks.remove(index),
            }
        }
        there
    }

    /// Keeps the elements from `first` to `last`, both included.
    pub fn keep(&mut self, first: usize, last: usize) {
        self.shorten(
            End::Right,
            self.len().saturating_sub(last.saturating_add(1)),
        );
        self.shorten(End::Left, first);
    }

    /// Takes `n` elements out at an end, or all there are.
    pub fn shorten(&mut self, end: End, n: usize) {
        let n = n.min(self.len());
        match (&mut self.form, end) {
            (Form::Packed(packed), End::Left) => packed.remove(0, n),
            (Form::Packed(packed), End::Right) => packed.remove(packed.len() - n, n),
            (Form::Blocks(blocks), End::Left) => blocks.drop_front(n),
            (Form::Blocks(blocks), End::Right) => blocks.drop_back(n),
        }
    }

    /// The list's blocks in order.
    fn parts(&self) -> impl DoubleEndedIterator<Item = &Packed> {
        let (one, more) = match &self.form {
            Form::Packed(packed) => (Some(packed), None),
            Form::Blocks(blocks) => (None, Some(blocks.iter())),
        };
        one.into_iter().chain(more.into_iter().flatten())
    }

    /// The elements from an index on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = Text<'_>> {
        let mut left = index;
        self.parts().flat_map(move |block| {
            let at = left.min(block.len());
            left -= at;
            block.iter_from(at)
        })
    }

    /// Shows at most `n` elements from an index on.
    pub fn each_from(&self, index: usize, n: usize, mut show: impl FnMut(&[u8])) {
        let (mut before, mut left) = (index, n);
        for block in self.parts() {
            if before >= block.len() {
                before -= block.len();
                continue;
            }
            let mut elements = block.iter_from(before);
            before = 0;
            while left > 0
                && let Some(element) = elements.advance()
            {
                show(&element.text());
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
    }

    /// All elements, the last first.
    pub fn iter_back(&self) -> impl Iterator<Item = Text<'_>> {
        self.parts().rev().flat_map(|block| block.iter().rev())
    }

    /// How many blocks the list has: the numbers of [`Piece`]s are below that when the list is
    /// frozen.
    pub(crate) fn block_count(&self) -> usize {
        match &self.form {
            Form::Packed(_) => 1,
            Form::Blocks(blocks) => blocks.count(),
        }
    }

    /// Has the list snapshotted as it is now, whatever happens to it later. Takes a step for each
    /// block.
    pub(crate) fn freeze(&mut self, id: u64, queued: &Arc<AtomicUsize>) {
        self.blocks().freeze(id, queued);
    }

    pub(crate) fn frozen_id(&self) -> Option<u64> {
        match &self.form {
            Form::Packed(_) => None,
            Form::Blocks(blocks) => blocks.frozen_id(),
        }
    }

    /// Hands out the list as it was when it was frozen, about `most` bytes of it; returns whether
    /// that is all.
    pub(crate) fn thaw(&mut self, most: usize, to: &mut Vec<Piece>) -> bool {
        match &mut self.form {
            Form::Packed(_) => true,
            Form::Blocks(blocks) => blocks.thaw(most, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn does_what_a_plain_vector_does(
            acts in proptest::collection::vec((0u8..8, any::<u16>(), 0usize..40), 1..400),
            scale in 1usize..60,
        ) {
            let (mut list, mut model) = (List::default(), Vec::<Vec<u8>>::new());
            for (n, (act, place, len)) in acts.into_iter().enumerate() {
                let element = match len {
                    ..5 => (n * n).to_string().into_bytes(),
                    _ => vec![n as u8; len * scale],
                };
                let at = usize::from(place) % (model.len() + 1);
                match act {
                    0 | 1 => { list.push(End::Right, &element); model.push(element); }
                    2 => { list.push(End::Left, &element); model.insert(0, element); }
                    3 => { list.insert(at, &element); model.insert(at, element); }
                    4 => prop_assert_eq!(list.pop(End::Left), (!model.is_empty()).then(|| model.remove(0))),
                    5 => prop_assert_eq!(list.pop(End::Right), model.pop()),
                    6 => {
                        let there = at < model.len();
                        prop_assert_eq!(list.set(at, &element), there);
                        if there { model[at] = element; }
                    }
                    _ if n % 7 == 0 => {
                        let last = at.max(1);
                        list.keep(at / 3, last);
                        model.truncate(last + 1);
                        model.drain(..(at / 3).min(model.len()));
                    }
                    _ => prop_assert_eq!(list.get(at).map(|x| x.to_vec()), model.get(at).cloned()),
                }
                if n % 5 == 0 {
                    list.settle(ListFit::USUAL);
                }
                prop_assert_eq!(list.len(), model.len());
            }
            let from = model.len() / 3;
            prop_assert!(list.iter_from(from).map(|x| x.to_vec()).eq(model[from..].iter().cloned()));
            prop_assert!(list.iter_back().map(|x| x.to_vec()).eq(model.iter().rev().cloned()));
            if let Form::Blocks(blocks) = &list.form {
                blocks.check();
            }
        }
    }

    /// Redis's behaviour, found out by asking a Redis server.
    #[test]
    fn the_encoding_follows_the_size() {
        let of = |fit: i32, elements: &[&[u8]], at_once: bool| {
            let mut list = List::default();
            if at_once {
                list.expect(elements, ListFit(fit));
            }
            for element in elements {
                if !at_once {
                    list.expect(&[element], ListFit(fit));
                }
                list.push(End::Right, element);
            }
            list.encoding()
        };
        let ten = [b'x'; 10];
        assert_eq!(of(-2, &[&ten[..]; 682], false), "listpack");
        assert_eq!(of(-2, &[&ten[..]; 683], false), "quicklist");
        assert_eq!(of(-2, &[&ten[..]; 780], true), "listpack");
        let (long, longer, longest) = ([b'x'; 5000], [b'x'; 9000], [b'x'; 70_000]);
        let named = |fit| {
            [
                &[&b"a"[..], b"b"][..],
                &[b"a"],
                &[&long],
                &[&longer],
                &[&longest],
            ]
            .map(|elements| of(fit, elements, true) == "listpack")
        };
        assert_eq!(named(1), [false, true, true, false, false]);
        assert_eq!(named(0), named(1));
        assert_eq!(named(2), [true, true, true, false, false]);
        assert_eq!(named(-1), [true, true, false, false, false]);
        assert_eq!(named(-5), [true, true, true, true, false]);
        assert_eq!(named(-100), named(-5));
    }

    #[test]
    fn one_that_is_short_again_says_so() {
        let mut list = List::default();
        for _ in 0..100 {
            list.expect(&[&[7; 100]], ListFit::USUAL);
            list.push(End::Right, &[7; 100]);
        }
        assert_eq!(list.encoding(), "quicklist");
        list.keep(0, 50);
        list.settle(ListFit::USUAL);
        assert_eq!(list.encoding(), "quicklist");
        list.keep(0, 10);
        list.settle(ListFit::USUAL);
        assert_eq!(list.encoding(), "listpack");
        assert!(matches!(list.form, Form::Packed(_)));
    }
}
