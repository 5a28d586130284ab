//! Clients of the native protocol.
//!
//! * [`Session`] is a producer's side of the conversation as a state machine: bytes in, bytes out,
//!   no socket and no clock. It holds every message until it is acknowledged.
//! * [`Producer`] runs one on a thread: send, wait, flush. It connects again by itself.

mod backoff;
mod broken;
mod clock;
mod connect;
mod courier;
mod error;
mod outbox;
mod producer;
mod session;
mod settings;

pub use backoff::Persistence;
pub use broken::Broken;
pub use error::Error;
pub use outbox::Amount;
pub use producer::{Producer, Status};
pub use session::{Event, NotTaken, Session};
pub use settings::Producing;
