//! The dump files of Redis and of what descends from it (RDB), read and written without I/O: bytes in,
//! keys out, and back.
//!
//! [`Decoder`] reads files of the versions 1 to 12, and 80 of Valkey, in every encoding of strings, lists, sets,
//! hashes, sorted sets and streams. Data that it cannot represent, such as data of modules, is refused by name.
//! [`Encoder`] writes version 9, which Redis 5 and later read; streams are in the form of Redis 7, which older
//! versions refuse.
//!
//! ```
//! use tidewire_rdb::{Decoder, Encoder, Item, Value};
//!
//! let mut file = Vec::new();
//! let mut encoder = Encoder::new(&mut file);
//! encoder.key(0, b"k", None, &Value::String(b"v".to_vec()), &mut file);
//! encoder.end(&mut file);
//!
//! let mut decoder = Decoder::default();
//! let mut rest = &file[..];
//! let mut keys = Vec::new();
//! loop {
//!     let (used, item) = decoder.next(rest)?.expect("all of it is there");
//!     rest = &rest[used..];
//!     match item {
//!         Item::Key(key) => keys.push(key),
//!         Item::End => break,
//!         Item::Library(_) | Item::Skipped(_) => {}
//!     }
//! }
//! assert_eq!(keys[0].value, Value::String(b"v".to_vec()));
//! # Ok::<(), tidewire_rdb::Error>(())
//! ```
#![forbid(unsafe_code)]

mod crc;
mod cursor;
mod decode;
mod encode;
mod libraries;
mod packed;
mod single;
mod stream;
mod value;
mod write;

pub use decode::{Decoder, Error, Item, Key};
pub use encode::Encoder;
pub use libraries::{dump_libraries, read_libraries};
pub use single::{Malformed, dump, restore};
pub use stream::{Consumer, Group, Id, Stream};
pub use value::Value;
