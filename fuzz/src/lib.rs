//! What is fuzzed, as plain functions of bytes that panic when something is wrong.
//!
//! Each file is also included by a test of the crate that it is about, which calls it with inputs
//! drawn from a seed: so every `cargo test` runs a short, deterministic part of the fuzzing.

#![forbid(unsafe_code)]

mod classic;
mod collections;
mod echo;
mod http;
mod journal;
mod kv;
mod log;
mod native;
mod rdb;
mod tls;

pub use classic::{classic_codec, classic_service};
pub use collections::kv_collections;
pub use echo::echo;
pub use http::{http_chunked, http_service};
pub use journal::journal_export;
pub use kv::{kv_binary, kv_execute, kv_scripts, resp_codec};
pub use log::log_recovery;
pub use native::{native_codec, native_service};
pub use rdb::rdb_decode;
pub use tls::tls_server;
