//! What a seed's producers are like.

use fastrand::Rng;

/// How messages look and how often which things happen; drawn once a seed, so that seeds differ
/// more than moments of one seed do.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) streams_max: usize,
    pub(crate) producers_max: usize,
    /// Most messages in a batch.
    pub(crate) batch_max: u32,
    sizes: Sizes,
    /// Ids may leave gaps.
    pub(crate) sparse: bool,
    /// So many of a hundred actions step the writer.
    pub(crate) steps_percent: u8,
    /// Most actions before the log is closed in one way or another.
    pub(crate) actions_max: usize,
}

#[derive(Clone, Copy, Debug)]
enum Sizes {
    /// All the same: batches that line up with what lay there before.
    Equal(usize),
    Small,
    /// Few to a group: many segments.
    Large,
    /// From empty to the largest allowed.
    Mixed,
}

impl Profile {
    pub(crate) fn draw(random: &mut Rng) -> Profile {
        Profile {
            streams_max: random.usize(1..=4),
            producers_max: random.usize(1..=6),
            batch_max: if random.bool() { 1 } else { random.u32(2..=12) },
            sizes: match random.u8(0..5) {
                0 => Sizes::Equal(random.usize(0..=600)),
                1 => Sizes::Small,
                2 => Sizes::Mixed,
                _ => Sizes::Large,
            },
            sparse: random.u8(0..4) == 0,
            steps_percent: random.u8(10..70),
            actions_max: random.usize(3..=120),
        }
    }

    pub(crate) fn size(&self, random: &mut Rng, largest: usize) -> usize {
        match self.sizes {
            Sizes::Equal(size) => size.min(largest),
            Sizes::Small => random.usize(0..=100.min(largest)),
            Sizes::Large => random.usize(0..=1000.min(largest)),
            Sizes::Mixed => match random.u8(0..20) {
                0..=4 => 0,
                5..=14 => random.usize(0..=200.min(largest)),
                15..=18 => random.usize(0..=2000.min(largest)),
                _ => random.usize(0..=largest),
            },
        }
    }
}
