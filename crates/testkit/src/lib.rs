//! Code that the tests of several crates share: the programs as a user runs them, a browser, a schema,
//! certificates, and readers of the sources.
//!
//! - [`imports`]: which file of a crate imports which. `tests/houses.rs` holds every crate to it: arrows between files
//!   point down only.
//! - [`literals`]: the texts in a source; `tests/words.rs` holds them to docs/inside/words.md.
//! - [`lines`]: how much code there is. `cargo run -p tidewire-testkit --example lines` prints it for each crate.

pub mod browser;
pub mod imports;
pub mod lines;
pub mod literals;
pub mod pki;
mod program;
pub mod schema;

pub use program::*;
