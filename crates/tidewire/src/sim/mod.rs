//! A simulated network and kernel, for tests. The production loops, drivers, protocols, services, timers
//! and mailboxes run on them in virtual time, and everything that may vary is drawn from a seed.
//!
//! * [`Sim`]: loops, services and the network between them, step by step.
//! * [`Pair`]: a protocol and its client, face to face.
//! * [`Conditions`]: the faults and delays of the network. [`KernelFaults`]: what the kernel does.
//! * [`chunking`]: one connection fed a given split of its input, for the property that the split
//!   carries no meaning.
//!
//! A test that fails prints its seed; the same seed gives the same run.
//!
//! # A failing seed, told
//!
//! [`for_each_seed`] makes the run of a seed that fails once more and writes what happened on its network, in words
//! (`.txt`) and as a capture for Wireshark or tcpdump (`.pcap`), to the directory that `TIDEWIRE_TRACE` names, by
//! default `tidewire-trace` in the system's directory for temporary files; the message says where. So does
//! [`chunking::assert_invisible`]. Other panicking tests write a trace if `TIDEWIRE_TRACE` is set. In the middle of a test,
//! [`Sim::record`], then [`Sim::words`] and [`Sim::pcap`].

pub mod chunking;
mod conditions;
#[cfg(test)]
mod explore;
pub(crate) mod kernel;
mod listeners;
mod loops;
#[cfg(test)]
mod machine;
mod names;
mod net;
mod node;
mod pair;
mod peers;
mod pipe;
mod plain;
mod process;
mod seeds;
mod story;
mod threads;
mod time;
mod trace;
mod world;

pub use conditions::Conditions;
pub use kernel::KernelFaults;
pub use listeners::PlainListener;
pub use loops::SimService;
pub use names::ScriptedNames;
pub use node::Shape;
pub use pair::Pair;
pub use peers::PlainId;
pub use plain::PlainState;
pub use seeds::{for_each_seed, seeds, try_seed};
pub use time::Outcome;
pub use trace::{Event, What};
pub use world::{LoopId, Sim};

#[cfg(test)]
pub(crate) mod tests;
