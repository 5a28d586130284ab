//! Finding a piece of a pattern, without stars, as early as possible in a text.

use super::code::{Op, Ops};
use super::here;

/// Longest piece that is compared anew at each place; bytes of a text.
const SHORT: usize = 64;

/// Where the first place that a piece stands for ends.
pub(super) fn find(piece: &[u8], text: &[u8], steps: &mut u64) -> Option<usize> {
    let len = Ops(piece).map(|op| op.len()).sum();
    if text.len() < len {
        return None;
    }
    if len <= SHORT {
        let place = text
            .windows(len)
            .position(|window| here(piece, window, steps).is_some());
        return place.map(|at| at + len);
    }
    let mut ops = Ops(piece);
    match (ops.next(), ops.next()) {
        (Some(Op::Bytes(bytes)), None) => plain(bytes, text, steps),
        _ => long(len, &rows(len, piece), text, steps),
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

/// By Knuth, Morris and Pratt.
fn plain(bytes: &[u8], text: &[u8], steps: &mut u64) -> Option<usize> {
    let again = again(bytes);
    *steps += bytes.len() as u64;
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

/// A bit for each byte that a piece stands for in a row, one row for each value that it may have.
fn rows(len: usize, piece: &[u8]) -> Vec<u64> {
    let words = len.div_ceil(64);
    let mut rows = vec![0; 256 * words];
    let mut at = 0;
    for op in Ops(piece) {
        let mut allow = |byte: u8, at: usize| {
            rows[usize::from(byte) * words + at / 64] |= 1 << (at % 64);
        };
        match op {
            Op::Bytes(bytes) => (at..).zip(bytes).for_each(|(at, byte)| allow(*byte, at)),
            op => {
                let those = (0..=u8::MAX).filter(|byte| op.has(*byte));
                those.for_each(|byte| allow(byte, at));
            }
        }
        at += op.len();
    }
    rows
}

/// By shift-and.
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
