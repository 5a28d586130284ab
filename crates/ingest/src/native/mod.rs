//! The native protocol: messages with identity, resumption and levels of durability, and reading
//! them back. The contract is `docs/protocol.md`.

pub mod codec;
