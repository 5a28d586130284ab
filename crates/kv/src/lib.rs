//! The key-value store: Redis's protocol and the small binary one, on one store.
//!
//! [`store`] holds the keys, [`hash`] says where, [`commands`] works on them, [`types`] are their values; [`resp`] and
//! [`binary`] are the codecs and [`reply`] the answers. All of that is plain code without I/O;
//! [`service`] puts it on loops.

#![deny(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

pub mod allocator;
mod apart;
pub mod binary;
pub mod commands;
pub mod dumps;
pub mod durable;
pub mod hash;
pub mod number;
pub mod reply;
pub mod resp;
pub mod service;
pub mod store;
pub mod types;
