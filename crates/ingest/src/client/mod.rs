//! Clients of the native protocol.
//!
//! * [`Session`] is a producer's side of the conversation as a state machine: bytes in, bytes out,
//!   no socket and no clock. A session holds every message until the message is acknowledged.
//! * [`Producer`] runs a session on a thread: send, wait, flush. A producer reconnects by itself.
//! * [`Outgoing`] runs them on the toolkit's engines, and tells a [`Handler`] what happens.
//! * [`Reading`] is a reader's side as a state machine, and [`Reader`] a blocking iterator over the
//!   records of a stream.
//! * [`Administrator`] sees and changes streams, blocking.

mod administrator;
mod backoff;
mod broken;
mod clock;
mod connect;
mod courier;
mod error;
mod outbox;
mod outgoing;
mod producer;
mod reader;
mod reading;
mod route;
mod session;
mod settings;
mod shared;

pub use administrator::{Administrator, PlaceState, StreamState};
pub use backoff::Persistence;
pub use broken::{Broken, is_obeyed, printable};
pub use connect::To;
pub use error::Error;
pub use outbox::Amount;
pub use outgoing::{Ended, Handler, Outgoing, OutgoingConn, OutgoingLocal};
pub use producer::{Producer, Status};
pub use reader::{Reader, Record};
pub use reading::{Heard, Reading, Subscribing};
pub use session::{Event, NotTaken, Session};
pub use settings::Producing;
pub use shared::News;

pub use crate::native::codec::{Begin, Level, Wanted};
