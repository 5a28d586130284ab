//! Bodies of replies: the first whole one is remembered, and all others are compared with it as they come.
//!
//! The idea: the first [`KEPT`] bytes are kept and compared one by one. The bytes beyond go through a digest, of which the
//! value at each [`MARK`] is kept: eight bytes for each mebibyte, so that a body of any length is checked to its end.

use super::fault::{Fault, Wrong};

/// Bytes at the front of a body that are kept and compared one by one.
const KEPT: usize = 4 << 20;
/// Beyond the first bytes, the distance between two compared values of the digest, bytes.
const MARK: u64 = 1 << 20;

/// The facts about a whole body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    start: Vec<u8>,
    marks: Vec<u64>,
    digest: u64,
    pub(super) len: u64,
}

impl Body {
    /// The body that consists of these bytes.
    pub(super) fn of(bytes: &[u8]) -> Body {
        let mut reading = Reading::begin(None);
        // Nothing is compared, so nothing can differ.
        let _ = reading.take(bytes, None);
        reading.end()
    }
}

/// A body that is coming.
#[derive(Debug, Default)]
pub(super) struct Reading {
    seen: u64,
    beyond: Digest,
    /// The body so far, while there is nothing to compare it with.
    kept: Option<Box<Body>>,
}

impl Reading {
    /// Begins a body. The body is kept if there is no `wanted` body yet.
    pub(super) fn begin(wanted: Option<&Body>) -> Reading {
        Reading {
            seen: 0,
            beyond: Digest::default(),
            kept: wanted.is_none().then(Box::default),
        }
    }

    /// Takes the next bytes of the body. `wanted` is the expected body; it is ignored if the body began
    /// without one.
    pub(super) fn take(&mut self, bytes: &[u8], wanted: Option<&Body>) -> Result<(), Wrong> {
        let from = usize::try_from(self.seen).unwrap_or(usize::MAX);
        let (start, mut beyond) = bytes.split_at(bytes.len().min(KEPT.saturating_sub(from)));
        self.seen += start.len() as u64;
        match (&mut self.kept, wanted) {
            (Some(kept), _) => kept.start.extend_from_slice(start),
            _ if start.is_empty() => {}
            (None, Some(wanted)) => same(start, wanted.start.get(from..from + start.len()), from)?,
            (None, None) => {}
        }
        while !beyond.is_empty() {
            let to_mark = usize::try_from(MARK - self.seen % MARK).unwrap_or(usize::MAX);
            let (piece, rest) = beyond.split_at(beyond.len().min(to_mark));
            self.beyond.take(piece);
            self.seen += piece.len() as u64;
            beyond = rest;
            if self.seen.is_multiple_of(MARK) {
                self.mark(wanted)?;
            }
        }
        Ok(())
    }

    fn mark(&mut self, wanted: Option<&Body>) -> Result<(), Wrong> {
        let value = self.beyond.value();
        let number = ((self.seen - KEPT as u64) / MARK - 1) as usize;
        match (&mut self.kept, wanted) {
            (Some(kept), _) => kept.marks.push(value),
            (None, Some(wanted)) if wanted.marks.get(number) != Some(&value) => {
                let (from, to) = (self.seen - MARK, self.seen);
                return Err(
                    format!("a body that is not the same from byte {from} to byte {to}").into(),
                );
            }
            (None, _) => {}
        }
        Ok(())
    }

    /// Ends the body: its bytes, if they were kept; else its length and digest alone.
    fn end(self) -> Body {
        Body {
            digest: self.beyond.value(),
            len: self.seen,
            ..self.kept.map_or_else(Body::default, |kept| *kept)
        }
    }

    /// Ends the body: compares the rest with the first body of the place, which is this one if
    /// there is none.
    pub(super) fn whole(
        self,
        place: &std::sync::OnceLock<Body>,
        length: Option<u64>,
    ) -> Result<(), Wrong> {
        let kept = self.kept.is_some();
        let came = self.end();
        let came = match kept {
            false => came,
            true => match place.set(came) {
                Ok(()) => Body {
                    len: place.get().map_or(0, |body| body.len),
                    ..Body::default()
                },
                // Another connection's body was whole before.
                Err(came) => {
                    if let Some(first) = place.get() {
                        let n = came.start.len().min(first.start.len());
                        same(&came.start[..n], Some(&first.start[..n]), 0)?;
                        if came.len == first.len && came != *first {
                            let what = format!(
                                "a body that is not the same as the first beyond its first {KEPT} bytes"
                            );
                            return Err(what.into());
                        }
                    }
                    came
                }
            },
        };
        let first = place.get();
        let wanted = length.or(first.map(|body| body.len)).unwrap_or(came.len);
        if came.len != wanted {
            let fault = match came.len < wanted {
                true => Fault::ShortReply,
                false => Fault::WrongReply,
            };
            return Err(fault.because(format!("a body of {} bytes instead of {wanted}", came.len)));
        }
        match first {
            Some(first) if !kept && first.len == came.len && first.digest != came.digest => {
                let from = came.len - came.len % MARK;
                Err(format!("a body that is not the same from byte {from} on").into())
            }
            _ => Ok(()),
        }
    }
}

/// Compares a piece of a body that begins at `from`.
fn same(came: &[u8], wanted: Option<&[u8]>, from: usize) -> Result<(), Wrong> {
    if wanted == Some(came) {
        return Ok(());
    }
    let differs = wanted.and_then(|wanted| came.iter().zip(wanted).position(|(a, b)| a != b));
    let at = differs.unwrap_or(0);
    let shown = came[at..came.len().min(at + 60)].escape_ascii();
    let what = format!(
        "a body that is not the same from byte {} on: {shown}",
        from + at
    );
    Err(match wanted {
        Some(wanted) => Fault::of_difference(came, wanted).because(what),
        None => what.into(),
    })
}

/// A digest of a stream of bytes, however they come in pieces. Each step is a bijection of the
/// state and of the word that goes in, so streams that differ in one word alone have different
/// digests; of others, one in 2^64 is missed. The digest is no protection from a server that means
/// to deceive.
#[derive(Clone, Debug, Default)]
struct Digest {
    state: u64,
    /// Bytes that do not make a word yet, the first one lowest, and how many.
    word: u64,
    filled: u32,
}

impl Digest {
    fn take(&mut self, bytes: &[u8]) {
        let loose = ((8 - self.filled) % 8).min(bytes.len() as u32) as usize;
        let (loose, rest) = bytes.split_at(loose);
        loose.iter().for_each(|&byte| self.byte(byte));
        let mut words = rest.chunks_exact(8);
        for word in &mut words {
            let mut eight = [0; 8];
            eight.copy_from_slice(word);
            self.state = step(self.state, u64::from_le_bytes(eight));
        }
        words.remainder().iter().for_each(|&byte| self.byte(byte));
    }

    fn byte(&mut self, byte: u8) {
        self.word |= u64::from(byte) << (8 * self.filled);
        self.filled += 1;
        if self.filled == 8 {
            self.state = step(self.state, self.word);
            (self.word, self.filled) = (0, 0);
        }
    }

    fn value(&self) -> u64 {
        step(step(self.state, self.word), u64::from(self.filled))
    }
}

fn step(state: u64, word: u64) -> u64 {
    (state.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::OnceLock;

    fn long(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    /// The result of a body in pieces of this size, compared with an earlier body.
    fn beside(first: &[u8], body: &[u8], piece: usize) -> Result<(), Wrong> {
        let place = OnceLock::from(Body::of(first));
        let mut reading = Reading::begin(place.get());
        for piece in body.chunks(piece) {
            reading.take(piece, place.get())?;
        }
        reading.whole(&place, None)
    }

    #[test]
    fn a_long_body_is_compared_to_its_last_byte() {
        let first = long(KEPT + 3 * MARK as usize + 12_345);
        for piece in [1 << 10, 777, 1 << 20, first.len()] {
            assert_eq!(beside(&first, &first, piece), Ok(()), "{piece}");
        }
        for at in [
            0,
            KEPT - 1,
            KEPT,
            KEPT + 7,
            KEPT + MARK as usize,
            first.len() - 1,
        ] {
            let mut other = first.clone();
            other[at] ^= 1;
            for piece in [4_321, 1 << 20] {
                let wrong = beside(&first, &other, piece).unwrap_err();
                assert!(wrong.what.contains("not the same"), "{at}: {wrong:?}");
            }
        }
        let short = beside(&first, &first[..first.len() - 1], 9_999).unwrap_err();
        assert_eq!(short.fault, Fault::ShortReply);
        let longer = [&first[..], b"x"].concat();
        assert!(beside(&first, &longer, 9_999).is_err());
    }

    #[test]
    fn two_that_come_at_once_are_compared_at_their_ends() {
        let body = long(KEPT + 5_000);
        let mut other = body.clone();
        other[KEPT + 4_000] ^= 4;
        for (second, same) in [(&body, true), (&other, false)] {
            let place = OnceLock::new();
            let mut readings = [Reading::begin(None), Reading::begin(None)];
            readings[0].take(&body, None).unwrap();
            readings[1].take(second, None).unwrap();
            let [one, two] = readings;
            one.whole(&place, None).unwrap();
            assert_eq!(two.whole(&place, None).is_ok(), same);
        }
    }
}
