//! The acknowledgement protocol of the clients in the field.
//!
//! A request is `id[8] | size: u32 | payload[size]`. An acknowledgement is the id, or the id and
//! how many earlier messages it covers besides the one that it names. Which of the two, in which
//! byte order the size is, and when acknowledgements are sent differs between clients; all of that
//! is a value, [`Classic`], with a preset for each [`Mode`] in use.
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
