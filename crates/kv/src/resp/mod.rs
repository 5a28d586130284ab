//! Requests of the Redis protocol: commands as arrays of bulk strings, or typed as a line.
//!
//! A [`Parser`] lends out the arguments as slices of the input. The parser remembers how far it has
//! read an incomplete command. So the work for a command is proportional to its length, however the
//! command is cut into chunks.

mod inline;
mod parser;

pub(crate) use inline::split;
pub use parser::{Bounds, Parser, ProtocolError, Step};
