//! Frames that begin with their length.

use crate::codec::too_long::TooLong;
use crate::protocol::input::Input;

/// Takes frames out of a stream that begin with the length of what follows:
/// `head[skip] | length | body[length]`.
///
/// ```
/// use tidewire::codec::{Delimited, LengthDelimited};
/// use tidewire::Input;
///
/// // kind: u8 | length: u16, big-endian | body
/// const FRAMES: LengthDelimited = LengthDelimited::u16_be(1000).skip(1);
///
/// let mut input = Input::new(b"\x07\x00\x02hi\x07\x00");
/// let Ok(Delimited::Frame { head, body }) = FRAMES.take(&mut input) else { panic!() };
/// assert_eq!((head, body), (&b"\x07"[..], &b"hi"[..]));
/// // What a protocol returns then: Next::AtLeast(3).
/// assert_eq!(FRAMES.take(&mut input), Ok(Delimited::Needs(3)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthDelimited {
    skip: usize,
    width: usize,
    big_endian: bool,
    max: usize,
}

/// The kind of data at the front of the unconsumed input.
///
/// ```
/// use tidewire::codec::{Delimited, LengthDelimited};
/// use tidewire::{Input, Next, on_input, sim::chunking::collect};
///
/// const FRAMES: LengthDelimited = LengthDelimited::u16_be(1000);
///
/// // Sends back what is in each frame.
/// let bodies = on_input(|input, link| loop {
///     if link.full() {
///         return Next::AfterDrain;
///     }
///     match FRAMES.take(input) {
///         Ok(Delimited::Frame { body, .. }) => link.write(body),
///         Ok(Delimited::Needs(n)) => return Next::AtLeast(n),
///         Err(_) => {
///             link.abort_because("a frame too long");
///             return Next::More;
///         }
///     }
/// });
/// assert_eq!(collect(bodies, b"\0\x02hi\0\0\0\x01!", &[1, 1, 4], true).output, b"hi!");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delimited<'a> {
    /// A whole frame, now consumed.
    Frame {
        /// The bytes in front of the length.
        head: &'a [u8],
        /// The bytes of the frame behind the length.
        body: &'a [u8],
    },
    /// The frame is not there whole. The codec needs this many bytes together to go on: return
    /// [`Next::AtLeast`](crate::Next::AtLeast) with this number.
    Needs(usize),
}

impl LengthDelimited {
    /// Lengths of two bytes, big-endian; bodies of at most `max` bytes.
    #[must_use]
    pub const fn u16_be(max: usize) -> LengthDelimited {
        LengthDelimited::new(2, true, max)
    }

    /// Lengths of two bytes, little-endian; bodies of at most `max` bytes.
    #[must_use]
    pub const fn u16_le(max: usize) -> LengthDelimited {
        LengthDelimited::new(2, false, max)
    }

    /// Lengths of four bytes, big-endian; bodies of at most `max` bytes.
    #[must_use]
    pub const fn u32_be(max: usize) -> LengthDelimited {
        LengthDelimited::new(4, true, max)
    }

    /// Lengths of four bytes, little-endian; bodies of at most `max` bytes.
    ///
    /// ```
    /// use tidewire::Input;
    /// use tidewire::codec::{Delimited, LengthDelimited};
    ///
    /// // The same two bytes with each kind of length.
    /// let all: [(LengthDelimited, &[u8]); 4] = [
    ///     (LengthDelimited::u16_be(100), b"\0\x02hi"),
    ///     (LengthDelimited::u16_le(100), b"\x02\0hi"),
    ///     (LengthDelimited::u32_be(100), b"\0\0\0\x02hi"),
    ///     (LengthDelimited::u32_le(100), b"\x02\0\0\0hi"),
    /// ];
    /// for (kind, bytes) in all {
    ///     assert_eq!(kind.take(&mut Input::new(bytes)), Ok(Delimited::Frame { head: b"", body: b"hi" }));
    /// }
    /// ```
    #[must_use]
    pub const fn u32_le(max: usize) -> LengthDelimited {
        LengthDelimited::new(4, false, max)
    }

    const fn new(width: usize, big_endian: bool, max: usize) -> LengthDelimited {
        LengthDelimited {
            skip: 0,
            width,
            big_endian,
            max,
        }
    }

    /// Sets how many bytes stand in front of the length, such as a kind or an id. The length does
    /// not count them.
    #[must_use]
    pub const fn skip(mut self, bytes: usize) -> LengthDelimited {
        self.skip = bytes;
        self
    }

    /// Consumes the next frame, or says how much of it is needed.
    ///
    /// The limit on what may be carried, [`Limits::carried`](crate::Limits::carried), has to leave
    /// room for the largest frame.
    ///
    /// # Errors
    /// [`TooLong`] as soon as the length is there; nothing is consumed then.
    pub fn take<'a>(&self, input: &mut Input<'a>) -> Result<Delimited<'a>, TooLong> {
        let bytes = input.bytes();
        let header = self.skip + self.width;
        let Some((header_bytes, rest)) = bytes.split_at_checked(header) else {
            return Ok(Delimited::Needs(header));
        };
        let (head, length) = header_bytes.split_at(self.skip);
        let length = self.length(length);
        if length > self.max as u64 {
            return Err(TooLong { max: self.max });
        }
        // At most `max`, which is a length in memory.
        let length = length as usize;
        let Some(body) = rest.get(..length) else {
            return Ok(Delimited::Needs(header + length));
        };
        input.consume(header + length);
        Ok(Delimited::Frame { head, body })
    }

    fn length(&self, bytes: &[u8]) -> u64 {
        let append = |n: u64, b: &u8| n << 8 | u64::from(*b);
        if self.big_endian {
            bytes.iter().fold(0, append)
        } else {
            bytes.iter().rev().fold(0, append)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(frames: LengthDelimited, bytes: &[u8]) -> Result<Delimited<'_>, TooLong> {
        frames.take(&mut Input::new(bytes))
    }

    fn body(body: &[u8]) -> Result<Delimited<'_>, TooLong> {
        Ok(Delimited::Frame { head: b"", body })
    }

    #[test]
    fn lengths_have_an_order_and_a_width() {
        assert_eq!(first(LengthDelimited::u16_be(9), b"\x00\x01xy"), body(b"x"));
        assert_eq!(first(LengthDelimited::u16_le(9), b"\x01\x00xy"), body(b"x"));
        let long = LengthDelimited::u32_be(9);
        assert_eq!(first(long, b"\x00\x00\x00\x01xy"), body(b"x"));
        let long = LengthDelimited::u32_le(9);
        assert_eq!(first(long, b"\x01\x00\x00\x00xy"), body(b"x"));
        assert_eq!(first(long, b"\x00\x00\x00\x00"), body(b""));
    }

    #[test]
    fn every_prefix_says_what_it_needs_and_the_limit_is_exact() {
        let frames = LengthDelimited::u32_be(4).skip(2);
        let whole = b"id\x00\x00\x00\x04abcd";
        for end in 0..whole.len() {
            let needs = if end < 6 { 6 } else { whole.len() };
            assert_eq!(
                first(frames, &whole[..end]),
                Ok(Delimited::Needs(needs)),
                "{end}"
            );
        }
        let frame = Delimited::Frame {
            head: b"id",
            body: b"abcd",
        };
        assert_eq!(first(frames, whole), Ok(frame));
        for length in [5, u32::MAX] {
            let bytes = [&b"id"[..], &length.to_be_bytes()].concat();
            assert_eq!(first(frames, &bytes), Err(TooLong { max: 4 }));
        }
    }
}
