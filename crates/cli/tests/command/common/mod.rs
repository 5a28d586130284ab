//! Running the command, and servers that are not what they should be; most of it is shared with the lab's tests.

pub(crate) mod durable;
pub(crate) mod handover;
pub(crate) mod kv;
pub(crate) mod small_disk;
pub(crate) mod tls_client;

pub(crate) use tidewire_testkit::*;
