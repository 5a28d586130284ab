//! Patterns, indexed by their literal prefix.
//!
//! A name is compared only with patterns whose plain beginning it has: of a hundred thousand that
//! differ there, with one.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use crate::types::glob::Glob;

/// Bytes of a beginning that count.
const PREFIX_MAX: usize = 64;

/// Patterns with a common prefix, by their texts.
type Alike<V> = BTreeMap<Arc<[u8]>, Pattern<V>>;

/// Steps that a pattern costs beside the match.
const EACH: u64 = 16;

/// How far a channel was held against patterns, whatever comes and goes meanwhile.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// Bytes of the beginnings that are looked at.
    len: usize,
    /// The last pattern there that was looked at.
    behind: Option<Arc<[u8]>>,
}

/// Patterns, each with a value.
#[derive(Debug)]
pub(super) struct Patterns<V> {
    by_prefix: HashMap<Box<[u8]>, Alike<V>>,
    /// How many different beginnings of each length there are.
    lengths: [u32; PREFIX_MAX + 1],
    len: usize,
}

#[derive(Debug)]
struct Pattern<V> {
    glob: Glob,
    value: V,
}

impl<V> Default for Patterns<V> {
    fn default() -> Patterns<V> {
        Patterns {
            by_prefix: HashMap::new(),
            lengths: [0; PREFIX_MAX + 1],
            len: 0,
        }
    }
}

/// The literal prefix of a pattern, by which patterns are found.
fn prefix_of(glob: &Glob) -> &[u8] {
    let prefix = glob.prefix();
    &prefix[..prefix.len().min(PREFIX_MAX)]
}

impl<V> Patterns<V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get_mut(&mut self, name: &[u8]) -> Option<&mut V> {
        let glob = Glob::new(name)?;
        let these = self.by_prefix.get_mut(prefix_of(&glob))?;
        these.get_mut(name).map(|pattern| &mut pattern.value)
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&V> {
        let glob = Glob::new(name)?;
        let these = self.by_prefix.get(prefix_of(&glob))?;
        these.get(name).map(|pattern| &pattern.value)
    }

    /// The entry of a pattern, added if it is missing; `None` if the pattern is too long.
    pub(super) fn entry(&mut self, name: &Arc<[u8]>) -> Option<&mut V>
    where
        V: Default,
    {
        let glob = Glob::new(name)?;
        let prefix = prefix_of(&glob);
        if !self.by_prefix.contains_key(prefix) {
            self.lengths[prefix.len()] += 1;
            self.by_prefix.insert(prefix.into(), Alike::new());
        }
        let these = self.by_prefix.get_mut(prefix)?;
        if !these.contains_key(&**name) {
            self.len += 1;
            let value = V::default();
            these.insert(name.clone(), Pattern { glob, value });
        }
        these.get_mut(&**name).map(|pattern| &mut pattern.value)
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        let Some(glob) = Glob::new(name) else { return };
        let prefix = prefix_of(&glob);
        let Some(these) = self.by_prefix.get_mut(prefix) else {
            return;
        };
        self.len -= usize::from(these.remove(name).is_some());
        if these.is_empty() {
            self.by_prefix.remove(prefix);
            self.lengths[prefix.len()] -= 1;
        }
    }

    /// How many a channel has to be held against.
    pub(super) fn candidates(&self, channel: &[u8]) -> usize {
        self.beginning(channel).map(Alike::len).sum()
    }

    /// The patterns that a channel matches.
    pub(super) fn matching<'m>(
        &'m self,
        channel: &'m [u8],
    ) -> impl Iterator<Item = (&'m [u8], &'m V)> {
        let candidates = self.beginning(channel).flatten();
        candidates
            .filter(|(_, pattern)| pattern.glob.matches(channel))
            .map(|(name, pattern)| (&**name, &pattern.value))
    }

    /// Shows the patterns that match a channel, from `from` on, until this many steps are used up;
    /// returns whether that was all. A pattern that exists all the time is looked at exactly once.
    pub(super) fn match_some(
        &self,
        channel: &[u8],
        cursor: &mut Cursor,
        steps: &mut u64,
        mut show: impl FnMut(&[u8], &V),
    ) -> bool {
        while cursor.len <= channel.len().min(PREFIX_MAX) {
            if self.lengths[cursor.len] > 0
                && let Some(these) = self.by_prefix.get(&channel[..cursor.len])
            {
                let before = cursor.behind.take();
                let from = before.as_deref().map_or(Unbounded, Excluded);
                let mut last = None;
                for (name, pattern) in these.range::<[u8], _>((from, Unbounded)) {
                    if *steps == 0 {
                        cursor.behind = last.map_or(before, |last: &[u8]| Some(last.into()));
                        return false;
                    }
                    let mut took = EACH;
                    if pattern.glob.matches_counting(channel, &mut took) {
                        show(name, &pattern.value);
                    }
                    *steps = steps.saturating_sub(took);
                    last = Some(&**name);
                }
            }
            cursor.len += 1;
        }
        true
    }

    /// All patterns, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &V)> {
        #[expect(clippy::disallowed_methods, reason = "callers sort them")]
        let all = self.by_prefix.values().flatten();
        all.map(|(name, pattern)| (&**name, &pattern.value))
    }

    /// The patterns with each of the beginnings of a channel.
    fn beginning<'m>(&'m self, channel: &'m [u8]) -> impl Iterator<Item = &'m Alike<V>> {
        let most = channel.len().min(PREFIX_MAX);
        (0..=most)
            .filter(|&len| self.lengths[len] > 0)
            .filter_map(|len| self.by_prefix.get(&channel[..len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::glob;

    #[test]
    fn a_name_is_held_against_patterns_with_its_beginning() {
        let mut patterns: Patterns<usize> = Patterns::default();
        for n in 0..10_000 {
            *patterns
                .entry(&format!("user:{n}:*").into_bytes().into())
                .unwrap() = n;
        }
        assert_eq!(patterns.candidates(b"user:77:name"), 1);
        assert_eq!(patterns.candidates(b"other"), 0);
        *patterns.entry(&Arc::from(&b"*"[..])).unwrap() = 10_000;
        let found: Vec<usize> = patterns.matching(b"user:77:x").map(|(_, n)| *n).collect();
        assert_eq!(found, [10_000, 77]);
        assert!(
            patterns
                .entry(&vec![b'a'; glob::LONGEST + 1].into())
                .is_none()
        );
    }

    #[test]
    fn the_same_as_one_after_the_other() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut patterns: Patterns<()> = Patterns::default();
        let mut names = std::collections::BTreeSet::new();
        let text = |rng: &mut fastrand::Rng, of: &[&str], most: usize| -> Vec<u8> {
            let parts = (0..rng.usize(..most)).map(|_| *rng.choice(of).unwrap());
            parts.collect::<String>().into_bytes()
        };
        let mut found = 0;
        for _ in 0..2000 {
            let name = text(&mut rng, &["a", "b", "ab", "*", "?", "[ab]", "\\a"], 5);
            if rng.u8(..4) == 0 {
                patterns.remove(&name);
                names.remove(&name);
            } else {
                patterns.entry(&Arc::from(&name[..])).unwrap();
                names.insert(name);
            }
            assert_eq!(patterns.len(), names.len());
            let channel = text(&mut rng, &["a", "b"], 6);
            let mut matching: Vec<Vec<u8>> = patterns
                .matching(&channel)
                .map(|(name, ())| name.to_vec())
                .collect();
            matching.sort_unstable();
            let mut some = Vec::new();
            let mut cursor = Cursor::default();
            loop {
                let mut steps = rng.u64(1..60);
                let is_all = patterns.match_some(&channel, &mut cursor, &mut steps, |name, ()| {
                    some.push(name.to_vec());
                });
                if is_all {
                    break;
                }
                // Patterns that are added meanwhile do not disturb the search.
                let name = b"a*not there before*".to_vec();
                patterns.entry(&Arc::from(&name[..])).unwrap();
                patterns.remove(&name);
            }
            some.sort_unstable();
            assert_eq!(some, matching, "{channel:?}");
            let all = names.iter().filter(|name| glob::matches(name, &channel));
            let all: Vec<Vec<u8>> = all.cloned().collect();
            found += all.len();
            assert_eq!(matching, all, "{channel:?}");
        }
        assert!(found > 1000, "{found}");
        let rest: Vec<Vec<u8>> = patterns.iter().map(|(name, ())| name.to_vec()).collect();
        rest.iter().for_each(|name| patterns.remove(name));
        assert!(patterns.by_prefix.is_empty() && patterns.lengths == [0; PREFIX_MAX + 1]);
    }
}
