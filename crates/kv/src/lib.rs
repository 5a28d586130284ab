//! The key-value store: Redis's protocol and the small binary one, on one store.
//!
//! [`store`] holds the keys, [`hash`] says where, [`commands`] works on them, [`types`] are their values; [`resp`] and
//! [`binary`] are the codecs and [`reply`] the answers. All these modules are plain code without I/O; [`service`] puts
//! them on loops.
//!
//! A server for any client of Redis, in memory:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use tidewire::Builder;
//! use tidewire_kv::service::{RespService, Settings};
//! use tidewire_kv::store::{self, Store};
//!
//! let store = Arc::new(Store::new(store::Settings::default()));
//! let service = RespService::new(store, Settings::default());
//! let running = Builder::new().serve("127.0.0.1:0", service).start()?;
//!
//! let mut client = TcpStream::connect(&running.addrs()[0])?;
//! client.write_all(b"SET greeting hello\r\nGET greeting\r\n")?;
//! let mut replies = [0; 16];
//! client.read_exact(&mut replies)?;
//! assert_eq!(&replies, b"+OK\r\n$5\r\nhello\r\n");
//!
//! running.stop(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`durable`] puts a log behind the store, so that replies wait until their changes are on the disk.

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
