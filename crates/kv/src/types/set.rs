//! Sets: of integers sorted, small ones packed, others a table.

use super::packed::Packed;
use super::sample::indices;
use super::spread::Spread;
use super::table::Table;
use crate::allocator::{block, block_of};
use crate::number::parse_integer;

/// Most members of a sorted set of integers.
const INTEGERS: usize = 512;
/// Most members of a packed set.
const MEMBERS: usize = 128;
/// Longest member in one.
const LENGTH: usize = 64;

#[derive(Clone, Debug)]
enum Form {
    /// Sorted.
    Integers(Vec<i64>),
    Packed(Packed),
    Table(Box<Table<Box<[u8]>>>),
}

/// Members without order.
#[derive(Clone, Debug)]
pub struct Set {
    form: Form,
}

impl Default for Set {
    fn default() -> Set {
        Set {
            form: Form::Integers(Vec::new()),
        }
    }
}

impl Spread for Set {
    type Entry = Box<[u8]>;

    fn table(&self) -> Option<&Table<Box<[u8]>>> {
        match &self.form {
            Form::Table(table) => Some(table),
            _ => None,
        }
    }

    fn table_mut(&mut self) -> Option<&mut Table<Box<[u8]>>> {
        match &mut self.form {
            Form::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Set {
    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Integers(sorted) => sorted.len(),
            Form::Packed(packed) => packed.len(),
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
            Form::Integers(_) => "intset",
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes of memory, as the allocator gives it; takes the same time whatever the length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let form = match &self.form {
            Form::Integers(sorted) => block_of::<i64>(sorted.capacity()),
            Form::Packed(packed) => packed.heap(),
            Form::Table(table) => block(size_of::<Table<Box<[u8]>>>()) + table.heap(),
        };
        block(size_of::<Set>()) + form
    }

    /// Frees up to `most` members of a set that nobody will look into any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        match &mut self.form {
            Form::Table(table) => table.free_some(most),
            _ => 0,
        }
    }

    /// Whether it has this member.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Integers(sorted) => {
                parse_integer(member).is_some_and(|n| sorted.binary_search(&n).is_ok())
            }
            Form::Packed(packed) => packed.iter().any(|m| m == member),
            Form::Table(table) => table.get(member).is_some(),
        }
    }

    /// Adds a member; whether it is new.
    pub fn insert(&mut self, member: &[u8]) -> bool {
        if let Form::Integers(sorted) = &mut self.form {
            match parse_integer(member) {
                Some(n) if sorted.len() < INTEGERS => {
                    let place = sorted.binary_search(&n);
                    if let Err(at) = place {
                        sorted.insert(at, n);
                    }
                    return place.is_err();
                }
                _ if self.contains(member) => return false,
                _ => self.unsort(member),
            }
        }
        if let Form::Packed(packed) = &mut self.form {
            if packed.iter().any(|m| m == member) {
                return false;
            }
            if packed.len() < MEMBERS && member.len() <= LENGTH {
                packed.insert(packed.len(), member);
                return true;
            }
            self.spread();
        }
        match &mut self.form {
            Form::Table(table) => table.add(member),
            _ => unreachable!("it was spread if it was not a table"),
        }
    }

    /// Makes the members strings, with room for one more.
    fn unsort(&mut self, more: &[u8]) {
        let members = self.members();
        let mut packed = Packed::default();
        members
            .iter()
            .for_each(|member| packed.insert(packed.len(), member));
        self.form = Form::Packed(packed);
        if members.len() >= MEMBERS || more.len() > LENGTH {
            self.spread();
        }
    }

    fn spread(&mut self) {
        let mut table = Table::default();
        self.each(|member| {
            table.add(member);
        });
        self.form = Form::Table(Box::new(table));
    }

    /// Takes a member out; whether it was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Form::Integers(sorted) => {
                let at = parse_integer(member).and_then(|n| sorted.binary_search(&n).ok());
                let removed = at.map(|at| sorted.remove(at)).is_some();
                super::spare(sorted);
                removed
            }
            Form::Packed(packed) => {
                let at = packed.iter().position(|m| m == member);
                at.map(|at| packed.remove(at)).is_some()
            }
            Form::Table(table) => table.remove(member).is_some(),
        }
    }

    /// Shows every member.
    pub fn each(&self, mut show: impl FnMut(&[u8])) {
        match &self.form {
            Form::Integers(sorted) => sorted.iter().for_each(|n| show(n.to_string().as_bytes())),
            Form::Packed(packed) => packed.iter().for_each(show),
            Form::Table(table) => table.iter().for_each(|member| show(member)),
        }
    }

    /// All members.
    #[must_use]
    pub fn members(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::with_capacity(self.len());
        self.each(|member| all.push(member.to_vec()));
        all
    }

    /// The member at an index below the length, in an order of its own that changes with the set.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn nth(&self, index: usize) -> Vec<u8> {
        match &self.form {
            Form::Integers(sorted) => sorted[index].to_string().into_bytes(),
            Form::Packed(packed) => packed.get(index).to_vec(),
            Form::Table(table) => table.at(index).to_vec(),
        }
    }

    /// Members at random: `wanted` different ones, or that many with repetitions if it is negative.
    /// Takes the time of as many, whatever the length.
    pub fn sample(&self, wanted: i64, rng: &mut fastrand::Rng) -> Vec<Vec<u8>> {
        let chosen = indices(self.len(), wanted, rng);
        chosen.into_iter().map(|at| self.nth(at)).collect()
    }

    /// Shows about `count` members from a cursor on, all of a small set; the next cursor, 0 at the
    /// end.
    pub fn scan(&self, cursor: u64, count: usize, mut show: impl FnMut(&[u8])) -> u64 {
        match &self.form {
            Form::Table(table) => table.scan(cursor, count, |member| show(member)),
            _ => {
                self.each(show);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn does_what_a_plain_set_does(
            acts in proptest::collection::vec((0u8..4, 0u16..900, 0u8..40), 1..900),
        ) {
            let (mut set, mut model) = (Set::default(), BTreeSet::<Vec<u8>>::new());
            for (act, n, odd) in acts {
                let member = match odd {
                    0 => vec![b'x'; usize::from(n)],
                    1 => format!("0{n}").into_bytes(),
                    _ => n.to_string().into_bytes(),
                };
                match act {
                    0 => prop_assert_eq!(set.remove(&member), model.remove(&member)),
                    _ => prop_assert_eq!(set.insert(&member), model.insert(member.clone())),
                }
                prop_assert_eq!(set.contains(&member), model.contains(&member));
                prop_assert_eq!(set.len(), model.len());
            }
            prop_assert_eq!(set.members().into_iter().collect::<BTreeSet<_>>(), model);
        }
    }

    #[test]
    fn encodings() {
        let mut set = Set::default();
        (0..20).for_each(|n| assert!(set.insert(n.to_string().as_bytes())));
        assert_eq!(set.encoding(), "intset");
        set.insert(b"word");
        assert_eq!(set.encoding(), "listpack");
        set.insert(&[b'x'; 65]);
        assert_eq!(set.encoding(), "hashtable");
        assert_eq!(set.len(), 22);
    }
}
