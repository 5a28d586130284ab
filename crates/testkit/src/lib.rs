//! What the tests of several crates share. No crate that is published depends on it.
//!
//! - [`imports`]: which file of a crate imports which. `tests/houses.rs` holds every crate to it: arrows between files
//!   point down only.
//! - [`lines`]: how much code there is. `cargo run -p tidewire-testkit --example lines` prints it for each crate.

pub mod imports;
pub mod lines;
