//! Some at random, at the cost of as many: what SRANDMEMBER and its like choose.

use std::collections::HashSet;

/// Chooses which of `len` elements to show. A positive `wanted` asks for that many different ones,
/// in random order unless it is all of them; a negative one asks for that many random ones, which
/// may repeat.
pub(crate) fn indices(len: usize, wanted: i64, rng: &mut fastrand::Rng) -> Vec<usize> {
    let count = usize::try_from(wanted.unsigned_abs()).unwrap_or(usize::MAX);
    if len == 0 {
        Vec::new()
    } else if wanted < 0 {
        (0..count).map(|_| rng.usize(..len)).collect()
    } else if count >= len {
        (0..len).collect()
    } else {
        distinct(len, count, rng)
    }
}

/// `count` of the indices below `len`, every choice as likely as any other. The steps and the
/// memory grow with the number of results, whatever `len` is.
fn distinct(len: usize, count: usize, rng: &mut fastrand::Rng) -> Vec<usize> {
    if count > len / 2 {
        // A shuffle that stops early: more than half of the work is of use.
        let mut all: Vec<usize> = (0..len).collect();
        for at in 0..count {
            all.swap(at, rng.usize(at..len));
        }
        all.truncate(count);
        return all;
    }
    // Less than two tries for each, on average.
    let mut taken = HashSet::with_capacity(count);
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let index = rng.usize(..len);
        if taken.insert(index) {
            chosen.push(index);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{Fit, Hash, Set, SetFit, ZSet};
    use super::*;

    /// How far counts are from all alike: the chi-squared statistic per degree of freedom, about 1
    /// for fair ones.
    fn unevenness(counts: &[u32]) -> f64 {
        let mean = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let squares = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean);
        squares.sum::<f64>() / (counts.len() - 1) as f64
    }

    #[test]
    fn the_cost_is_that_of_the_count() {
        let mut rng = fastrand::Rng::with_seed(1);
        // With a step or a byte for each of these, this would not end.
        for count in [1, 2, 1000] {
            let chosen = indices(usize::MAX, count, &mut rng);
            assert_eq!(chosen.len(), count as usize);
            assert_eq!(indices(usize::MAX, -count, &mut rng).len(), count as usize);
        }
    }

    /// The unevenness of a sample of the names 0, 1, ... `sample` shows, each call several.
    fn unevenness_of(names: &[Vec<u8>], mut sample: impl FnMut() -> Vec<Vec<u8>>) -> f64 {
        let place: HashMap<&[u8], usize> = names.iter().map(|n| &n[..]).zip(0..).collect();
        let mut counts = vec![0; names.len()];
        while counts.iter().sum::<u32>() < 40 * names.len() as u32 {
            sample()
                .iter()
                .for_each(|name| counts[place[&name[..]]] += 1);
        }
        unevenness(&counts)
    }

    /// Collections of each encoding, large ones after nearly as many deletions as insertions: fair
    /// with one, some, most, and one at a time.
    #[test]
    fn every_element_is_as_likely_in_every_encoding() {
        let mut rng = fastrand::Rng::with_seed(3);
        for (encoding, len, prefix) in [
            ("intset", 300, ""),
            ("listpack", 100, "m"),
            ("hashtable", 700, "m"),
        ] {
            let (mut set, mut hash, mut zset) = (Set::default(), Hash::default(), ZSet::default());
            let name = |n: usize| format!("{prefix}{n}").into_bytes();
            for n in 0..len {
                set.insert(&name(n), SetFit::USUAL);
                hash.set(&name(n), b"value", Fit::ZSET);
                zset.insert(&name(n), n as f64, Fit::ZSET);
            }
            let gone = |n: &usize| len == 700 && n % 5 != 2;
            for n in (0..len).filter(gone) {
                set.remove(&name(n));
                hash.remove(&name(n));
                zset.remove(&name(n));
            }
            assert_eq!(set.encoding(), encoding);
            assert_eq!(hash.encoding() == "hashtable", len > 128);
            let names: Vec<Vec<u8>> = (0..len).filter(|n| !gone(n)).map(name).collect();
            for wanted in [1, 5, names.len() as i64 - 2, -1, -7] {
                let of_set = unevenness_of(&names, || set.sample(wanted, &mut rng));
                let of_hash = unevenness_of(&names, || {
                    let chosen = hash.sample(wanted, &mut rng);
                    chosen
                        .into_iter()
                        .map(|(field, _)| field.to_vec())
                        .collect()
                });
                let of_zset = unevenness_of(&names, || {
                    let chosen = zset.sample(wanted, &mut rng);
                    chosen
                        .into_iter()
                        .map(|scored| scored.member.to_vec())
                        .collect()
                });
                let all = [of_set, of_hash, of_zset];
                assert!(
                    all.iter().all(|u| *u < 1.6),
                    "{encoding}, {wanted}: {all:?}"
                );
            }
        }
    }

    #[test]
    fn all_when_more_are_wanted_than_there_are() {
        let mut rng = fastrand::Rng::with_seed(1);
        assert_eq!(indices(3, 3, &mut rng), [0, 1, 2]);
        assert_eq!(indices(3, i64::MAX, &mut rng), [0, 1, 2]);
        assert_eq!(indices(0, -7, &mut rng), []);
        assert_eq!(indices(5, 0, &mut rng), []);
    }

    #[test]
    fn every_index_and_every_place_is_as_likely() {
        let mut rng = fastrand::Rng::with_seed(2);
        const LEN: usize = 40;
        for wanted in [1, 3, 15, 20, 21, 39, -1, -3, -60] {
            let (mut chosen, mut first) = ([0u32; LEN], [0u32; LEN]);
            for _ in 0..20_000 {
                let some = indices(LEN, wanted, &mut rng);
                some.iter().for_each(|&at| chosen[at] += 1);
                first[some[0]] += 1;
                if wanted > 0 {
                    let different: HashSet<_> = some.iter().collect();
                    assert_eq!(different.len(), wanted as usize);
                }
            }
            assert!(
                unevenness(&chosen) < 2.0,
                "{wanted}: {}",
                unevenness(&chosen)
            );
            assert!(unevenness(&first) < 2.0, "{wanted}: {}", unevenness(&first));
        }
    }
}
