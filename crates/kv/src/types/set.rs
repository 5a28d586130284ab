//! Sets: of integers sorted, small ones packed, others a table.

use super::fit::{BYTES_MAX, SetFit};
use super::integers::Integers;
use super::packed::{Code, ELEMENTS_MAX, Packed};
use super::sample::indices;
use super::spread::{Freeze, Spread};
use super::table::{Shape, Table};
use super::text::Text;
use crate::allocator::block;
use crate::number::{parse_integer, put_text};

/// Most integers in a set of integers, even if the setting allows more: at their full width they have
/// as many bytes as any packed block.
const INTEGERS_MAX: usize = BYTES_MAX / 8;

#[derive(Debug)]
struct Members;

impl Shape<1> for Members {
    fn put(table: &Table<Members, 1>, at: usize, to: &mut Vec<u8>) {
        put_text(to, &table.text(at, 0));
    }
}

#[derive(Clone, Debug)]
enum Form {
    Integers(Integers),
    Packed(Packed),
    Table(Box<Table<Members, 1>>),
}

/// Members without order.
#[derive(Clone, Debug)]
pub struct Set {
    form: Form,
}

impl Default for Set {
    fn default() -> Set {
        Set {
            form: Form::Integers(Integers::default()),
        }
    }
}

impl Spread for Set {
    fn table(&self) -> Option<&dyn Freeze> {
        match &self.form {
            Form::Table(table) => Some(&**table),
            _ => None,
        }
    }

    fn table_mut(&mut self) -> Option<&mut dyn Freeze> {
        match &mut self.form {
            Form::Table(table) => Some(&mut **table),
            _ => None,
        }
    }
}

impl Set {
    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.len(),
            Form::Packed(packed) => packed.len(),
            Form::Table(table) => table.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the set's encoding, as OBJECT ENCODING answers.
    #[must_use]
    pub fn encoding(&self) -> &'static str {
        match self.form {
            Form::Integers(_) => "intset",
            Form::Packed(_) => "listpack",
            Form::Table(_) => "hashtable",
        }
    }

    /// Bytes of memory that the set owns, as the allocator counts; takes constant time.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Integers(integers) => integers.heap(),
            Form::Packed(packed) => packed.heap(),
            Form::Table(table) => block(size_of::<Table<Members, 1>>()) + table.heap(),
        }
    }

    /// Frees up to about `most` members of a set that is not used any more; how many.
    pub(crate) fn free_some(&mut self, most: usize) -> usize {
        match &mut self.form {
            Form::Table(table) => table.free_some(most),
            _ => 0,
        }
    }

    /// Whether the set has this member.
    #[must_use]
    pub fn contains(&self, member: &[u8]) -> bool {
        match &self.form {
            Form::Integers(integers) => parse_integer(member).is_some_and(|n| integers.contains(n)),
            Form::Packed(packed) => packed.find(&Code::of(member), 0, 1).is_some(),
            Form::Table(table) => table.position(member).is_some(),
        }
    }

    /// Makes room for members that are about to be added, if there are none yet.
    pub fn reserve(&mut self, members: &[&[u8]], fit: SetFit) {
        let Form::Integers(integers) = &mut self.form else {
            return;
        };
        let numbers = || members.iter().map_while(|member| parse_integer(member));
        let count = match members {
            [_, _, ..] if integers.len() == 0 => numbers().count(),
            _ => return,
        };
        if count == members.len() && count <= fit.integers.min(INTEGERS_MAX) {
            integers.reserve_for(numbers());
        } else if count == 0 && members.len() <= fit.packed.entries {
            // A set that begins with an integer is sorted first.
            let sizes = members
                .iter()
                .map(|member| Packed::size_of(&Code::of(member)));
            let mut packed = Packed::default();
            packed.reserve(sizes.sum::<usize>().min(BYTES_MAX));
            self.form = Form::Packed(packed);
        }
    }

    /// Gives back memory that was [reserved](Set::reserve) for members that came twice.
    pub fn trim(&mut self) {
        match &mut self.form {
            Form::Integers(integers) => integers.trim(),
            Form::Packed(packed) => packed.trim(),
            Form::Table(_) => {}
        }
    }

    /// Adds a member; returns whether the member is new.
    pub fn insert(&mut self, member: &[u8], fit: SetFit) -> bool {
        if let Form::Integers(integers) = &mut self.form {
            match parse_integer(member) {
                Some(n) if integers.len() < fit.integers.min(INTEGERS_MAX) => {
                    return integers.insert(n);
                }
                Some(n) if integers.contains(n) => return false,
                // Too many integers are a table at once, whatever may be packed.
                Some(_) if integers.len() > 0 => self.spread(),
                _ => self.unsort(member, fit),
            }
        }
        let code = Code::of(member);
        if let Form::Packed(packed) = &mut self.form {
            if packed.find(&code, 0, 1).is_some() {
                return false;
            }
            if packed.len() < fit.packed.entries.min(ELEMENTS_MAX)
                && member.len() <= fit.packed.length
                && packed.size() + Packed::size_of(&code) <= BYTES_MAX
            {
                packed.insert(packed.len(), &[code]);
                return true;
            }
            self.spread();
        }
        match &mut self.form {
            Form::Table(table) => table.add([code], [member]).is_ok(),
            _ => unreachable!("it was spread if it was not a table"),
        }
    }

    /// Makes integers strings, if that many of them may be packed with one more.
    fn unsort(&mut self, more: &[u8], fit: SetFit) {
        let entries = fit.packed.entries.min(ELEMENTS_MAX);
        if self.len() >= entries || more.len() > fit.packed.length {
            return self.spread();
        }
        let mut packed = Packed::default();
        let mut longest = 0;
        self.each(|member| {
            longest = longest.max(member.len());
            packed.insert(packed.len(), &[Code::of(member)]);
        });
        if longest > fit.packed.length || packed.size() > BYTES_MAX {
            return self.spread();
        }
        self.form = Form::Packed(packed);
    }

    fn spread(&mut self) {
        let mut table = Table::default();
        self.each(|member| {
            // The members of a set are different ones.
            let _ = table.add([Code::of(member)], [member]);
        });
        self.form = Form::Table(Box::new(table));
    }

    /// Removes a member; returns whether the member was there.
    pub fn remove(&mut self, member: &[u8]) -> bool {
        match &mut self.form {
            Form::Integers(integers) => parse_integer(member).is_some_and(|n| integers.remove(n)),
            Form::Packed(packed) => {
                let at = packed.find(&Code::of(member), 0, 1);
                at.map(|at| packed.remove(at, 1)).is_some()
            }
            Form::Table(table) => {
                let at = table.position(member);
                at.map(|at| table.remove(at)).is_some()
            }
        }
    }

    /// Shows every member.
    pub fn each(&self, mut show: impl FnMut(&[u8])) {
        match &self.form {
            Form::Integers(integers) => integers.iter().for_each(|n| show(&Text::number(n))),
            Form::Packed(packed) => packed.iter().for_each(|member| show(&member)),
            Form::Table(table) => (0..table.len()).for_each(|at| show(&table.text(at, 0))),
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
    fn nth(&self, index: usize) -> Text<'_> {
        match &self.form {
            Form::Integers(integers) => Text::number(integers.get(index)),
            Form::Packed(packed) => packed.get(index),
            Form::Table(table) => table.text(index, 0),
        }
    }

    /// Members at random: `wanted` different ones, or that many with repetitions if it is negative.
    /// Takes the time of as many, whatever the length.
    pub fn sample(&self, wanted: i64, rng: &mut fastrand::Rng) -> Vec<Vec<u8>> {
        let chosen = indices(self.len(), wanted, rng);
        chosen.into_iter().map(|at| self.nth(at).to_vec()).collect()
    }

    /// Shows about `count` members from a cursor on, all of a small set; the next cursor, 0 at the
    /// end.
    pub fn scan(&self, cursor: u64, count: usize, mut show: impl FnMut(&[u8])) -> u64 {
        match &self.form {
            Form::Table(table) => table.scan(cursor, count, |at| show(&table.text(at, 0))),
            _ => {
                self.each(show);
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::Fit;
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
                    _ => prop_assert_eq!(set.insert(&member, SetFit::USUAL), model.insert(member.clone())),
                }
                prop_assert_eq!(set.contains(&member), model.contains(&member));
                prop_assert_eq!(set.len(), model.len());
            }
            prop_assert_eq!(set.members().into_iter().collect::<BTreeSet<_>>(), model);
        }
    }

    #[test]
    fn what_began_as_integers_is_in_their_order() {
        let of = |members: &[&[u8]]| {
            let mut set = Set::default();
            set.reserve(members, SetFit::USUAL);
            for member in members {
                set.insert(member, SetFit::USUAL);
            }
            set.trim();
            set.members().concat()
        };
        assert_eq!(of(&[b"5", b"3", b"a", b"1"]), b"35a1");
        assert_eq!(of(&[b"5", b"3", b"1"]), b"135");
        assert_eq!(of(&[b"a", b"3", b"1"]), b"a31");
    }

    #[test]
    fn no_setting_makes_a_set_that_is_moved_at_length() {
        let any = SetFit {
            integers: usize::MAX,
            packed: Fit {
                entries: usize::MAX,
                length: usize::MAX,
            },
        };
        let mut set = Set::default();
        for n in 0..20_000 {
            set.insert((n << 40).to_string().as_bytes(), any);
            assert_eq!(set.encoding() == "intset", n < INTEGERS_MAX as i64);
        }
        let mut set = Set::default();
        for n in 0..16_000i64 {
            set.insert((n - (1 << 62)).to_string().as_bytes(), any);
        }
        set.insert(b"word", any);
        assert_eq!((set.encoding(), set.len()), ("hashtable", 16_001));
    }

    #[test]
    fn what_comes_twice_takes_no_room() {
        let members = [&b"member"[..]; 100];
        let numbers = [&b"12345"[..]; 100];
        for members in [members, numbers] {
            let mut set = Set::default();
            set.reserve(&members, SetFit::USUAL);
            for member in members {
                set.insert(member, SetFit::USUAL);
            }
            set.trim();
            assert!(set.bytes() <= 32, "{}", set.bytes());
        }
    }

    #[test]
    fn encodings() {
        let mut set = Set::default();
        (0..20).for_each(|n| assert!(set.insert(n.to_string().as_bytes(), SetFit::USUAL)));
        assert_eq!(set.encoding(), "intset");
        set.insert(b"word", SetFit::USUAL);
        assert_eq!(set.encoding(), "listpack");
        set.insert(&[b'x'; 65], SetFit::USUAL);
        assert_eq!(set.encoding(), "hashtable");
        assert_eq!(set.len(), 22);
    }
}
