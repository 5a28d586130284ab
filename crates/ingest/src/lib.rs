//! Acknowledged messages: clients stream small messages, the server answers with acknowledgements.
//!
//! [`classic`] speaks the five dialects of the clients in the field. What is done with the messages
//! is behind the [`Sink`] trait, the seam where a durable log stands.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tidewire::{Builder, Listen};
//! use tidewire_ingest::Counted;
//! use tidewire_ingest::classic::{Classic, ClassicService, Mode};
//!
//! let classic = Classic::preset(Mode::RequestReply);
//! let service = Arc::new(ClassicService::new(classic, Counted::default()));
//! let mut builder = Builder::new();
//! let id = builder.service_with(service.clone(), classic.limits());
//! builder.listen(id, Listen::at("127.0.0.1:0"));
//! let running = builder.start()?;
//!
//! use std::io::{Read, Write};
//! let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
//! client.write_all(b"message1\0\0\0\x05Hello")?; // id, size, payload
//! let mut ack = [0; 8];
//! client.read_exact(&mut ack)?;
//! assert_eq!(&ack, b"message1");
//!
//! running.stop(Duration::from_secs(1));
//! assert_eq!(service.counters().messages, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

mod alarm;
pub mod classic;
pub mod client;
mod counted;
mod ledger;
mod log_sink;
mod mistakes;
pub mod native;
mod sink;
#[doc(hidden)]
pub mod testing;

pub use log_sink::{Level, LogSink, LogSinkLocal, SinkError, UnknownLevel};
#[doc(hidden)]
pub use mistakes::Mistakes;
pub use sink::{Accepted, Counted, CountedLocal, Sink, Stored};
