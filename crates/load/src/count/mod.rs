//! Counting beside timing: instructions and system calls that a server spends on each message.
//!
//! The idea: what a server executes for a message does not depend on its neighbours, if what it
//! finds in each turn does not. So the load goes in rounds ([`crate::workload::in_rounds`]), each
//! of which begins when every thread of the server sleeps, and the counter is read between rounds.
//! What a run of the server costs by itself (start, connections) lies outside the two readings;
//! threads that work by the clock are told from threads that work for messages, and left out.
//!
//! [`callgrind`] counts instructions, function by function; [`strace`] counts system calls, name by name. Both are
//! [`Counter`]s, and `sample` reads either.

pub mod callgrind;
mod counter;
mod native;
pub mod profile;
pub mod quiet;
pub mod sample;
pub mod strace;
pub mod table;
pub mod verdict;

pub use counter::{CountError, Counter, Threads};
pub use native::{Foreign, of_program};
pub use profile::{Change, Profile};
pub use sample::{Counted, Sampling, sample};
