//! Finding a piece of a pattern, without stars, as early as possible in a text.

use super::code::{Code, MARK};
use super::here;

/// Longest piece that is compared anew at each place.
const SHORT: usize = 64;
/// Longest such piece in which all bytes stand for themselves.
const SHORT_PLAIN: usize = 16;

/// Where the first place ends that matches a piece of so many tokens.
pub(super) fn find(piece: &[u8], len: usize, text: &[u8], steps: &mut u64) -> Option<usize> {
    let last = text.len().checked_sub(len)?;
    if len > SHORT_PLAIN && !piece.contains(&MARK) {
        return plain(piece, text, steps);
    }
    if len > SHORT {
        return long(piece, len, text, steps);
    }
    let mut tokens = Code(piece);
    let first = tokens.next()?;
    let behind = tokens.0;
    for (at, byte) in text[..=last].iter().enumerate() {
        *steps += 1;
        if first.has(*byte) && here(behind, &text[at + 1..at + len], steps) {
            return Some(at + len);
        }
    }
    None
}

/// Finds plain bytes by the algorithm of Knuth, Morris and Pratt.
fn plain(bytes: &[u8], text: &[u8], steps: &mut u64) -> Option<usize> {
    let (mut few, mut many) = ([0; SHORT], Vec::new());
    let again = match few.get_mut(..bytes.len()) {
        Some(few) => few,
        None => {
            many.resize(bytes.len(), 0);
            &mut many[..]
        }
    };
    find_again(bytes, again, steps);
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

/// For each prefix of `bytes`: the length of its longest shorter prefix that is also its suffix.
fn find_again(bytes: &[u8], again: &mut [u32], steps: &mut u64) {
    let mut len = 0;
    for at in 1..bytes.len() {
        *steps += 1;
        while len > 0 && bytes[at] != bytes[len] {
            *steps += 1;
            len = again[len - 1] as usize;
        }
        len += usize::from(bytes[at] == bytes[len]);
        again[at] = len as u32;
    }
}

/// By shift-and: a bit for each token in a row, one row for each byte that the text has.
fn long(piece: &[u8], len: usize, text: &[u8], steps: &mut u64) -> Option<usize> {
    let words = len.div_ceil(64);
    let mut rows: Vec<Box<[u64]>> = vec![Box::default(); 256];
    // Bit n: the last n + 1 bytes match the first n + 1 tokens.
    let mut state = vec![0u64; words];
    for (at, byte) in text.iter().enumerate() {
        let row = &mut rows[usize::from(*byte)];
        if row.is_empty() {
            *steps += len as u64;
            *row = row_of(*byte, piece, words);
        }
        *steps += words as u64;
        let mut carry = 1;
        for (word, allowed) in state.iter_mut().zip(row) {
            let next = *word >> 63;
            *word = (*word << 1 | carry) & *allowed;
            carry = next;
        }
        if state[words - 1] >> ((len - 1) % 64) & 1 == 1 {
            return Some(at + 1);
        }
    }
    None
}

/// A bit for each token that may stand for this byte.
fn row_of(byte: u8, piece: &[u8], words: usize) -> Box<[u64]> {
    let mut row = vec![0; words];
    for (at, token) in Code(piece).enumerate() {
        row[at / 64] |= u64::from(token.has(byte)) << (at % 64);
    }
    row.into()
}
