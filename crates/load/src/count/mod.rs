//! Counting beside timing: instructions and system calls that a server spends on each message.
//!
//! The idea: the instructions of a server for a message do not depend on other processes, if the
//! events of each turn do not. So the load goes in rounds ([`crate::workload::in_rounds`]), each of
//! which begins when every thread of the server sleeps, and the counter is read between rounds. The
//! cost of the server's own work (start, connections) lies outside the two readings; threads that
//! work by the clock are recognised and left out.
//!
//! [`callgrind`] counts instructions, function by function; [`strace`] counts system calls, name by name. Both are
//! [`Counter`]s, and `sample` reads any counter.

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
