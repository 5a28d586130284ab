//! A single value, as DUMP returns it and RESTORE takes it:
//!
//! ```text
//! type:u8 | value | version:u16 | checksum:u64, of all in front of it
//! ```

use crate::crc;
use crate::cursor::Cursor;
use crate::decode::{VALKEY_VERSION, VERSION, value};
use crate::encode::{kind, put_value};
use crate::value::Value;

/// Bytes behind the value.
const FOOTER: usize = 10;
/// The version that is written, and that of streams.
const WRITTEN: u16 = 9;
const WITH_STREAMS: u16 = 10;

/// Why a value cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The value is of a later version, or its checksum does not match.
    #[error("its version or checksum is wrong")]
    Footer,
    /// The value contradicts itself, or contains data that cannot be represented.
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

/// Reads a single value, of any version up to 12, or 80 of Valkey. The value may take up to about `most` bytes
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload with a right footer.
    fn signed(mut body: Vec<u8>, version: u16) -> Vec<u8> {
        body.extend_from_slice(&version.to_le_bytes());
        let crc = crc::append(0, &body);
        body.extend_from_slice(&crc.to_le_bytes());
        body
    }

    #[test]
    fn what_redis_dumps_is_read() {
        // DUMP of the string "10" by Redis 7.0.
        let payload = b"\0\xc0\n\n\0n\x9fWE\x0e\xaec\xbb";
        assert_eq!(restore(payload, 100), Ok(Value::String(b"10".to_vec())));
    }

    #[test]
    fn footers_and_lengths_are_checked() {
        let good = signed(vec![0, 1, b'x'], 9);
        assert_eq!(restore(&good, 100), Ok(Value::String(b"x".to_vec())));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(restore(&bad, 100).is_err(), "{at}");
            assert!(restore(&good[..at], 100).is_err(), "{at}");
        }
        for (body, version, why) in [
            (vec![0, 1, b'x'], 13, Malformed::Footer),
            (vec![], 9, Malformed::Footer),
            (vec![0], 9, Malformed::Value),
            (vec![0, 1, b'x', b'y'], 9, Malformed::Value),
            (vec![0, 0x80, 0xff, 0xff, 0xff, 0xff], 9, Malformed::Value),
            (vec![1, 0x80, 0xff, 0xff, 0xff, 0xff], 9, Malformed::Value),
            (vec![99, 1, b'x'], 9, Malformed::Value),
            (vec![22, 0], 9, Malformed::Value),
        ] {
            assert_eq!(
                restore(&signed(body.clone(), version), 100),
                Err(why),
                "{body:?}"
            );
        }
    }
}
