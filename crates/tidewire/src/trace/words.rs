//! Bytes and times in a form for people.

use std::fmt;

use crate::vocabulary::time::Instant;

/// Bytes shown of a piece.
const SHOWN: usize = 48;

/// How many bytes, and what the first of them say.
pub(crate) struct Said<'a>(pub(crate) usize, pub(crate) Option<&'a [u8]>);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Said(len, bytes) = self;
        let s = if *len == 1 { "" } else { "s" };
        write!(f, "{len} byte{s}")?;
        let Some(bytes) = bytes else { return Ok(()) };
        let shown = &bytes[..bytes.len().min(SHOWN)];
        let more = if *len > shown.len() { "..." } else { "" };
        write!(f, " '{}'{more}", shown.escape_ascii())
    }
}

/// A time since the beginning, in milliseconds.
pub(crate) struct Ms(pub(crate) Instant);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos();
        write!(f, "{:6}.{:06} ms", ns / 1_000_000, ns % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_cut_and_escaped() {
        assert_eq!(Said(1, Some(b"\0")).to_string(), r"1 byte '\x00'");
        let long = "SET a ".repeat(20);
        let said = Said(long.len(), Some(long.as_bytes())).to_string();
        assert_eq!(said, format!("120 bytes '{}'...", &long[..48]));
        assert_eq!(Said(7, None).to_string(), "7 bytes");
    }
}
