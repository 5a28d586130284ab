//! Acknowledged messages: clients stream small messages, the server answers with acknowledgements.
//!
//! # The native protocol
//!
//! [`native`] is the server and [`client`] are its clients: producers with names, which go on where they were, and readers.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use tidewire::{Builder, Listen};
//! use tidewire_ingest::client::{Persistence, Producer, Producing, Reader, Subscribing};
//! use tidewire_ingest::native::{IngestService, Settings};
//! use tidewire_log::EmbeddedLog;
//!
//! # let directory = std::env::temp_dir().join(format!("tidewire-ingest-example-{}", std::process::id()));
//! // `directory` is where the log is, or is made.
//! let (log, _recovery) = EmbeddedLog::start(&directory, tidewire_log::Settings::default())?;
//! let log = Arc::new(log);
//! let settings = Settings::default();
//! let limits = settings.limits();
//! let mut builder = Builder::new();
//! let id = builder.service_with(IngestService::new(log.clone(), settings), limits);
//! builder.listen(id, Listen::at("127.0.0.1:0"));
//! let running = builder.start()?;
//! let server = running.addrs()[0].to_string();
//!
//! // At level durable, unless it says otherwise.
//! let producing = Producing { producer: "sensor-7".into(), ..Producing::default() };
//! let producer = Producer::connect(&server, producing, Persistence::default())?;
//! producer.send(b"21.5 degrees")?;
//! producer.close()?; // what was sent is on the disk
//!
//! let mut reader = Reader::connect(&server, Subscribing::default(), Persistence::default())?;
//! let record = reader.next().expect("a record")?;
//! assert_eq!(record.payload, "21.5 degrees");
//! assert_eq!(record.producer, "sensor-7");
//!
//! # drop(reader);
//! running.stop(Duration::from_secs(1));
//! # log.close();
//! # std::fs::remove_dir_all(&directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The classic protocol
//!
//! [`classic`] speaks the five dialects of existing clients. The messages go to a [`Sink`], for
//! instance a durable log.
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
