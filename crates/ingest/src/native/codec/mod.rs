//! The frames of the native protocol, read and written; shared by server and client. The functions
//! do no I/O and have no state: each takes the present bytes and returns their meaning, or how many
//! more bytes it needs.
//!
//! `docs/formats/protocol.md` is the contract and `docs/formats/protocol-vectors.txt` has examples of every frame.

mod admin;
mod field;
mod hello;
mod reader;
mod reason;
mod server;

pub use admin::{AdminFrame, PlaceFrame, StreamFrame, Wanted};
pub use field::{Malformed, Read, TooLong};
pub use hello::{
    Administer, Begin, HELLO_BODY_MAX, HELLO_HEADER, Hello, Level, Produce, Subscribe, VERSION,
};
pub use reader::{READER_HEADER, ReaderFrame};
pub use reason::Reason;
pub use server::{
    Batch, FRAME_HEADER, ReaderWelcome, Refusal, ServerFrame, Welcome, batch_overhead,
    encode_batch_head,
};

use crate::classic::{ByteOrder, Parser};

/// Cuts messages, and the messages of a batch frame, out of bytes: the classic parser, sizes least
/// significant byte first.
#[must_use]
pub const fn parser(payload_max: u32) -> Parser {
    Parser {
        order: ByteOrder::Little,
        payload_max,
    }
}

/// The header of a message; its payload of `size` bytes follows.
#[must_use]
pub fn message_header(id: u64, size: u32) -> [u8; crate::classic::HEADER] {
    crate::classic::header(ByteOrder::Little, id.to_le_bytes(), size)
}
