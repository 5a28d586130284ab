//! Hashes: fields and their values. Small ones are packed, others a table.

use super::fit::{BYTES_MAX, Fit};
use super::packed::{Code, ELEMENTS_MAX, Packed};
use super::sample::indices;
use super::spread::{Freeze, Spread};
use super::table::{Shape, Table};
use super::text::Text;
use crate::allocator::block;
use crate::number::put_text;

/// A field, and its value.
#[derive(Debug)]
struct Pairs;

impl Shape<2> for Pairs {
    fn put(table: &Table<Pairs, 2>, at: usize, to: &mut Vec<u8>) {
        put_text(to, &table.text(at, 0));
        put_text(to, &table.text(at, 1));
    }
}

#[derive(Clone, Debug)]
enum Form {
    /// Fields and values in turn.
    Packed(Packed),
    Table(Box<Table<Pairs, 2>>),
}

/// A hash: fields and their values.
#[derive(Clone, Debug)]
pub struct Hash {
    form: Form,
}

impl Default for Hash {
    fn default() -> Hash {
        Hash {
            form: Form::Packed(Packed::default()),
        }
    }
}

impl Spread for Hash {
    fn table(&self) -> Option<&dyn Freeze> {
        match &self.form {
            Form::Table(table) => Some(&**table),
            Form::Packed(_) => None,
        }
    }

    fn table_mut(&mut self) -> Option<&mut dyn Freeze> {
        match &mut self.form {
            Form::Table(table) => Some(&mut **table),
            Form::Packed(_) => None,
        }
    }
}

impl Hash {
    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len() / 2,
            Form::Table(table) => table.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the hash's encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.form {
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes of memory that the hash owns, as the allocator counts; takes constant time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.heap(),
            Form::Table(table) => block(size_of::<Table<Pairs, 2>>()) + table.heap(),
        }
    }

    /// Frees up to about `most` fields of a hash that is not used any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        match &mut self.form {
            Form::Packed(_) => 0,
            Form::Table(table) => table.free_some(most),
        }
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<Text<'_>> {
        match &self.form {
            Form::Packed(packed) => packed.find_behind(&Code::of(field)),
            Form::Table(table) => Some(table.text(table.position(field)?, 1)),
        }
    }

    /// Makes room for fields and values that are about to be set, if there are none yet.
    pub fn reserve(&mut self, texts: &[&[u8]], fit: Fit) {
        if let Form::Packed(packed) = &mut self.form
            && packed.len() == 0
            && (3..=2 * fit.entries).contains(&texts.len())
        {
            let sizes = texts.iter().map(|text| Packed::size_of(&Code::of(text)));
            packed.reserve(sizes.sum::<usize>().min(BYTES_MAX));
        }
    }

    /// Gives back memory that was [reserved](Hash::reserve) for fields that came twice.
    pub fn trim(&mut self) {
        if let Form::Packed(packed) = &mut self.form {
            packed.trim();
        }
    }

    /// Sets the value of a field; returns whether the field is new. An existing field keeps its
    /// place in a small hash.
    pub fn set(&mut self, field: &[u8], value: &[u8], fit: Fit) -> bool {
        let codes = [Code::of(field), Code::of(value)];
        if let Form::Packed(packed) = &mut self.form {
            let entries = fit.entries.min(ELEMENTS_MAX / 2);
            let fits = field.len().max(value.len()) <= fit.length
                && packed.len() / 2 <= entries
                && packed.size() + codes.iter().map(Packed::size_of).sum::<usize>() <= BYTES_MAX;
            match packed.find(&codes[0], 0, 2) {
                Some(at) if fits => {
                    packed.replace(at + 1, codes[1]);
                    return false;
                }
                None if fits && packed.len() / 2 < entries => {
                    packed.insert(packed.len(), &codes);
                    return true;
                }
                _ => self.spread(),
            }
        }
        let Form::Table(table) = &mut self.form else {
            unreachable!("it was spread if it was not a table");
        };
        let added = table.add(codes, [field, value]);
        if let Err(at) = added {
            table.set(at, 1, codes[1], value);
        }
        added.is_ok()
    }

    fn spread(&mut self) {
        let mut table = Table::default();
        self.each(|field, value| {
            let codes = [Code::of(field), Code::of(value)];
            // The fields of a hash are different ones.
            let _ = table.add(codes, [field, value]);
        });
        self.form = Form::Table(Box::new(table));
    }

    /// Removes a field; returns whether the field was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.form {
            Form::Packed(packed) => {
                let at = packed.find(&Code::of(field), 0, 2);
                at.map(|at| packed.remove(at, 2)).is_some()
            }
            Form::Table(table) => {
                let at = table.position(field);
                at.map(|at| table.remove(at)).is_some()
            }
        }
    }

    /// Calls `show` with every field and its value.
    pub fn each(&self, mut show: impl FnMut(&[u8], &[u8])) {
        match &self.form {
            Form::Packed(packed) => {
                let mut texts = packed.iter();
                while let (Some(field), Some(value)) = (texts.next(), texts.next()) {
                    show(&field, &value);
                }
            }
            Form::Table(table) => {
                (0..table.len()).for_each(|at| show(&table.text(at, 0), &table.text(at, 1)));
            }
        }
    }

    /// The field at an index below the length with its value, in an order of its own that changes
    /// with the hash.
    fn nth(&self, index: usize) -> (Text<'_>, Text<'_>) {
        match &self.form {
            Form::Packed(packed) => (packed.get(2 * index), packed.get(2 * index + 1)),
            Form::Table(table) => (table.text(index, 0), table.text(index, 1)),
        }
    }

    /// Fields at random with their values: `wanted` different ones, or that many with repetitions if
    /// it is negative. Takes the time of as many, whatever the length.
    pub fn sample(&self, wanted: i64, rng: &mut fastrand::Rng) -> Vec<(Text<'_>, Text<'_>)> {
        let chosen = indices(self.len(), wanted, rng);
        chosen.into_iter().map(|at| self.nth(at)).collect()
    }

    /// Shows about `count` fields from a cursor on, all of a small hash; the next cursor, 0 at the
    /// end.
    pub fn scan(&self, cursor: u64, count: usize, mut show: impl FnMut(&[u8], &[u8])) -> u64 {
        match &self.form {
            Form::Packed(_) => {
                self.each(show);
                0
            }
            Form::Table(table) => table.scan(cursor, count, |at| {
                show(&table.text(at, 0), &table.text(at, 1));
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn fields_of_a_small_hash_keep_their_order() {
        let mut hash = Hash::default();
        for field in [b"a", b"b", b"c"] {
            assert!(hash.set(field, b"1", Fit::HASH));
        }
        assert!(!hash.set(b"a", b"longer", Fit::HASH));
        assert!(!hash.set(b"b", b"", Fit::HASH));
        let mut all = Vec::new();
        hash.each(|field, value| all.push([field, value].concat()));
        assert_eq!(all, [&b"alonger"[..], b"b", b"c1"]);
        assert!(!hash.set(b"b", &[b'x'; 65], Fit::HASH));
        assert_eq!((hash.encoding(), hash.len()), ("hashtable", 3));
    }

    #[test]
    fn the_limits_are_as_set() {
        let fit = Fit {
            entries: 3,
            length: 5,
        };
        let encoding = |pairs: &[(&str, &str)]| {
            let mut hash = Hash::default();
            for (field, value) in pairs {
                hash.set(field.as_bytes(), value.as_bytes(), fit);
            }
            hash.encoding()
        };
        let three = [("a", "1"), ("b", "12345"), ("12345", "3")];
        assert_eq!(encoding(&three), "listpack");
        assert_eq!(encoding(&[&three[..], &[("a", "2")]].concat()), "listpack");
        assert_eq!(encoding(&[&three[..], &[("c", "2")]].concat()), "hashtable");
        assert_eq!(encoding(&[("a", "123456")]), "hashtable");
        assert_eq!(encoding(&[("123456", "1")]), "hashtable");
        // A threshold that was lowered holds from the next change on.
        let mut hash = Hash::default();
        for field in ["a", "b", "c"] {
            hash.set(field.as_bytes(), b"1", fit);
        }
        hash.set(b"a", b"2", Fit { entries: 2, ..fit });
        assert_eq!((hash.encoding(), hash.len()), ("hashtable", 3));
        // No limit allows more than a bound of our own.
        let any = Fit {
            entries: usize::MAX,
            length: usize::MAX,
        };
        let mut hash = Hash::default();
        assert!(hash.set(b"a", &[b'x'; BYTES_MAX - 100], any));
        assert_eq!(hash.encoding(), "listpack");
        assert!(hash.set(b"b", &[b'x'; 100], any));
        assert_eq!(hash.encoding(), "hashtable");
    }

    proptest! {
        #[test]
        fn does_what_a_plain_map_does(
            acts in proptest::collection::vec((0u8..4, 0u16..200, 0usize..80), 1..600),
            entries in 0usize..200,
        ) {
            let fit = Fit { entries, length: 70 };
            let (mut hash, mut model) = (Hash::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            for (act, field, len) in acts {
                let field = match field % 10 {
                    0 => vec![b'f'; usize::from(field) * 2],
                    _ => field.to_string().into_bytes(),
                };
                let value = match len {
                    ..20 => (len * 12_345).to_string().into_bytes(),
                    75.. => vec![b'v'; len * 4],
                    _ => vec![b'v'; len],
                };
                match act {
                    0 => prop_assert_eq!(hash.remove(&field), model.remove(&field).is_some()),
                    1 => prop_assert_eq!(hash.get(&field).map(|v| v.to_vec()), model.get(&field).cloned()),
                    _ => prop_assert_eq!(hash.set(&field, &value, fit), model.insert(field, value).is_none()),
                }
                prop_assert_eq!(hash.len(), model.len());
            }
            let mut all = BTreeMap::new();
            hash.each(|f, v| { all.insert(f.to_vec(), v.to_vec()); });
            prop_assert_eq!(&all, &model);
            let mut scanned = BTreeMap::new();
            let mut cursor = 0;
            loop {
                cursor = hash.scan(cursor, 7, |f, v| { scanned.insert(f.to_vec(), v.to_vec()); });
                if cursor == 0 { break; }
            }
            prop_assert_eq!(scanned, model);
        }
    }
}
