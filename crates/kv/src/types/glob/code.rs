//! The code of a pattern, as bytes.
//!
//! A byte stands for itself, except [`MARK`]: the byte behind a mark says what the mark means. So a code takes
//! hardly more memory than its pattern, and its plain bytes can be compared directly.

/// The next byte says what stands here; it does not stand for itself.
pub(super) const MARK: u8 = 0;
/// Bytes of a mark with its meaning, when no further byte belongs to the mark.
pub(super) const MARKED: usize = 2;

/// The byte that is the mark itself.
const ZERO: u8 = 0;
const ANY: u8 = 1;
const STAR: u8 = 2;
/// A class of bytes as ranges: their number follows, then the first and the last byte of each.
const RANGES: u8 = 3;
/// A class of bytes as a bit for each byte, which follow.
const BITS: u8 = 4;
/// Bytes of a class's bits.
const ALL: usize = 32;
/// Most ranges that are shorter than the bits.
const RANGES_MAX: usize = (ALL - 1) / 2;

/// A unit of the code: it stands for one byte of text, or is a star.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'c> {
    Byte(u8),
    Any,
    /// Bytes from the first to the last of each pair.
    Ranges(&'c [u8]),
    /// Bytes whose bits are set.
    Bits(&'c [u8]),
    /// Any number of bytes.
    Star,
}

impl Token<'_> {
    /// Whether the token may stand for this byte.
    #[inline]
    pub(super) fn has(self, byte: u8) -> bool {
        match self {
            Token::Byte(own) => own == byte,
            Token::Any => true,
            Token::Ranges(pairs) => pairs
                .chunks_exact(2)
                .any(|pair| (pair[0]..=pair[1]).contains(&byte)),
            Token::Bits(bits) => bits[usize::from(byte / 8)] >> (byte % 8) & 1 == 1,
            Token::Star => false,
        }
    }
}

/// The tokens of a code that are left.
pub(super) struct Code<'c>(pub(super) &'c [u8]);

impl<'c> Iterator for Code<'c> {
    type Item = Token<'c>;

    #[inline]
    fn next(&mut self) -> Option<Token<'c>> {
        let (token, rest) = match self.0 {
            [] => return None,
            [byte, rest @ ..] if *byte != MARK => (Token::Byte(*byte), rest),
            [MARK, ANY, rest @ ..] => (Token::Any, rest),
            [MARK, STAR, rest @ ..] => (Token::Star, rest),
            [MARK, RANGES, n, rest @ ..] => {
                let (pairs, rest) = rest.split_at(2 * usize::from(*n));
                (Token::Ranges(pairs), rest)
            }
            [MARK, BITS, rest @ ..] => {
                let (bits, rest) = rest.split_at(ALL);
                (Token::Bits(bits), rest)
            }
            // Nothing else is put behind a mark.
            [_, rest @ ..] => (Token::Byte(MARK), rest.get(1..).unwrap_or_default()),
        };
        self.0 = rest;
        Some(token)
    }
}

/// The bytes of a code, from the first on, that stand for themselves.
pub(super) fn plain(code: &[u8]) -> &[u8] {
    let end = code.iter().position(|byte| *byte == MARK);
    &code[..end.unwrap_or(code.len())]
}

pub(super) fn put_byte(byte: u8, code: &mut Vec<u8>) {
    code.push(byte);
    if byte == MARK {
        code.push(ZERO);
    }
}

pub(super) fn put_any(code: &mut Vec<u8>) {
    code.extend([MARK, ANY]);
}

pub(super) fn put_star(code: &mut Vec<u8>) {
    code.extend([MARK, STAR]);
}

/// Puts a class of the bytes whose bits are set, in its shortest form.
pub(super) fn put_class(bits: &[u64; 4], code: &mut Vec<u8>) {
    let has = |byte: u8| bits[usize::from(byte / 64)] >> (byte % 64) & 1 == 1;
    let mut ranges: Vec<[u8; 2]> = Vec::new();
    for byte in (0..=u8::MAX).filter(|byte| has(*byte)) {
        match ranges.last_mut() {
            Some([_, last]) if *last + 1 == byte => *last = byte,
            _ => ranges.push([byte, byte]),
        }
    }
    match &ranges[..] {
        [[first, last]] if first == last => put_byte(*first, code),
        [[0, u8::MAX]] => put_any(code),
        ranges if ranges.len() <= RANGES_MAX => {
            code.extend([MARK, RANGES, ranges.len() as u8]);
            code.extend(ranges.iter().flatten());
        }
        _ => {
            code.extend([MARK, BITS]);
            code.extend(bits.iter().flat_map(|word| word.to_le_bytes()));
        }
    }
}
