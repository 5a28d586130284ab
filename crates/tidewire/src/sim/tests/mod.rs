//! Tests of the simulated network, and the protocols that they run.

mod alarm;
mod chunking;
mod contract;
mod deadlines;
mod determinism;
mod endpoints;
mod faults;
mod memory;
mod process;
pub(crate) mod services;
mod streams;
mod telling;
mod time;
