//! The two smallest services: [`Echo`] sends back what it receives, [`Discard`] discards it.
//!
//! Neither knows messages. Echo is the yardstick for latency and for output without copies,
//! discard for how fast bytes can be taken in at all.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::{Builder, Listen};
//! use tidewire_echo::Echo;
//!
//! let mut builder = Builder::new();
//! let echo = builder.service(Echo);
//! builder.listen(echo, Listen::at("127.0.0.1:0"));
//! let running = builder.start()?;
//! running.stop(Duration::from_secs(1));
//! # Ok::<(), tidewire::StartError>(())
//! ```

#![forbid(unsafe_code)]

mod discard;
mod echo;

pub use discard::{Discard, DiscardConn};
pub use echo::{Echo, EchoConn};
