//! How one element is written: a descriptor of one byte, and its payload.
//!
//! ```text
//! descriptor 0..=191    that many bytes
//!            192..=247  11 s s s n n n: a whole number of n bytes, two's complement, the lowest first,
//!                       divided by ten to the power of s, which is 0 to 6
//!            248..=254  11 1 1 1 n n n: as a whole number, one that only its owner understands
//!            255        four bytes with the length, the lowest first, and that many bytes
//! ```
//!
//! An element has exactly one code, and two different elements have different codes: so an element is found
//! by its code. A decimal integer as Redis reads it, of up to 56 bits, is a number with s = 0, in as few
//! bytes as it takes; other texts are bytes.

use std::ops::RangeInclusive;

use super::super::text::Text;
use crate::number::parse_integer;

/// The longest text whose length is its descriptor.
const SHORT: usize = 191;
/// The first descriptor of a number.
const NUMBER: u8 = 0xc0;
/// The scale of a number that only its owner understands.
const REFERENCE: u8 = 7;
pub(super) const LONG: u8 = 255;
/// Digits and sign of the longest number: 2^55 has 17.
const DIGITS: usize = 18;
/// Scores that are no short decimals: the bytes of the number.
const DOUBLE: u8 = 8;
const POWERS: [f64; 7] = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
/// Whole numbers up to here are exact in a score, and so are their quotients rounded once.
const EXACT: f64 = (1u64 << 53) as f64;

/// An element in its written form.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Code<'a> {
    pub(super) descriptor: u8,
    /// How many of the bytes in front there are.
    front_len: u8,
    front: [u8; 8],
    rest: &'a [u8],
}

impl<'a> Code<'a> {
    #[inline]
    pub(in super::super) fn of(text: &'a [u8]) -> Code<'a> {
        if let [b'0'..=b'9' | b'-', ..] = text
            && text.len() <= DIGITS
            && let Some(code) = parse_integer(text).and_then(|n| Code::number(0, n))
        {
            return code;
        }
        Code::raw(text)
    }

    fn raw(text: &'a [u8]) -> Code<'a> {
        let mut code = Code {
            descriptor: text.len() as u8,
            front_len: 0,
            front: [0; 8],
            rest: text,
        };
        if text.len() > SHORT {
            let len = u32::try_from(text.len()).expect("arguments are bounded far below this");
            code.descriptor = LONG;
            code.front_len = 4;
            code.front[..4].copy_from_slice(&len.to_le_bytes());
        }
        code
    }

    /// A number divided by ten to the power of `scale`, if it fits.
    fn number(scale: u8, n: i64) -> Option<Code<'a>> {
        // As many bits as distinguish the number from its sign extension, and one bit for the sign.
        let bits = 64 - (n ^ n >> 63).leading_zeros();
        let len = if n == 0 { 0 } else { bits / 8 + 1 } as u8;
        (len < 8).then_some(Code {
            descriptor: NUMBER | scale << 3 | len,
            front_len: len,
            front: n.to_le_bytes(),
            rest: &[],
        })
    }

    /// A number that the owner understands.
    pub(in super::super) fn reference(n: u32) -> Code<'a> {
        Code::number(REFERENCE, i64::from(n)).expect("it has at most five bytes")
    }

    /// A score, which is not a NaN: the shortest decimal that is exactly it, or its eight bytes in `raw`.
    pub(in super::super) fn score(score: f64, raw: &'a mut [u8; 8]) -> Code<'a> {
        for (scale, power) in POWERS.iter().enumerate() {
            let n = (score * power).round();
            if n.abs() < EXACT && n / power == score {
                // One less than 2^53 has seven bytes at most.
                return Code::number(scale as u8, n as i64).expect("it has at most seven bytes");
            }
        }
        *raw = score.to_le_bytes();
        Code::raw(raw)
    }

    /// Reads an element from its descriptor, and from bytes that begin with its payload.
    #[inline]
    pub(super) fn read(descriptor: u8, bytes: &'a [u8]) -> Code<'a> {
        let size = size(descriptor, bytes);
        let mut code = Code {
            descriptor,
            front_len: 0,
            front: [0; 8],
            rest: &bytes[..size],
        };
        if descriptor == LONG {
            code.front_len = 4;
            code.front[..4].copy_from_slice(&bytes[..4]);
            code.rest = &bytes[4..size];
        }
        code
    }

    /// Bytes that the element takes in a listpack.
    pub(in super::super) fn listed(&self) -> usize {
        match self.descriptor {
            LONG => listed_as(None, self.rest.len()),
            NUMBER.. => listed(self.descriptor, &self.front[..usize::from(self.front_len)]),
            _ => listed(self.descriptor, self.rest),
        }
    }

    /// Bytes of the element's payload.
    #[inline]
    pub(super) fn size(&self) -> usize {
        usize::from(self.front_len) + self.rest.len()
    }

    /// Writes the element's payload; `to` has exactly this length.
    #[inline]
    pub(super) fn write(&self, to: &mut [u8]) {
        let (front, rest) = to.split_at_mut(usize::from(self.front_len));
        front.copy_from_slice(&self.front[..front.len()]);
        rest.copy_from_slice(self.rest);
    }

    /// Whether `payload` is this element's payload; the sizes are equal, because the descriptors
    /// are.
    #[inline]
    pub(super) fn is(&self, payload: &[u8]) -> bool {
        // Two different payloads nearly always differ in the last byte, if not in the length.
        if self.front_len == 0 {
            return payload.last() == self.rest.last() && payload == self.rest;
        }
        let (front, rest) = payload.split_at(usize::from(self.front_len));
        let ours = &self.front[..front.len()];
        front.iter().eq(ours) && (rest.is_empty() || rest == self.rest)
    }
}

/// Bytes of the payload that `bytes` begin with.
#[inline]
pub(super) fn size(descriptor: u8, bytes: &[u8]) -> usize {
    if descriptor == LONG {
        4 + u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize
    } else {
        usize::from(short_size(descriptor))
    }
}

/// The length of a payload whose descriptor gives the whole length.
#[inline]
pub(super) fn short_size(descriptor: u8) -> u8 {
    if descriptor < NUMBER {
        descriptor
    } else {
        descriptor & 7
    }
}

/// Bytes of the payloads of these descriptors; `None` if one of them stores its length elsewhere.
#[inline]
pub(super) fn sizes(descriptors: &[u8]) -> Option<usize> {
    /// This number of sizes adds up to less than 2^16, so that as many numbers as possible are
    /// added at once.
    const AT_ONCE: usize = 256;
    let (mut all, mut has_long) = (0, false);
    for some in descriptors.chunks(AT_ONCE) {
        let mut sum = 0u16;
        let mut long = 0u16;
        for &descriptor in some {
            sum += u16::from(short_size(descriptor));
            long |= u16::from(descriptor == LONG);
        }
        all += usize::from(sum);
        has_long |= long != 0;
    }
    (!has_long).then_some(all)
}

/// The number whose payload is the first `len` of some bytes, at most seven.
#[inline]
fn integer(bytes: &[u8], len: u8) -> i64 {
    let word = match bytes.first_chunk::<8>() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..usize::from(len)].copy_from_slice(&bytes[..usize::from(len)]);
            u64::from_le_bytes(word)
        }
    };
    if len == 0 {
        return 0;
    }
    let unused = 64 - 8 * u32::from(len);
    (word << unused) as i64 >> unused
}

/// The text that an element is; `bytes` begin with its payload.
#[inline]
pub(super) fn text(descriptor: u8, bytes: &[u8]) -> Text<'_> {
    if descriptor < NUMBER {
        Text::bytes(&bytes[..usize::from(descriptor)])
    } else if descriptor == LONG {
        Text::bytes(&bytes[4..size(descriptor, bytes)])
    } else {
        Text::number(integer(bytes, descriptor & 7))
    }
}

/// The score that an element is.
#[inline]
pub(super) fn score(descriptor: u8, bytes: &[u8]) -> f64 {
    if descriptor == DOUBLE {
        f64::from_le_bytes(bytes[..8].try_into().expect("eight"))
    } else {
        let n = integer(bytes, descriptor & 7) as f64;
        match descriptor >> 3 & 7 {
            0 => n,
            scale => n / POWERS[usize::from(scale)],
        }
    }
}

/// The number that an element is to its owner, if it is one.
#[inline]
pub(super) fn reference(descriptor: u8, bytes: &[u8]) -> Option<u32> {
    (descriptor >> 3 == (NUMBER >> 3 | REFERENCE) && descriptor != LONG)
        .then(|| integer(bytes, descriptor & 7) as u32)
}

/// Bytes that an element with this payload takes in a listpack of Redis, which names of encodings and the
/// limit of lists are about: header, payload, and the length of both once more.
/// <https://github.com/antirez/listpack/blob/master/listpack.md>
pub(super) fn listed(descriptor: u8, payload: &[u8]) -> usize {
    if descriptor == LONG {
        listed_as(None, payload.len() - 4)
    } else if descriptor >= NUMBER {
        listed_as(Some(integer(payload, descriptor & 7)), 0)
    } else {
        // Some are too long to be numbers here.
        listed_as(parse_integer(payload), payload.len())
    }
}

/// Bytes of a number, or of a text of so many bytes.
fn listed_as(number: Option<i64>, len: usize) -> usize {
    // Numbers that fit so few bytes, and how many bytes these are.
    const RANGES: [(RangeInclusive<i64>, usize); 5] = [
        (0..=0x7f, 1),
        (-0x1000..=0xfff, 2),
        (-0x8000..=0x7fff, 3),
        (-0x80_0000..=0x7f_ffff, 4),
        (-0x8000_0000..=0x7fff_ffff, 5),
    ];
    let forth = match (number, len) {
        (Some(n), _) => {
            let range = RANGES.iter().find(|(range, _)| range.contains(&n));
            range.map_or(9, |(_, bytes)| *bytes)
        }
        (None, len @ ..64) => len + 1,
        (None, len @ 64..4096) => len + 2,
        (None, len) => len + 5,
    };
    let back = match forth {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    };
    forth + back
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(code: Code<'_>) -> Vec<u8> {
        let mut bytes = vec![code.descriptor; code.size() + 1];
        code.write(&mut bytes[1..]);
        bytes
    }

    #[test]
    fn the_bytes_are_as_documented() {
        for (text, bytes) in [
            (&b""[..], &b"\0"[..]),
            (b"abc", b"\x03abc"),
            (b"0", b"\xc0"),
            (b"-1", b"\xc1\xff"),
            (b"127", b"\xc1\x7f"),
            (b"128", b"\xc2\x80\0"),
            (b"-129", b"\xc2\x7f\xff"),
            (b"1700000000", b"\xc4\0\xf1\x53\x65"),
            (b"36028797018963967", b"\xc7\xff\xff\xff\xff\xff\xff\x7f"),
            (b"36028797018963968", b"\x1136028797018963968"),
            (b"007", b"\x03007"),
            (b"-0", b"\x02-0"),
        ] {
            let code = Code::of(text);
            assert_eq!(written(code), bytes, "{}", text.escape_ascii());
            assert_eq!(&*super::text(bytes[0], &bytes[1..]), text);
            assert!(code.is(&bytes[1..]));
        }
        let long = [b'x'; 192];
        let bytes = written(Code::of(&long));
        assert_eq!(&bytes[..6], b"\xff\xc0\0\0\0x");
        assert_eq!(&*text(255, &bytes[1..]), long);
    }

    #[test]
    fn scores_are_what_they_were() {
        let mut numbers = vec![
            (0.0, 1),
            (1.0, 2),
            (-128.0, 2),
            (0.1, 2),
            (3.37, 3),
            (1e6, 4),
            (1.7e9 + 0.123_456, 8),
            (1.0 / 3.0, 9),
            (f64::MAX, 9),
            (f64::MIN_POSITIVE, 9),
            (5e-324, 9),
            (f64::INFINITY, 9),
            (f64::NEG_INFINITY, 9),
            (9_007_199_254_740_991.0, 8),
            (9_007_199_254_740_992.0, 9),
        ];
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let x = f64::from_bits(rng.u64(..));
            numbers.push((if x.is_nan() { 0.5 } else { x }, 0));
            numbers.push((rng.i32(..) as f64 / 10f64.powi(rng.i32(0..9)), 0));
        }
        for (x, len) in numbers {
            let mut raw = [0; 8];
            let bytes = written(Code::score(x, &mut raw));
            assert_eq!(score(bytes[0], &bytes[1..]).to_bits(), x.to_bits(), "{x}");
            assert!(len == 0 || bytes.len() == len, "{x}: {bytes:?}");
        }
    }

    #[test]
    fn references_are_nothing_else() {
        for n in [0, 1, 200, u32::MAX] {
            let bytes = written(Code::reference(n));
            assert_eq!(reference(bytes[0], &bytes[1..]), Some(n));
        }
        for text in [&b""[..], b"7", b"x", &[b'x'; 254], &[b'x'; 500]] {
            let bytes = written(Code::of(text));
            assert_eq!(reference(bytes[0], &bytes[1..]), None);
        }
    }
}
