//! Tests of the simulated network, and the protocols that they run.

mod chunking;
mod services;
