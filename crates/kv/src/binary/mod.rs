//! The small binary protocol: read a key, write a key, nothing else. All integers big-endian.
//!
//! | bytes | meaning |
//! |---|---|
//! | `1, body_len:u16, klen:u8, key` | READ; `body_len` = klen + 1 |
//! | `2, body_len:u16, klen:u8, key, vlen:u8, value` | WRITE; `body_len` = klen + vlen + 2 |
//! | `3, vlen:u8, value` | the answer to either: the value read or written; empty for a miss |
//!
//! An unknown operation, or lengths that disagree, end the connection: what follows cannot be
//! understood.

mod codec;

pub use codec::{Fault, Request, Step, encode_read, encode_response, encode_write, parse};
