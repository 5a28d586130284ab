//! How long the calls of a command took, in classes that are an eighth of a doubling wide.

use super::count::Count;

/// Classes to a doubling.
const PARTS: u64 = 8;
/// Longest time that is told apart, as a power of two of nanoseconds: 34 seconds.
const LONGEST: u32 = 35;
const CLASSES: usize = (LONGEST as usize - 2) * PARTS as usize;

/// Times of one command, counted by one loop.
#[derive(Debug)]
pub(crate) struct Times([Count; CLASSES]);

/// The times of all loops.
pub(crate) struct Sum(Vec<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(std::array::from_fn(|_| Count::default()))
    }
}

fn class(ns: u64) -> usize {
    let ns = ns.min((1 << LONGEST) - 1);
    if ns < PARTS {
        return ns as usize;
    }
    let doubling = ns.ilog2();
    let part = ns >> (doubling - 3) & (PARTS - 1);
    (u64::from(doubling - 2) * PARTS + part) as usize
}

/// The longest time of a class; nanoseconds.
fn longest(class: usize) -> u64 {
    let class = class as u64;
    if class < PARTS {
        return class;
    }
    let (doubling, part) = (class / PARTS + 2, class % PARTS);
    ((PARTS + part + 1) << (doubling - 3)) - 1
}

impl Times {
    pub(crate) fn add(&self, ns: u64) {
        self.0[class(ns)].add(1);
    }

    /// Adds the counts of another value; call this only while this value has a single owner.
    pub(super) fn absorb(&self, other: &Times) {
        for (to, from) in self.0.iter().zip(&other.0) {
            to.add(from.value());
        }
    }

    /// All calls except those counted `before`.
    pub(crate) fn since(&self, before: Option<&Times>) -> Sum {
        let counts = self.0.iter().enumerate().map(|(at, count)| {
            let before = before.map_or(0, |before| before.0[at].value());
            count.value() - before
        });
        Sum(counts.collect())
    }
}

impl Sum {
    /// Calls that were timed.
    pub(crate) fn calls(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The time that so many of a hundred calls did not exceed; nanoseconds.
    pub(crate) fn percentile(&self, percent: f64) -> u64 {
        let wanted = (percent / 100.0 * self.calls() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, longest)
    }

    /// How many calls took at most so many microseconds, for each doubling in which there are some.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let (mut all, mut seen, mut class) = (Vec::new(), 0, 0);
        for doubling in 10..=LONGEST {
            let (bound, before) = (1u64 << doubling, seen);
            while class < CLASSES && longest(class) < bound {
                seen += self.0[class];
                class += 1;
            }
            if seen > before {
                // The bound is rounded as in Redis's histogram.
                all.push(((bound + bound / 128 - 1) / 1000, seen));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_no_gaps_and_are_narrow() {
        for class in 1..CLASSES {
            let (from, to) = (longest(class - 1) + 1, longest(class));
            assert_eq!(super::class(from), class);
            assert_eq!(super::class(to), class);
            assert!(to - from <= from / 8, "{from} to {to}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
        assert_eq!(longest(CLASSES - 1), (1 << LONGEST) - 1);
    }

    #[test]
    fn what_is_counted_is_told() {
        let times = Times::default();
        for us in 1..=1000 {
            times.add(us * 1000);
        }
        let sum = times.since(None);
        assert_eq!(sum.calls(), 1000);
        for (percent, us) in [(50.0, 500), (99.0, 990), (100.0, 1000)] {
            let told = sum.percentile(percent) / 1000;
            assert!((us..us + us / 8 + 2).contains(&told), "{percent}: {told}");
        }
        let all = sum.cumulative();
        assert_eq!(all.first(), Some(&(1, 1)));
        assert_eq!(all.last(), Some(&(1056, 1000)));
        assert_eq!(times.since(Some(&times)).calls(), 0);
    }
}
