//! How lately or how often a key was used: 24 bits of its entry, which the policy of eviction gives a meaning.
//!
//! With an LFU policy, eight of the bits count uses, and sixteen hold the minute in which the count was last brought up
//! to date. The count is a logarithm: the larger it is, the less likely a use raises it; and it falls as minutes pass.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::memory::Entry;

/// Set in a clock that counts uses; its low 16 bits are minutes then.
pub(super) const COUNTS: u32 = 1 << 31;
/// The count of a new key, so that a new key is not the first to be evicted.
pub(super) const BEGIN: u8 = 5;
pub(super) const MINUTE_MS: u64 = 60_000;

/// How counts of uses rise and fall.
#[derive(Debug)]
pub(crate) struct Frequency {
    /// How fast a use becomes unlikely to raise a count; 0 has each raise it.
    pub(super) log_factor: AtomicU32,
    /// Minutes in which a count falls by one; 0 for never.
    pub(super) decay_min: AtomicU32,
}

impl Default for Frequency {
    fn default() -> Frequency {
        Frequency {
            log_factor: AtomicU32::new(10),
            decay_min: AtomicU32::new(1),
        }
    }
}

/// A use of a key.
#[derive(Clone, Copy)]
pub(crate) struct Use<'s> {
    pub(super) clock: u32,
    pub(super) chance: u32,
    pub(super) frequency: &'s Frequency,
}

impl Use<'_> {
    /// Notes a use of a key that exists.
    #[inline]
    pub(crate) fn note(self, entry: &mut Entry) {
        if self.clock & COUNTS != 0 {
            self.count(entry);
        } else if entry.clock() != self.clock {
            entry.set_clock(self.clock);
        }
    }

    /// Notes a use of a key that was just made.
    #[inline]
    pub(crate) fn begin(self, entry: &mut Entry) {
        let first = match self.clock & COUNTS {
            0 => self.clock,
            _ => counted(BEGIN, self.clock),
        };
        entry.set_clock(first);
    }

    #[cold]
    pub(super) fn count(self, entry: &mut Entry) {
        let count = self.frequency.now(entry.clock(), self.clock);
        let above = u64::from(count.saturating_sub(BEGIN));
        let factor = u64::from(self.frequency.log_factor.load(Relaxed));
        // One use in so many counts.
        let odds = above * factor + 1;
        let rises = u64::from(self.chance) * odds <= u64::from(u32::MAX);
        let count = count.saturating_add(rises.into());
        entry.set_clock(counted(count, self.clock));
    }
}

/// A count as of this minute.
pub(super) fn counted(count: u8, clock: u32) -> u32 {
    (clock & 0xffff) << 8 | u32::from(count)
}

impl Frequency {
    /// The present value of a stored count.
    pub(super) fn now(&self, stored: u32, clock: u32) -> u8 {
        let (count, then) = (stored as u8, (stored >> 8) as u16);
        let passed = u32::from((clock as u16).wrapping_sub(then));
        let fallen = passed
            .checked_div(self.decay_min.load(Relaxed))
            .unwrap_or(0);
        count.saturating_sub(u8::try_from(fallen).unwrap_or(u8::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(log_factor: u32, decay_min: u32) -> Frequency {
        Frequency {
            log_factor: log_factor.into(),
            decay_min: decay_min.into(),
        }
    }

    #[test]
    fn a_count_falls_as_minutes_pass() {
        let at = |minute: u32| COUNTS | minute & 0xffff;
        assert_eq!(rules(10, 1).now(counted(7, at(100)), at(103)), 4);
        assert_eq!(rules(10, 2).now(counted(7, at(100)), at(103)), 6);
        assert_eq!(rules(10, 1).now(counted(7, at(100)), at(500)), 0);
        assert_eq!(rules(10, 0).now(counted(7, at(100)), at(500)), 7);
        // Minutes turn round.
        assert_eq!(rules(10, 1).now(counted(7, at(0xffff)), at(0x1_0001)), 5);
    }

    #[test]
    fn uses_raise_it_ever_less() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut hundred_thousand = |factor| {
            let (frequency, mut entry) = (rules(factor, 1), Entry::string(b"k", b"v"));
            let mut used = Use {
                clock: COUNTS,
                chance: 0,
                frequency: &frequency,
            };
            used.begin(&mut entry);
            assert_eq!(entry.clock(), BEGIN.into());
            for _ in 0..100_000 {
                used.chance = rng.u32(..);
                used.note(&mut entry);
            }
            entry.clock() as u8
        };
        // Redis's documentation has these numbers for so many uses: 255, 142 and 49.
        assert_eq!(hundred_thousand(0), 255);
        let (ten, hundred) = (hundred_thousand(10), hundred_thousand(100));
        assert!((120..170).contains(&ten), "{ten}");
        assert!((40..60).contains(&hundred), "{hundred}");
    }
}
