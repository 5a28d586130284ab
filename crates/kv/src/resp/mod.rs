//! The Redis protocol as it comes in: commands as arrays of bulk strings, or typed as a line.
//!
//! A [`Parser`] lends out the arguments as slices of the input. What it remembers of a command that
//! has not come whole makes the work for a command proportional to its length, however it is cut.

mod inline;
mod parser;

pub(crate) use inline::split;
pub use parser::{Bounds, Parser, ProtocolError, Step};
