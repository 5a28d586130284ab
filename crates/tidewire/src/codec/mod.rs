//! Framing for protocols of one's own: where a message ends in a stream of bytes.
//!
//! Both codecs take frames out of an [`Input`](crate::Input) without a copy, bound what a peer may
//! make a connection carry, and find the same frames however the stream was split.

mod length_delimited;
mod lines;
mod too_long;

pub use length_delimited::{Delimited, LengthDelimited};
pub use lines::Lines;
pub use too_long::TooLong;
