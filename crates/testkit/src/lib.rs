//! What tests of the programs share: the programs as a user runs them, a browser, a schema, certificates.
//!
//! Only tests depend on this crate.

pub mod browser;
pub mod imports;
pub mod pki;
mod program;
pub mod schema;

pub use program::*;
