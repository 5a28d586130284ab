//! The elements of a large collection, without an allocation for each: numbered from 0, in packed blocks.
//!
//! An element is one or two texts, its columns. A long element has an allocation of its own, and
//! the block holds only its number, so that blocks stay small.

use super::packed::{Code, Packed};
use super::row::Row;
use super::text::Text;
use crate::allocator::{block, block_of};

/// Elements of a block.
pub(super) const BLOCK: usize = 16;
/// The longest text that is kept in a block; bytes.
const PACKED_MAX: usize = 256;

/// Elements of `COLUMNS` texts.
#[derive(Clone, Debug)]
pub(super) struct Rows<const COLUMNS: usize> {
    /// All are full but the last, and none is empty.
    blocks: Row<Packed>,
    len: usize,
    long: Vec<Long>,
    /// Bytes of memory of all blocks and long texts.
    heap: usize,
}

/// A text that is kept apart.
#[derive(Clone, Debug)]
struct Long {
    /// The owner: the element, and its column.
    owner: (u32, u8),
    bytes: Box<[u8]>,
}

impl<const COLUMNS: usize> Default for Rows<COLUMNS> {
    fn default() -> Self {
        Rows {
            blocks: Row::default(),
            len: 0,
            long: Vec::new(),
            heap: 0,
        }
    }
}

/// The place of an element's first column in its block.
fn slot<const COLUMNS: usize>(at: usize) -> usize {
    at % BLOCK * COLUMNS
}

impl<const COLUMNS: usize> Rows<COLUMNS> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory.
    pub(super) fn heap(&self) -> usize {
        self.blocks.heap() + block_of::<Long>(self.long.capacity()) + self.heap
    }

    /// A text of an element.
    pub(super) fn get(&self, at: usize, column: usize) -> Text<'_> {
        let (block, place) = self.place(at, column);
        match block.reference(place) {
            Some(number) => Text::bytes(&self.long[number as usize].bytes),
            None => block.get(place),
        }
    }

    /// A column that is a score.
    pub(super) fn score(&self, at: usize, column: usize) -> f64 {
        let (block, place) = self.place(at, column);
        block.score(place)
    }

    /// Whether a text of an element is this one, whose code is `code`.
    #[inline]
    pub(super) fn is(&self, at: usize, column: usize, text: &[u8], code: &Code<'_>) -> bool {
        let (block, place) = self.place(at, column);
        if text.len() <= PACKED_MAX {
            return block.is(place, code);
        }
        let number = block.reference(place);
        number.is_some_and(|number| *self.long[number as usize].bytes == *text)
    }

    #[inline]
    fn place(&self, at: usize, column: usize) -> (&Packed, usize) {
        (self.blocks.get(at / BLOCK), slot::<COLUMNS>(at) + column)
    }

    /// Changes a block, and keeps count of memory.
    fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut Packed) -> R) -> R {
        let block = self.blocks.get_mut(number);
        self.heap -= block.heap();
        let result = change(block);
        self.heap += block.heap();
        result
    }

    /// Adds an element behind the last.
    pub(super) fn push(&mut self, codes: [Code<'_>; COLUMNS], texts: [&[u8]; COLUMNS]) {
        let at = self.len;
        if at.is_multiple_of(BLOCK) {
            self.blocks.push(Packed::default());
        }
        let mut kept = codes;
        for (column, text) in texts.into_iter().enumerate() {
            if text.len() > PACKED_MAX {
                kept[column] = self.set_apart(at, column, text);
            }
        }
        self.change(at / BLOCK, |block| block.insert(block.len(), &kept));
        self.len += 1;
    }

    /// Puts another text in the place of one.
    pub(super) fn set(&mut self, at: usize, column: usize, code: Code<'_>, text: &[u8]) {
        let (block, place) = self.place(at, column);
        if let Some(number) = block.reference(place) {
            self.drop_long(number);
        }
        let code = if text.len() > PACKED_MAX {
            self.set_apart(at, column, text)
        } else {
            code
        };
        self.change(at / BLOCK, |block| block.replace(place, code));
    }

    fn set_apart(&mut self, at: usize, column: usize, text: &[u8]) -> Code<'static> {
        self.heap += block(text.len());
        self.long.push(Long {
            owner: (at as u32, column as u8),
            bytes: text.into(),
        });
        Code::reference(self.long.len() as u32 - 1)
    }

    /// Frees a long text. The last row takes the freed number, and its owner is told.
    fn drop_long(&mut self, number: u32) {
        let gone = self.long.swap_remove(number as usize);
        self.heap -= block(gone.bytes.len());
        if let Some(moved) = self.long.get(number as usize) {
            let (at, column) = moved.owner;
            let place = slot::<COLUMNS>(at as usize) + usize::from(column);
            self.change(at as usize / BLOCK, |block| {
                block.replace(place, Code::reference(number));
            });
        }
        super::spare::spare(&mut self.long);
    }

    /// Takes an element out; the last one takes its place.
    pub(super) fn swap_remove(&mut self, at: usize) {
        for column in 0..COLUMNS {
            let (block, place) = self.place(at, column);
            if let Some(number) = block.reference(place) {
                self.drop_long(number);
            }
        }
        let last = self.len - 1;
        let (end, from) = (last / BLOCK, slot::<COLUMNS>(last));
        // The element's last use was above: what stands in its place now does not matter.
        let moved = self.change(end, |block| block.split(from));
        if from == 0 {
            self.blocks.pop();
        }
        self.len = last;
        if at == last {
            return;
        }
        for column in 0..COLUMNS {
            if let Some(number) = moved.reference(column) {
                self.long[number as usize].owner.0 = at as u32;
            }
        }
        let codes: [Code<'_>; COLUMNS] = std::array::from_fn(|column| moved.code(column));
        self.change(at / BLOCK, |block| {
            block.splice(slot::<COLUMNS>(at), COLUMNS, &codes);
        });
    }

    /// Frees some elements of a removed collection, about `most` at most; returns how many
    /// allocations were freed, 0 when nothing is left.
    pub(super) fn free_some(&mut self, most: usize) -> usize {
        let mut freed = 0;
        while freed < most {
            if let Some(long) = self.long.pop() {
                self.heap -= block(long.bytes.len());
                freed += 1;
            } else if let Some(block) = self.blocks.pop() {
                self.heap -= block.heap();
                self.len = self.blocks.len() * BLOCK;
                freed += BLOCK;
            } else {
                break;
            }
        }
        freed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0u32..2000).prop_map(|n| n.to_string().into_bytes()),
            4 => (0usize..30).prop_map(|len| vec![b'x'; len]),
            2 => (250usize..270, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]),
        ]
    }

    proptest! {
        #[test]
        fn does_what_a_vector_of_pairs_does(
            acts in proptest::collection::vec((0u8..6, any::<usize>(), text(), text()), 1..200),
        ) {
            let (mut rows, mut model) = (Rows::<2>::default(), Vec::<[Vec<u8>; 2]>::new());
            for (act, at, one, other) in acts {
                let codes = [Code::of(&one), Code::of(&other)];
                match act {
                    0 | 1 if !model.is_empty() => {
                        rows.swap_remove(at % model.len());
                        model.swap_remove(at % model.len());
                    }
                    2 if !model.is_empty() => {
                        let (at, column) = (at % model.len(), act as usize & 1);
                        rows.set(at, column, codes[0], &one);
                        model[at][column] = one;
                    }
                    _ => {
                        rows.push(codes, [&one, &other]);
                        model.push([one, other]);
                    }
                }
                prop_assert_eq!(rows.len(), model.len());
                let long = model.iter().flatten().filter(|text| text.len() > PACKED_MAX);
                prop_assert_eq!(rows.long.len(), long.count());
                for (at, texts) in model.iter().enumerate() {
                    for (column, text) in texts.iter().enumerate() {
                        prop_assert_eq!(&*rows.get(at, column), &text[..]);
                        prop_assert!(rows.is(at, column, text, &Code::of(text)));
                    }
                }
                let blocks: usize = rows.blocks.iter().map(Packed::heap).sum();
                let long: usize = rows.long.iter().map(|long| block(long.bytes.len())).sum();
                prop_assert_eq!(rows.heap, blocks + long);
            }
            while rows.free_some(20) > 0 {}
            prop_assert_eq!(rows.heap, 0);
        }
    }
}
