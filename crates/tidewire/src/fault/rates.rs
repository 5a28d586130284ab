//! How often which fault comes, and how often it has.

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::reactor::random::Rng;

#[derive(Clone, Debug)]
pub(super) struct Rates {
    pub(super) refuse_one_in: u64,
    pub(super) cut_one_in: u64,
    pub(super) delay_one_in: u64,
    pub(super) delay: RangeInclusive<Duration>,
    pub(super) split_one_in: u64,
    pub(super) split_max: usize,
    pub(super) window: usize,
    pub(super) flip_one_in: u64,
}

/// State of all clones of these settings.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) connections: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) cut: AtomicU64,
    pub(super) delays: AtomicU64,
    pub(super) splits: AtomicU64,
    pub(super) flips: AtomicU64,
}

/// True with a probability of one in `n`; never if `n` is 0.
pub(super) fn one_in(rng: &mut Rng, n: u64) -> bool {
    n > 0 && rng.below(n) == 0
}
