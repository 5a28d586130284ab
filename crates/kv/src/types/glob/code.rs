//! How a pattern is kept: operations one behind the other, each a byte that says which and what it needs.
//!
//! | operation | what follows | stands for |
//! |---|---|---|
//! | `BYTE` | 1 byte | that one |
//! | `BYTES` | how many less 1 (2 bytes, little-endian), and they | those |
//! | `ANY` | | any one |
//! | `RANGES` | how many, and from and to of each | one of them |
//! | `BITS` | 32 bytes, the lowest bit of the first for 0 | one whose bit is set |
//! | `STAR` | | any number of any |
//!
//! Neighbours that stand for themselves are one operation, so a piece is plain if it is a single one.

const BYTE: u8 = 0;
const BYTES: u8 = 1;
const ANY: u8 = 2;
const RANGES: u8 = 3;
const BITS: u8 = 4;
const STAR: u8 = 5;

/// Ranges that are kept as such: more take more than the bits.
const RANGES_MAX: usize = 15;

/// What stands for one byte, for several, or for any number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Op<'a> {
    /// These bytes, one at least.
    Bytes(&'a [u8]),
    Any,
    /// Those from each first to each second.
    Ranges(&'a [u8]),
    /// Those whose bits are set.
    Bits(&'a [u8]),
    Star,
}

impl Op<'_> {
    /// Whether it stands for this byte, if it stands for one.
    pub(super) fn has(&self, byte: u8) -> bool {
        match self {
            Op::Bytes(bytes) => **bytes == [byte],
            Op::Any => true,
            Op::Ranges(ranges) => ranges
                .chunks_exact(2)
                .any(|pair| (pair[0]..=pair[1]).contains(&byte)),
            Op::Bits(bits) => bits[usize::from(byte / 8)] >> (byte % 8) & 1 == 1,
            Op::Star => false,
        }
    }

    /// How many bytes it stands for.
    pub(super) fn len(&self) -> usize {
        match self {
            Op::Bytes(bytes) => bytes.len(),
            Op::Star => 0,
            _ => 1,
        }
    }
}

/// The operations of a code.
#[derive(Clone, Copy)]
pub(super) struct Ops<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Ops<'a> {
    type Item = Op<'a>;

    fn next(&mut self) -> Option<Op<'a>> {
        let (&op, rest) = self.0.split_first()?;
        let (op, len) = match op {
            BYTE => (Op::Bytes(&rest[..1]), 1),
            BYTES => {
                let len = usize::from(u16::from_le_bytes([rest[0], rest[1]])) + 1;
                (Op::Bytes(&rest[2..2 + len]), 2 + len)
            }
            ANY => (Op::Any, 0),
            RANGES => {
                let len = 1 + 2 * usize::from(rest[0]);
                (Op::Ranges(&rest[1..len]), len)
            }
            BITS => (Op::Bits(&rest[..32]), 32),
            _ => (Op::Star, 0),
        };
        self.0 = &rest[len..];
        Some(op)
    }
}

/// Writes a code.
#[derive(Default)]
pub(super) struct Builder {
    code: Vec<u8>,
    /// Bytes that stand for themselves and are not written yet.
    plain: Vec<u8>,
}

impl Builder {
    pub(super) fn byte(&mut self, byte: u8) {
        self.plain.push(byte);
    }

    pub(super) fn any(&mut self) {
        self.flush();
        self.code.push(ANY);
    }

    /// Where what is behind it begins.
    pub(super) fn star(&mut self) -> u32 {
        self.flush();
        self.code.push(STAR);
        self.code.len() as u32
    }

    /// One of those whose bits are set.
    pub(super) fn class(&mut self, bits: &[u64; 4]) {
        let has = |byte: u8| bits[usize::from(byte / 64)] >> (byte % 64) & 1 == 1;
        let mut ranges: Vec<u8> = Vec::new();
        for byte in (0..=u8::MAX).filter(|byte| has(*byte)) {
            match ranges.last_mut() {
                Some(last) if byte > 0 && *last == byte - 1 => *last = byte,
                _ => ranges.extend([byte, byte]),
            }
        }
        if let [only, same] = ranges[..]
            && only == same
        {
            return self.byte(only);
        }
        self.flush();
        if ranges.len() / 2 <= RANGES_MAX {
            self.code.extend([RANGES, (ranges.len() / 2) as u8]);
            self.code.extend(ranges);
        } else {
            self.code.push(BITS);
            bits.iter()
                .for_each(|word| self.code.extend(word.to_le_bytes()));
        }
    }

    pub(super) fn finish(mut self) -> Box<[u8]> {
        self.flush();
        self.code.into_boxed_slice()
    }

    fn flush(&mut self) {
        match self.plain[..] {
            [] => {}
            [byte] => self.code.extend([BYTE, byte]),
            _ => {
                // A pattern has no more than 65,536.
                let less = (self.plain.len() - 1) as u16;
                self.code.push(BYTES);
                self.code.extend(less.to_le_bytes());
                self.code.append(&mut self.plain);
            }
        }
        self.plain.clear();
    }
}
