//! The parts of a protocol: its callbacks, its link, its input.

pub(crate) mod connection;
mod deadlines;
pub(crate) mod input;
pub(crate) mod link;
pub(crate) mod service;
pub(crate) mod service_fn;
