//! Fields: little-endian integers, and strings with a length in front.

/// The result of parsing the start of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read<T> {
    /// A whole frame, which took so many bytes.
    Whole(T, usize),
    /// The frame is not whole: it takes this many bytes from its start, as far as is known.
    Partial(usize),
}

/// Bytes that violate the protocol: which field, and what is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// A string above 255 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} has {len} bytes; at most 255 can be sent")]
pub struct TooLong {
    /// The field that is too large.
    pub field: &'static str,
    /// Length of the field in bytes.
    pub len: usize,
}

/// Cuts fields off the front of a body.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

const SHORT: Malformed = Malformed("a frame is too short for its fields");

impl<'a> Fields<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (field, rest) = self.0.split_first_chunk().ok_or(SHORT)?;
        self.0 = rest;
        Ok(*field)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn string(&mut self) -> Result<&'a str, Malformed> {
        let len = self.u8()?;
        let (text, rest) = self.0.split_at_checked(len.into()).ok_or(SHORT)?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| Malformed("a string is not UTF-8"))
    }

    /// A string that people will read: nothing in it may be obeyed by a terminal.
    pub(super) fn name(&mut self) -> Result<&'a str, Malformed> {
        let name = self.string()?;
        if name.chars().any(char::is_control) {
            return Err(Malformed("a name has control characters"));
        }
        Ok(name)
    }
}

/// Adds a string; longer ones must have been refused before.
pub(super) fn put_string(text: &str, out: &mut Vec<u8>) {
    let len = u8::try_from(text.len()).expect("checked by the caller");
    out.push(len);
    out.extend_from_slice(text.as_bytes());
}

/// Whether a string may be sent.
pub(super) fn check(field: &'static str, text: &str) -> Result<(), TooLong> {
    let len = text.len();
    if len > u8::MAX.into() {
        return Err(TooLong { field, len });
    }
    Ok(())
}
