//! Code that the programs `tidewire` and `tidewire-lab` share on the command line.
//!
//! Help, exit statuses, numbers and times as text, hosts, and TLS of a client stand here once, so that both programs read
//! and say the same things in the same words. The crate knows no server and no load.

#![forbid(unsafe_code)]

#[macro_use]
pub mod say;

pub mod count;
pub mod descriptors;
pub mod exit;
pub mod help;
pub mod host;
pub mod man;
pub mod program;
pub mod size;
pub mod span;
pub mod tls;
pub mod tree;
pub mod version;
