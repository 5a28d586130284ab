//! A simulated network, for tests: the production protocols, services, timers and mailboxes on
//! virtual time, everything drawn from a seed.
//!
//! * [`chunking`]: one connection fed a given split of its input, for the property that the split
//!   carries no meaning.

pub mod chunking;

#[cfg(test)]
mod tests;
