//! A simulated network and kernel, for tests. The production loops, drivers, protocols, services, timers
//! and mailboxes run on them in virtual time, and everything that may vary is drawn from a seed.
//!
//! * [`Sim`]: loops, services and the network between them, step by step.
//! * [`Pair`]: a protocol and its client, face to face.
//! * [`Conditions`]: what the network does to them.
//! * [`chunking`]: one connection fed a given split of its input, for the property that the split
//!   carries no meaning.
//!
//! A test that fails prints its seed; the same seed gives the same run.

pub mod chunking;
mod conditions;
#[cfg(test)]
mod explore;
pub(crate) mod kernel;
#[cfg(test)]
mod machine;
mod net;
mod node;
mod pair;
mod pipe;
mod plain;
mod process;
mod seeds;
mod threads;
mod trace;
mod world;

pub use conditions::Conditions;
pub use node::Shape;
pub use pair::Pair;
pub use plain::PlainState;
pub use seeds::{for_each_seed, seeds, try_seed};
pub use trace::{Event, What};
pub use world::{LoopId, Outcome, PlainId, Sim, SimService};

#[cfg(test)]
pub(crate) mod tests;
