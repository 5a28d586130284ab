//! One value alone, as DUMP gives it and RESTORE takes it:
//!
//! ```text
//! type:u8 | value | version:u16 | checksum:u64, of all in front of it
//! ```

use crate::decode::{Cursor, VALKEY_VERSION, VERSION, value};
use crate::encode::{kind, put_value};
use crate::{Value, crc};

/// Bytes behind the value.
const FOOTER: usize = 10;
/// The version that is written, and that of streams.
const WRITTEN: u16 = 9;
const WITH_STREAMS: u16 = 10;

/// Why a value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is of a later version, or its checksum is another.
    #[error("its version or checksum is wrong")]
    Footer,
    /// Something is wrong with what it says, or it has what cannot be given.
    #[error("it cannot be read")]
    Value,
}

/// A value alone.
#[must_use]
pub fn dump(value: &Value) -> Vec<u8> {
    let mut bytes = vec![kind(value)];
    put_value(&mut bytes, value);
    let version = match value {
        Value::Stream(_) => WITH_STREAMS,
        _ => WRITTEN,
    };
    bytes.extend_from_slice(&version.to_le_bytes());
    let crc = crc::append(0, &bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Reads a value that is alone, of any version up to 12, or 80 of Valkey. It may take up to about `most` bytes
/// in memory.
///
/// # Errors
/// See [`Malformed`].
pub fn restore(payload: &[u8], most: usize) -> Result<Value, Malformed> {
    let end = payload.len().checked_sub(FOOTER).filter(|end| *end > 0);
    let (body, footer) = payload.split_at(end.ok_or(Malformed::Footer)?);
    let (version, crc) = footer.split_at(2);
    let version = u32::from(version[0]) | u32::from(version[1]) << 8;
    let is_known = version <= VERSION || version == VALKEY_VERSION;
    let found = crc::append(0, &payload[..payload.len() - crc.len()]);
    if !is_known || crc != found.to_le_bytes() {
        return Err(Malformed::Footer);
    }
    let mut cursor = Cursor::of_all(&body[1..], most);
    let value = value(body[0], version == VALKEY_VERSION, &mut cursor, b"");
    let value = value.map_err(|_| Malformed::Value)?;
    cursor.end(value).map_err(|_| Malformed::Value)
}
