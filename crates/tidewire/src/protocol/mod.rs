//! What a protocol is: what it is told, what it may ask for, what it reads from.

pub(crate) mod connection;
mod deadlines;
pub(crate) mod input;
pub(crate) mod link;
pub(crate) mod service;
pub(crate) mod service_fn;
