//! The acknowledgement protocol of the clients in the field.
//!
//! A request is `id[8] | size: u32 | payload[size]`. An acknowledgement is the id, or the id and
//! the number of earlier messages that it covers too. Clients differ in the form of the
//! acknowledgement, in the byte order of the size, and in when they expect acknowledgements. A
//! [`Classic`] value describes all three, with a preset for each [`Mode`] in use.
//!
//! * [`Parser`] cuts received bytes into messages, without I/O.
//! * [`Ack`] and [`Chain`] write, read and check acknowledgements, for both ends.
//! * [`ClassicService`] is the server.

mod ack;
mod codec;
mod counters;
mod later;
mod mode;
mod policy;
mod service;

pub use ack::{Ack, AckForm, Chain, ChainError};
pub use codec::{Batch, ByteOrder, Frame, Frames, HEADER, Parser, Then, header};
pub use counters::Counters;
pub use mode::{Mode, UnknownMode};
pub use policy::{AckPolicy, Classic, PAYLOAD_MAX};
pub use service::{ClassicConn, ClassicLocal, ClassicService};
