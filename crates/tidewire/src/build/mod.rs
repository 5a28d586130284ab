//! Building a server: loops, listeners, outgoing connections, limits; and the handles of a running server.

pub(crate) mod builder;
pub(crate) mod drain;
pub(crate) mod ending;
pub(crate) mod engine;
pub(crate) mod inbound;
pub(crate) mod limits;
pub(crate) mod listen;
pub(crate) mod observer;
pub(crate) mod relay;
pub(crate) mod socket_file;
pub(crate) mod threads;
pub(crate) mod watch;
