//! Chance that can be repeated.

/// Steele, Lea and Flood's SplitMix64: one add and a mix a number, which is plenty for
/// picking rounds and gaps.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must be above zero. The bias of taking the high
    /// half of a product is below `limit / 2^64`, nothing for a number of rounds.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// Evenly from 0 (included) to 1 (excluded).
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Another order of the same, each as likely as any other (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, all: &mut [T]) {
        for end in (2..=all.len()).rev() {
            all.swap(end - 1, self.below(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix_matches_its_published_sequence() {
        let mut random = SplitMix64::new(1234567);
        assert_eq!(random.next(), 6457827717110365317);
        assert_eq!(random.next(), 3203168211198807973);
        assert_eq!(random.next(), 9817491932198370423);
    }

    #[test]
    fn below_reaches_every_value_about_equally() {
        let mut random = SplitMix64::new(7);
        let mut hits = [0u32; 5];
        for _ in 0..50_000 {
            hits[random.below(5)] += 1;
        }
        assert!(hits.iter().all(|h| (9_500..10_500).contains(h)), "{hits:?}");
    }

    #[test]
    fn every_order_comes_up_about_equally() {
        let mut random = SplitMix64::new(3);
        let mut seen = std::collections::BTreeMap::new();
        for _ in 0..6_000 {
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            *seen.entry(order).or_insert(0) += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(seen.values().all(|n| (850..1_150).contains(n)), "{seen:?}");
    }
}
