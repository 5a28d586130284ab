//! A set of shards of a store, by their numbers: the shards that a command needs, or that a runner
//! holds.
//!
//! The one idea: most commands need one shard, so one is a number and not a bit among thousands. Several are
//! bits: of the first 256 in place, beyond that in one allocation of the same size for all.

/// Most shards that a store has.
pub const SHARDS_MAX: usize = 4096;

const WORD: usize = u64::BITS as usize;
/// Words in place.
const FEW: usize = 4;
const MANY: usize = SHARDS_MAX / WORD;

/// Numbers of shards. Gone through in ascending order, which is the one in which locks are taken.
#[derive(Clone, Debug)]
pub(crate) enum ShardSet {
    One(u16),
    /// Numbers below 256, or none.
    Few([u64; FEW]),
    Many(Box<[u64; MANY]>),
}

impl ShardSet {
    pub(crate) const NONE: ShardSet = ShardSet::Few([0; FEW]);

    #[inline]
    pub(crate) fn one(at: usize) -> ShardSet {
        debug_assert!(at < SHARDS_MAX, "stores have no more");
        ShardSet::One(at as u16)
    }

    /// All shards of a store with `n` shards.
    pub(crate) fn first(n: usize) -> ShardSet {
        let mut all = ShardSet::NONE;
        (0..n).for_each(|at| all.insert(at));
        all
    }

    #[inline]
    pub(crate) fn insert(&mut self, at: usize) {
        match self {
            ShardSet::Few(words) if at / WORD < FEW => {
                if *words == [0; FEW] {
                    *self = ShardSet::one(at);
                } else {
                    words[at / WORD] |= 1 << (at % WORD);
                }
            }
            ShardSet::Many(words) => words[at / WORD] |= 1 << (at % WORD),
            ShardSet::One(before) if usize::from(*before) == at => {}
            _ => self.grow(at),
        }
    }

    /// Adds one for which there is no bit yet.
    fn grow(&mut self, at: usize) {
        let before = std::mem::replace(self, ShardSet::NONE);
        if before.is_empty() {
            *self = ShardSet::one(at);
            return;
        }
        let is_few = at < FEW * WORD && before.iter().all(|at| at < FEW * WORD);
        let (mut few, mut many) = ([0; FEW], None);
        let words = match is_few {
            true => &mut few[..],
            false => &mut many.insert(Box::new([0; MANY]))[..],
        };
        for at in before.iter().chain([at]) {
            words[at / WORD] |= 1 << (at % WORD);
        }
        *self = many.map_or(ShardSet::Few(few), ShardSet::Many);
    }

    /// Adds all of another.
    pub(crate) fn add(&mut self, other: &ShardSet) {
        other.iter().for_each(|at| self.insert(at));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    #[inline]
    pub(crate) fn contains(&self, at: usize) -> bool {
        match self {
            ShardSet::One(one) => usize::from(*one) == at,
            _ => {
                let word = self.words().get(at / WORD).copied().unwrap_or(0);
                word >> (at % WORD) & 1 != 0
            }
        }
    }

    fn words(&self) -> &[u64] {
        match self {
            ShardSet::One(_) => &[],
            ShardSet::Few(words) => words,
            ShardSet::Many(words) => &words[..],
        }
    }

    /// The numbers, in ascending order.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        let one = match self {
            ShardSet::One(at) => Some(usize::from(*at)),
            _ => None,
        };
        let of_word = |(n, word): (usize, &u64)| {
            let mut word = *word;
            std::iter::from_fn(move || {
                let at = (word != 0).then(|| n * WORD + word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(at)
            })
        };
        one.into_iter()
            .chain(self.words().iter().enumerate().flat_map(of_word))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(of: &[usize]) -> ShardSet {
        let mut set = ShardSet::NONE;
        of.iter().for_each(|at| set.insert(*at));
        set
    }

    fn numbers(set: &ShardSet) -> Vec<usize> {
        set.iter().collect()
    }

    #[test]
    fn one_and_few_take_no_memory_elsewhere() {
        assert!(matches!(set(&[4095, 4095]), ShardSet::One(4095)));
        assert!(matches!(set(&[255, 0]), ShardSet::Few(_)));
        assert!(matches!(ShardSet::first(256), ShardSet::Few(_)));
        assert!(matches!(set(&[0, 256]), ShardSet::Many(_)));
        assert!(ShardSet::NONE.is_empty());
        assert!(!set(&[0]).is_empty());
        for n in [0, 1, 2, 64, 65, 256, 257, 1024, SHARDS_MAX] {
            let all: Vec<usize> = (0..n).collect();
            assert_eq!(numbers(&ShardSet::first(n)), all);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(
            some in prop::collection::vec(prop_oneof![0..64_usize, 0..300_usize, 0..SHARDS_MAX], 0..40),
            more in prop::collection::vec(0..SHARDS_MAX, 0..4),
        ) {
            let mut model: BTreeSet<usize> = some.iter().copied().collect();
            let mut own = set(&some);
            prop_assert_eq!(numbers(&own), model.iter().copied().collect::<Vec<_>>());
            for at in 0..SHARDS_MAX {
                prop_assert_eq!(own.contains(at), model.contains(&at));
            }
            own.add(&set(&more));
            model.extend(more);
            prop_assert_eq!(numbers(&own), model.into_iter().collect::<Vec<_>>());
        }
    }
}
