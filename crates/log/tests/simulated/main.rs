//! The log on a simulated disk: thousands of seeds of producers, crashes and faults, each held
//! against a model of what was committed.
//!
//! `TIDEWIRE_SEEDS=n` runs n seeds of each test, `TIDEWIRE_SEED=s` only the seed s.

mod crashes;
mod cursors;
mod decay;
mod failures;
mod full;
mod lives;
mod mistakes;
mod model;
mod profile;
mod reading;
mod seeds;
mod settings;
mod world;
