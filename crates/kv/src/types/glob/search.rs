//! Finding a piece of a pattern, without stars, as early as possible in a text.

use super::Token;

/// Longest piece that is compared anew at each place.
const SHORT: usize = 64;

/// A piece of a pattern, prepared for the search.
#[derive(Debug)]
pub(super) enum Piece {
    /// Plain bytes, by Knuth, Morris and Pratt: with how much of the beginning is there again at the
    /// end of each of its beginnings.
    Plain(Vec<u8>, Vec<u32>),
    Short(Vec<Token>),
    /// By shift-and: a bit for each token in a row, one row for each value of a byte.
    Long {
        len: usize,
        rows: Vec<u64>,
    },
}

impl Piece {
    pub(super) fn new(tokens: Vec<Token>) -> Piece {
        let plain = tokens.iter().map(|token| match token {
            Token::Byte(byte) => Some(*byte),
            _ => None,
        });
        if let Some(bytes) = plain.collect::<Option<Vec<u8>>>() {
            let again = again(&bytes);
            return Piece::Plain(bytes, again);
        }
        if tokens.len() <= SHORT {
            return Piece::Short(tokens);
        }
        let words = tokens.len().div_ceil(64);
        let mut rows = vec![0; 256 * words];
        for (at, token) in tokens.iter().enumerate() {
            let mut allow = |byte: u8| rows[usize::from(byte) * words + at / 64] |= 1 << (at % 64);
            match token {
                Token::Byte(byte) => allow(*byte),
                _ => (0..=u8::MAX)
                    .filter(|byte| token.has(*byte))
                    .for_each(allow),
            }
        }
        Piece::Long {
            len: tokens.len(),
            rows,
        }
    }

    /// Where the first place that matches ends.
    pub(super) fn find(&self, text: &[u8], steps: &mut u64) -> Option<usize> {
        match self {
            Piece::Plain(bytes, again) => plain(bytes, again, text, steps),
            Piece::Short(tokens) => {
                let place = text
                    .windows(tokens.len())
                    .position(|window| super::here(tokens, window, steps));
                place.map(|at| at + tokens.len())
            }
            Piece::Long { len, rows } => long(*len, rows, text, steps),
        }
    }
}

/// For each beginning of `bytes`: how long the longest shorter beginning is that it ends with.
fn again(bytes: &[u8]) -> Vec<u32> {
    let mut again = vec![0; bytes.len()];
    let mut len = 0;
    for at in 1..bytes.len() {
        while len > 0 && bytes[at] != bytes[len] {
            len = again[len - 1] as usize;
        }
        len += usize::from(bytes[at] == bytes[len]);
        again[at] = len as u32;
    }
    again
}

fn plain(bytes: &[u8], again: &[u32], text: &[u8], steps: &mut u64) -> Option<usize> {
    let mut len = 0;
    for (at, byte) in text.iter().enumerate() {
        *steps += 1;
        while len > 0 && bytes[len] != *byte {
            *steps += 1;
            len = again[len - 1] as usize;
        }
        len += usize::from(bytes[len] == *byte);
        if len == bytes.len() {
            return Some(at + 1);
        }
    }
    None
}

fn long(len: usize, rows: &[u64], text: &[u8], steps: &mut u64) -> Option<usize> {
    let words = len.div_ceil(64);
    // Bit n: the last n + 1 bytes match the first n + 1 tokens.
    let mut state = vec![0u64; words];
    for (at, byte) in text.iter().enumerate() {
        *steps += words as u64;
        let row = &rows[usize::from(*byte) * words..][..words];
        let mut carry = 1;
        for (word, allowed) in state.iter_mut().zip(row) {
            let next = *word >> 63;
            *word = (*word << 1 | carry) & allowed;
            carry = next;
        }
        if state[words - 1] >> ((len - 1) % 64) & 1 == 1 {
            return Some(at + 1);
        }
    }
    None
}
