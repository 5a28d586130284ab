//! The key-value store: Redis's protocol and the small binary one, on one store.
#![forbid(unsafe_code)]

pub mod binary;
pub mod resp;
