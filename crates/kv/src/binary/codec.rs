//! Bytes to requests and back, without copying keys and values.

use std::fmt;

const READ: u8 = 1;
const WRITE: u8 = 2;
const RESPONSE: u8 = 3;
/// Operation and length of the body.
const HEADER: usize = 3;

/// A whole request; slices of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Answered with the value, empty if there is none.
    Read {
        /// The key; at most 255 bytes.
        key: &'a [u8],
    },
    /// Answered with the value written.
    Write {
        /// The key; at most 255 bytes.
        key: &'a [u8],
        /// At most 255 bytes; may be empty.
        value: &'a [u8],
    },
}

/// The kind of data at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A request, and the request's length in the input.
    Request(Request<'a>, usize),
    /// An unfinished request, which has at least this many bytes.
    Needs(usize),
    /// The bytes are not the protocol.
    Bad(Fault),
}

/// Input that is not the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An operation that is neither READ nor WRITE.
    UnknownOperation(u8),
    /// The lengths of key and value do not add up to that of the body.
    Lengths,
}

impl Fault {
    /// The reason in a few words, without the particulars.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Fault::UnknownOperation(_) => "unknown operation",
            Fault::Lengths => "lengths that disagree",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::UnknownOperation(op) => write!(f, "unknown operation {op}"),
            Fault::Lengths => f.write_str(self.reason()),
        }
    }
}

impl std::error::Error for Fault {}

/// Reads the request that `bytes` begin with. A fault is found as early as the bytes show it.
#[inline]
#[must_use]
pub fn parse(bytes: &[u8]) -> Step<'_> {
    let Some(&op) = bytes.first() else {
        return Step::Needs(HEADER);
    };
    let lengths = match op {
        READ => 1..=1 + 255,
        WRITE => 2..=2 + 255 + 255,
        _ => return Step::Bad(Fault::UnknownOperation(op)),
    };
    let Some(&[_, high, low]) = bytes.first_chunk::<HEADER>() else {
        return Step::Needs(HEADER);
    };
    let body_len = usize::from(u16::from_be_bytes([high, low]));
    if !lengths.contains(&body_len) {
        return Step::Bad(Fault::Lengths);
    }
    let len = HEADER + body_len;
    let Some(body) = bytes.get(HEADER..len) else {
        return Step::Needs(len);
    };
    let Some((key, rest)) = counted(body) else {
        return Step::Bad(Fault::Lengths);
    };
    if op == READ {
        return if rest.is_empty() {
            Step::Request(Request::Read { key }, len)
        } else {
            Step::Bad(Fault::Lengths)
        };
    }
    match counted(rest) {
        Some((value, [])) => Step::Request(Request::Write { key, value }, len),
        _ => Step::Bad(Fault::Lengths),
    }
}

/// The bytes behind a length, and what follows them.
#[inline]
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(len))
}

/// Appends a READ.
///
/// # Panics
/// If the key is longer than 255 bytes.
pub fn encode_read(key: &[u8], to: &mut Vec<u8>) {
    to.push(READ);
    to.extend_from_slice(&(key.len() as u16 + 1).to_be_bytes());
    push_counted(key, to);
}

/// Appends a WRITE.
///
/// # Panics
/// If key or value is longer than 255 bytes.
pub fn encode_write(key: &[u8], value: &[u8], to: &mut Vec<u8>) {
    to.push(WRITE);
    to.extend_from_slice(&(key.len() as u16 + value.len() as u16 + 2).to_be_bytes());
    push_counted(key, to);
    push_counted(value, to);
}

/// Appends a response.
///
/// # Panics
/// If the value is longer than 255 bytes.
#[inline]
pub fn encode_response(value: &[u8], to: &mut Vec<u8>) {
    to.push(RESPONSE);
    push_counted(value, to);
}

#[inline]
fn push_counted(bytes: &[u8], to: &mut Vec<u8>) {
    to.push(u8::try_from(bytes.len()).expect("at most 255 bytes"));
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_byte_by_byte() {
        let mut bytes = Vec::new();
        encode_read(b"abc", &mut bytes);
        assert_eq!(bytes, b"\x01\x00\x04\x03abc");
        assert_eq!(
            parse(&bytes),
            Step::Request(Request::Read { key: b"abc" }, 7)
        );
        bytes.clear();
        encode_write(b"k", b"", &mut bytes);
        assert_eq!(bytes, b"\x02\x00\x03\x01k\x00");
        assert_eq!(
            parse(&bytes),
            Step::Request(
                Request::Write {
                    key: b"k",
                    value: b""
                },
                6
            )
        );
        bytes.clear();
        encode_response(b"v", &mut bytes);
        assert_eq!(bytes, b"\x03\x01v");
    }

    #[test]
    fn the_longest_and_the_shortest() {
        for (key, value) in [(vec![7; 255], vec![9; 255]), (vec![], vec![])] {
            let mut bytes = Vec::new();
            encode_write(&key, &value, &mut bytes);
            let request = Request::Write {
                key: &key,
                value: &value,
            };
            assert_eq!(parse(&bytes), Step::Request(request, bytes.len()));
            for cut in 0..bytes.len() {
                assert!(matches!(parse(&bytes[..cut]), Step::Needs(n) if n > cut));
            }
        }
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        for op in [0, 3, 4, 255] {
            assert_eq!(parse(&[op]), Step::Bad(Fault::UnknownOperation(op)));
        }
        for bad in [
            &b"\x01\x00\x00"[..],
            b"\x01\x01\x01",
            b"\x02\x00\x01",
            b"\x02\x02\x01",
            b"\x01\x00\x02\x00x",
            b"\x01\x00\x02\x02x",
            b"\x02\x00\x02\x01x",
            b"\x02\x00\x03\x00\x02x",
            b"\x02\x00\x04\x00\x01xy",
        ] {
            assert_eq!(parse(bad), Step::Bad(Fault::Lengths), "{bad:?}");
        }
    }
}
