//! Many clients at once, on every engine and on the simulated network: what single commands,
//! transactions and blocking pops promise holds in between.

#![expect(
    clippy::disallowed_methods,
    reason = "these are clients with patience, not protocols"
)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/wire.rs"]
mod wire;

mod asks;
mod atomic;
mod history;
mod linear;
mod simulated;
mod waking;
