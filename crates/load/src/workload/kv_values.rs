//! How long the values of the key-value load are.
//!
//! The idea: the key's number decides the length of its value, once and for all, and its contents.
//! So a reply is checked to the byte, although nothing remembers what was written.

use serde::Serialize;

/// Bytes of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueSizes {
    /// All have so many.
    Fixed(usize),
    /// Evenly from the first to the second, both included.
    Range(usize, usize),
    /// Each length with its weight, above 0. Made once for the whole process, so that loads can be copied.
    Weighted(&'static [(usize, f64)]),
}

impl ValueSizes {
    /// The longest value.
    pub fn most(&self) -> usize {
        match *self {
            ValueSizes::Fixed(size) | ValueSizes::Range(_, size) => size,
            ValueSizes::Weighted(all) => all.iter().map(|(size, _)| *size).max().unwrap_or(0),
        }
    }

    /// Bytes of the value of this key.
    #[inline]
    pub(super) fn of(&self, key: u64) -> usize {
        match *self {
            ValueSizes::Fixed(size) => size,
            ValueSizes::Range(least, most) => {
                let span = (most - least) as u128 + 1;
                least + ((u128::from(mixed(key)) * span) >> 64) as usize
            }
            ValueSizes::Weighted(all) => weighted(all, super::kv_keys::unit(mixed(key))),
        }
    }
}

fn weighted(all: &[(usize, f64)], unit: f64) -> usize {
    let mut left = unit * all.iter().map(|(_, weight)| weight).sum::<f64>();
    for (size, weight) in all {
        left -= weight;
        if left < 0.0 {
            return *size;
        }
    }
    // The loop ends without a result only by rounding.
    all.last().map_or(0, |(size, _)| *size)
}

/// The key's number, with each of its bits in all of the result's.
fn mixed(key: u64) -> u64 {
    crate::random::SplitMix64::new(key).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: u64 = 100_000;

    fn share(sizes: ValueSizes, is: impl Fn(usize) -> bool) -> f64 {
        let hits = (0..KEYS).filter(|&key| is(sizes.of(key))).count();
        hits as f64 / KEYS as f64
    }

    #[test]
    fn lengths_are_spread_as_they_were_asked_for() {
        assert_eq!(share(ValueSizes::Fixed(64), |size| size == 64), 1.0);
        let range = ValueSizes::Range(64, 67);
        for wanted in 64..=67 {
            let share = share(range, |size| size == wanted);
            assert!((share - 0.25).abs() < 0.01, "{wanted}: {share}");
        }
        let list = ValueSizes::Weighted(&[(64, 90.0), (1024, 9.0), (8192, 1.0)]);
        for (wanted, weight) in [(64, 0.90), (1024, 0.09), (8192, 0.01)] {
            let share = share(list, |size| size == wanted);
            assert!((share - weight).abs() < 0.005, "{wanted}: {share}");
        }
        assert_eq!((range.most(), list.most()), (67, 8192));
    }
}
