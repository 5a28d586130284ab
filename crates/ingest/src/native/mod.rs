//! The native protocol: messages with identity, resumption and levels of durability, and reading
//! them back. The contract is `docs/formats/protocol.md`.
//!
//! * [`codec`] reads and writes frames, for both ends.
//! * [`IngestService`] is the server; it needs a [`Log`](tidewire_log::Log), and [`Settings`] give
//!   its limits.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidewire::{Builder, Listen};
//! use tidewire_ingest::native::{IngestService, Settings, codec};
//! # let log = tidewire_ingest::testing::SteppedLog::new().auto();
//! // `log` is any `tidewire_log::Log`
//! let settings = Settings::default();
//! let limits = settings.limits();
//! let service = Arc::new(IngestService::new(Arc::new(log), settings));
//! let mut builder = Builder::new();
//! let id = builder.service_with(service.clone(), limits);
//! builder.listen(id, Listen::at("127.0.0.1:0"));
//! let running = builder.start()?;
//!
//! use std::io::{Read, Write};
//! let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
//! let mut hello = Vec::new();
//! codec::Hello::Produce(codec::Produce {
//!     level: Some(codec::Level::Durable),
//!     sparse: false,
//!     adopt: false,
//!     window_messages: 0,
//!     window_bytes: 0,
//!     first_id: 1,
//!     stream: "",
//!     producer: "sensor-7",
//!     token: "",
//! })
//! .encode(&mut hello)?;
//! client.write_all(&hello)?;
//! client.write_all(&codec::message_header(1, 5))?;
//! client.write_all(b"hello")?;
//! let mut welcome_and_ack = [0; 40 + 16];
//! client.read_exact(&mut welcome_and_ack)?;
//!
//! running.stop(Duration::from_secs(1));
//! assert_eq!(service.counters().messages, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod admin;
pub mod codec;
mod conn;
mod counters;
mod fleet;
mod ids;
mod local;
mod memory;
mod message;
mod pool;
mod producer;
mod quota;
mod reader;
mod reading;
mod refused;
mod reply;
mod service;
mod session;
mod settings;
mod shared;
mod tokens;

pub use conn::IngestConn;
pub use counters::Counters;
pub use fleet::Fleet;
pub use local::IngestLocal;
pub use quota::Quota;
pub use reading::ReaderStatus;
pub use service::IngestService;
pub use settings::Settings;
pub use tokens::{Rights, Token};
