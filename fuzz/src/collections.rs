//! Collections against plain ones, over the limits of their small forms and back, with elements of every
//! encoding.

use std::collections::{BTreeMap, BTreeSet};

use tidewire_kv::types::{End, Fit, Hash, List, ListFit, Set, SetFit, ZSet};

/// What is left of the input.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> usize {
        usize::from(self.next().unwrap_or(0))
    }

    /// An element: numbers of every width and texts that nearly are one, others of lengths around the
    /// limits, and what the input has.
    fn text(&mut self) -> Vec<u8> {
        let (kind, n) = (self.number(), self.number());
        match kind % 8 {
            0 => (n as i64 - 128).to_string().into_bytes(),
            1 => {
                let shift = kind as u32 / 8 * 2;
                let sign = if n & 1 == 0 { 1 } else { -1 };
                let at = (1i128 << shift) + n as i128 / 2 - 3;
                (sign * at).to_string().into_bytes()
            }
            2 => format!("0{n}").into_bytes(),
            3 => vec![b'x'; n],
            4 => vec![b'y'; 188 + n % 8],
            5 => vec![b'z'; 253 + n % 8],
            6 if n == 7 => vec![b'l'; 5000],
            _ => {
                let (some, rest) = self.0.split_at((n % 24).min(self.0.len()));
                self.0 = rest;
                some.to_vec()
            }
        }
    }

    fn score(&mut self) -> f64 {
        let n = self.number() as f64 - 100.0;
        match self.number() % 6 {
            0 => n / 100.0,
            1 => n / 7.0,
            2 => n * 1e13,
            3 => n * 1e300,
            4 => f64::INFINITY.copysign(n),
            _ => n,
        }
    }
}

/// The first bytes are limits, the rest are operations.
///
/// # Panics
/// If a collection is not what a plain one is.
pub fn kv_collections(input: &[u8]) {
    let mut bytes = Bytes(input);
    let fit = Fit {
        entries: bytes.number() / 4,
        length: bytes.number() + 150,
    };
    let sets = SetFit {
        integers: bytes.number() / 4,
        packed: fit,
    };
    let lists = ListFit(bytes.number() as i32 / 2 - 5);
    let (mut hash, mut pairs) = (Hash::default(), BTreeMap::new());
    let (mut set, mut members) = (Set::default(), BTreeSet::new());
    let (mut list, mut elements) = (List::default(), Vec::<Vec<u8>>::new());
    let (mut zset, mut scores) = (ZSet::default(), BTreeMap::new());
    while let Some(act) = bytes.next() {
        let text = bytes.text();
        let place = bytes.number();
        let at = place % (elements.len() + 1);
        match act % 12 {
            0 | 1 => {
                let value = bytes.text();
                let new = pairs.insert(text.clone(), value.clone()).is_none();
                assert_eq!(hash.set(&text, &value, fit), new);
            }
            2 => assert_eq!(hash.remove(&text), pairs.remove(&text).is_some()),
            3 | 4 => assert_eq!(set.insert(&text, sets), members.insert(text.clone())),
            5 => assert_eq!(set.remove(&text), members.remove(&text)),
            6 => {
                list.expect(&[&text], lists);
                let end = if place & 1 == 0 {
                    End::Left
                } else {
                    End::Right
                };
                list.push(end, &text);
                let at = if end == End::Left { 0 } else { elements.len() };
                elements.insert(at, text.clone());
            }
            7 => {
                list.expect(&[&text], lists);
                list.insert(at, &text);
                elements.insert(at, text.clone());
            }
            8 => {
                assert_eq!(list.remove(at), at < elements.len());
                elements.splice(at..(at + 1).min(elements.len()), []);
                list.settle(lists);
            }
            9 => {
                assert_eq!(list.set(at, &text), at < elements.len());
                if let Some(element) = elements.get_mut(at) {
                    element.clone_from(&text);
                }
            }
            10 => {
                let score = bytes.score();
                let old = scores.insert(text.clone(), score);
                assert_eq!(zset.insert(&text, score, fit), old);
            }
            _ => assert_eq!(zset.remove(&text), scores.remove(&text)),
        }
        assert_eq!(
            hash.get(&text).map(|v| v.to_vec()),
            pairs.get(&text).cloned()
        );
        assert_eq!(set.contains(&text), members.contains(&text));
        assert_eq!(zset.score(&text), scores.get(&text).copied());
        assert_eq!(list.get(at).map(|x| x.to_vec()), elements.get(at).cloned());
        let lengths = (hash.len(), set.len(), list.len(), zset.len());
        assert_eq!(
            lengths,
            (pairs.len(), members.len(), elements.len(), scores.len())
        );
    }
    let mut found = BTreeMap::new();
    hash.each(|field, value| drop(found.insert(field.to_vec(), value.to_vec())));
    assert_eq!(found, pairs);
    assert!(BTreeSet::from_iter(set.members()) == members);
    assert!(
        list.iter_from(0)
            .map(|x| x.to_vec())
            .eq(elements.iter().cloned())
    );
    assert!(
        list.iter_back()
            .map(|x| x.to_vec())
            .eq(elements.iter().rev().cloned())
    );
    let mut order: Vec<(f64, Vec<u8>)> = scores.iter().map(|(m, s)| (*s, m.clone())).collect();
    order.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    let ranked = |rank| zset.iter_from(rank).map(|s| (s.score, s.member.to_vec()));
    assert!(ranked(0).eq(order.iter().cloned()));
    let half = order.len() / 2;
    assert!(ranked(half).eq(order[half..].iter().cloned()));
}
