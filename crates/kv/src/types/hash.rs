//! Hashes: fields and their values. Small ones are packed, others a table.

use super::packed::Packed;
use super::sample::indices;
use super::spread::Spread;
use super::table::{Keyed, Table};
use crate::allocator::block;
use crate::number::put_text;

/// Most fields of a packed hash.
const FIELDS: usize = 128;
/// Longest field or value in one.
const LENGTH: usize = 64;

/// A field with its value in one allocation.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    bytes: Box<[u8]>,
    field: u32,
}

impl Pair {
    fn new(field: &[u8], value: &[u8]) -> Pair {
        Pair {
            bytes: [field, value].concat().into(),
            field: field.len() as u32,
        }
    }

    fn split(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.field as usize)
    }
}

impl Keyed for Pair {
    fn key(&self) -> &[u8] {
        self.split().0
    }

    fn heap(&self) -> usize {
        block(self.bytes.len())
    }

    fn put(&self, to: &mut Vec<u8>) {
        let (field, value) = self.split();
        put_text(to, field);
        put_text(to, value);
    }
}

#[derive(Clone, Debug)]
enum Form {
    /// Fields and values in turn.
    Packed(Packed),
    Table(Box<Table<Pair>>),
}

/// Fields and their values.
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
    type Entry = Pair;

    fn table(&self) -> Option<&Table<Pair>> {
        match &self.form {
            Form::Table(table) => Some(table),
            _ => None,
        }
    }

    fn table_mut(&mut self) -> Option<&mut Table<Pair>> {
        match &mut self.form {
            Form::Table(table) => Some(table),
            _ => None,
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

    /// The name of its encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.form {
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes of memory, as the allocator gives it; takes the same time whatever the length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let form = match &self.form {
            Form::Packed(packed) => packed.heap(),
            Form::Table(table) => block(size_of::<Table<Pair>>()) + table.heap(),
        };
        block(size_of::<Hash>()) + form
    }

    /// Frees up to `most` fields of a hash that nobody will look into any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        match &mut self.form {
            Form::Packed(_) => 0,
            Form::Table(table) => table.free_some(most),
        }
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match &self.form {
            Form::Packed(packed) => find(packed, field).map(|at| packed.get(at + 1)),
            Form::Table(table) => table.get(field).map(|pair| pair.split().1),
        }
    }

    /// Gives a field a value; whether it is new. A field that is there keeps its place among the
    /// others of a small hash.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if let Form::Packed(packed) = &mut self.form {
            let at = find(packed, field);
            let fits = value.len() <= LENGTH;
            match at {
                Some(at) if fits => {
                    packed.replace(at + 1, value);
                    return false;
                }
                None if fits && packed.len() / 2 < FIELDS && field.len() <= LENGTH => {
                    packed.insert(packed.len(), field);
                    packed.insert(packed.len(), value);
                    return true;
                }
                _ => self.spread(),
            }
        }
        let mut old = None;
        if let Form::Table(table) = &mut self.form {
            old = table.insert(Pair::new(field, value));
        }
        old.is_none()
    }

    fn spread(&mut self) {
        let mut table = Table::default();
        self.iter().for_each(|(field, value)| {
            table.insert(Pair::new(field, value));
        });
        self.form = Form::Table(Box::new(table));
    }

    /// Takes a field out; its value.
    pub fn remove(&mut self, field: &[u8]) -> Option<Vec<u8>> {
        match &mut self.form {
            Form::Packed(packed) => {
                let at = find(packed, field)?;
                packed.remove(at);
                Some(packed.remove(at))
            }
            Form::Table(table) => Some(table.remove(field)?.split().1.to_vec()),
        }
    }

    /// All fields with their values.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        match &self.form {
            Form::Packed(packed) => {
                let pairs = (0..packed.len()).step_by(2);
                Box::new(pairs.map(|at| (packed.get(at), packed.get(at + 1))))
            }
            Form::Table(table) => Box::new(table.iter().map(Pair::split)),
        }
    }

    /// The field at an index below the length with its value, in an order of its own that changes
    /// with the hash.
    fn nth(&self, index: usize) -> (&[u8], &[u8]) {
        match &self.form {
            Form::Packed(packed) => (packed.get(2 * index), packed.get(2 * index + 1)),
            Form::Table(table) => table.at(index).split(),
        }
    }

    /// Fields at random with their values: `wanted` different ones, or that many with repetitions if
    /// it is negative. Takes the time of as many, whatever the length.
    pub fn sample(&self, wanted: i64, rng: &mut fastrand::Rng) -> Vec<(&[u8], &[u8])> {
        let chosen = indices(self.len(), wanted, rng);
        chosen.into_iter().map(|at| self.nth(at)).collect()
    }

    /// Shows about `count` fields from a cursor on, all of a small hash; the next cursor, 0 at the
    /// end.
    pub fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut show: impl FnMut(&'a [u8], &'a [u8]),
    ) -> u64 {
        match &self.form {
            Form::Packed(_) => {
                self.iter().for_each(|(field, value)| show(field, value));
                0
            }
            Form::Table(table) => table.scan(cursor, count, |pair| {
                let (field, value) = pair.split();
                show(field, value);
            }),
        }
    }
}

fn find(packed: &Packed, field: &[u8]) -> Option<usize> {
    (0..packed.len())
        .step_by(2)
        .find(|&at| packed.get(at) == field)
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
            assert!(hash.set(field, b"1"));
        }
        assert!(!hash.set(b"a", b"longer"));
        assert!(!hash.set(b"b", b""));
        let all: Vec<_> = hash.iter().collect();
        assert_eq!(
            all,
            [(&b"a"[..], &b"longer"[..]), (b"b", b""), (b"c", b"1")]
        );
        assert!(!hash.set(b"b", &[b'x'; 65]));
        assert_eq!((hash.encoding(), hash.len()), ("hashtable", 3));
    }

    proptest! {
        #[test]
        fn does_what_a_plain_map_does(
            acts in proptest::collection::vec((0u8..4, 0u16..200, 0usize..80), 1..600),
        ) {
            let (mut hash, mut model) = (Hash::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            for (act, field, len) in acts {
                let (field, value) = (field.to_string().into_bytes(), vec![b'v'; len]);
                match act {
                    0 => prop_assert_eq!(hash.remove(&field), model.remove(&field)),
                    1 => prop_assert_eq!(hash.get(&field), model.get(&field).map(Vec::as_slice)),
                    _ => prop_assert_eq!(hash.set(&field, &value), model.insert(field, value).is_none()),
                }
                prop_assert_eq!(hash.len(), model.len());
            }
            let all: BTreeMap<_, _> = hash.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
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
