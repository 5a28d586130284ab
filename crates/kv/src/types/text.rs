//! An element of a collection as commands see it: bytes, wherever they come from.

use std::fmt;
use std::ops::Deref;

/// Digits of the longest number, its sign included.
const DIGITS: usize = 20;

/// The bytes of an element. Bytes of a text that is kept as a number are made when it is looked at.
#[derive(Clone, Copy)]
pub struct Text<'a>(Kept<'a>);

#[derive(Clone, Copy)]
enum Kept<'a> {
    Bytes(&'a [u8]),
    /// The digits end with the array.
    Digits {
        start: u8,
        digits: [u8; DIGITS],
    },
}

impl<'a> Text<'a> {
    #[inline]
    pub(super) fn bytes(bytes: &'a [u8]) -> Text<'a> {
        Text(Kept::Bytes(bytes))
    }

    /// The text of a number, in decimal.
    pub(super) fn number(n: i64) -> Text<'a> {
        let mut digits = [0; DIGITS];
        let (mut start, mut rest) = (DIGITS, n.unsigned_abs());
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if n < 0 {
            start -= 1;
            digits[start] = b'-';
        }
        let start = start as u8;
        Text(Kept::Digits { start, digits })
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Bytes(bytes) => bytes,
            Kept::Digits { start, digits } => &digits[usize::from(*start)..],
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Text<'_>) -> bool {
        **self == **other
    }
}

impl PartialEq<[u8]> for Text<'_> {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for n in [0, 7, -7, 10, 1_234_567, i64::MAX, i64::MIN] {
            assert_eq!(&*Text::number(n), n.to_string().as_bytes());
        }
    }
}
