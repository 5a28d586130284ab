//! How the store acts when memory is short.

/// Which keys go when `maxmemory` is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Policy {
    /// No key goes: commands that need memory are refused.
    #[default]
    NoEviction,
    /// Any key, the least recently used first.
    AllKeysLru,
    /// Keys that expire, the least recently used first.
    VolatileLru,
    /// Keys that expire, the soonest first.
    VolatileTtl,
    /// Any, by chance.
    AllKeysRandom,
    /// Keys that expire, by chance.
    VolatileRandom,
    /// Any key, the least often used first.
    AllKeysLfu,
    /// Keys that expire, the least often used first.
    VolatileLfu,
}

impl Policy {
    /// All there are.
    pub const ALL: [Policy; 8] = [
        Policy::NoEviction,
        Policy::AllKeysLru,
        Policy::VolatileLru,
        Policy::VolatileTtl,
        Policy::AllKeysRandom,
        Policy::VolatileRandom,
        Policy::AllKeysLfu,
        Policy::VolatileLfu,
    ];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Policy::NoEviction => "noeviction",
            Policy::AllKeysLru => "allkeys-lru",
            Policy::VolatileLru => "volatile-lru",
            Policy::VolatileTtl => "volatile-ttl",
            Policy::AllKeysRandom => "allkeys-random",
            Policy::VolatileRandom => "volatile-random",
            Policy::AllKeysLfu => "allkeys-lfu",
            Policy::VolatileLfu => "volatile-lfu",
        }
    }

    /// The policy of this name, in lower case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Policy> {
        Policy::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Whether only keys that expire may go.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            Policy::VolatileLru
                | Policy::VolatileTtl
                | Policy::VolatileRandom
                | Policy::VolatileLfu
        )
    }

    /// Whether the policy asks how often keys are used, rather than when they last were.
    #[inline]
    #[must_use]
    pub fn counts_uses(self) -> bool {
        matches!(self, Policy::AllKeysLfu | Policy::VolatileLfu)
    }
}
