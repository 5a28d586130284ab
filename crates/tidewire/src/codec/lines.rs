//! Lines of text, or of anything else without line feeds in it.

use crate::codec::too_long::TooLong;
use crate::protocol::input::Input;

/// Takes lines out of a stream: each ends with a line feed, or carriage return and line feed. The line end is not part of
/// the returned line, so a carriage return that means something at the end of a line is lost.
///
/// The codec looks at no byte twice: the position up to which it has searched is remembered from
/// one chunk to the next. So one `Lines` belongs to one connection, and the connection consumes
/// input only through it.
///
/// ```
/// use tidewire::codec::Lines;
/// use tidewire::{Cx, Input, Next, Protocol};
///
/// /// Answers every line with its length.
/// struct Lengths(Lines);
///
/// impl Protocol for Lengths {
///     type Local = ();
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         loop {
///             if cx.link.full() {
///                 return Next::AfterDrain;
///             }
///             match self.0.take(input) {
///                 Ok(Some(line)) => cx.link.write(format!("{}\n", line.len()).as_bytes()),
///                 Ok(None) => return Next::More,
///                 Err(_) => {
///                     cx.link.finish_because("a line too long");
///                     return Next::More;
///                 }
///             }
///         }
///     }
/// }
///
/// use tidewire::sim::chunking;
/// let service = || tidewire::service_fn(|_| Lengths(Lines::new(80)));
/// let got = chunking::collect(service(), b"one\r\ntwenty\n\nrest", &[3, 2], true);
/// assert_eq!(got.output, b"3\n6\n0\n");
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    max: usize,
    /// Unconsumed bytes that are known to hold no line feed.
    searched: usize,
}

impl Lines {
    /// Lines of at most `max` bytes, their ends not counted.
    #[must_use]
    pub fn new(max: usize) -> Lines {
        Lines { max, searched: 0 }
    }

    /// Consumes the next line and returns it without its line end; `None` if the line is not there
    /// whole. When the peer finishes, bytes behind the last line feed are not a line.
    ///
    /// # Errors
    /// [`TooLong`] as soon as that is certain; no byte is consumed then.
    pub fn take<'a>(&mut self, input: &mut Input<'a>) -> Result<Option<&'a [u8]>, TooLong> {
        let bytes = input.bytes();
        let from = self.searched.min(bytes.len());
        let Some(end) = bytes[from..].iter().position(|&b| b == b'\n') else {
            self.searched = bytes.len();
            self.check(without_return(bytes))?;
            return Ok(None);
        };
        let line = without_return(&bytes[..from + end]);
        self.check(line)?;
        input.consume(from + end + 1);
        self.searched = 0;
        Ok(Some(line))
    }

    fn check(&self, line: &[u8]) -> Result<(), TooLong> {
        match line.len() <= self.max {
            true => Ok(()),
            false => Err(TooLong { max: self.max }),
        }
    }
}

/// Without the carriage return that is, or may become, a part of the line's end.
fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All lines of a stream that arrives in these pieces, and how the stream ended.
    fn lines(
        stream: &[u8],
        pieces: &[usize],
        max: usize,
    ) -> (Vec<Vec<u8>>, Result<usize, TooLong>) {
        let mut lines = Lines::new(max);
        let (mut found, mut consumed, mut end) = (Vec::new(), 0, 0);
        let mut pieces = pieces.iter();
        loop {
            let mut input = Input::new(&stream[consumed..end]);
            loop {
                match lines.take(&mut input) {
                    Ok(Some(line)) => found.push(line.to_vec()),
                    Ok(None) => break,
                    Err(why) => return (found, Err(why)),
                }
            }
            consumed = end - input.len();
            if end == stream.len() {
                return (found, Ok(input.len()));
            }
            let piece = *pieces.next().unwrap_or(&usize::MAX);
            end = end.saturating_add(piece).min(stream.len());
        }
    }

    #[test]
    fn a_line_ends_with_a_line_feed() {
        let (found, rest) = lines(b"a\r\n\nb\rc\n\r\nrest", &[], 3);
        assert_eq!(found, [&b"a"[..], b"", b"b\rc", b""]);
        assert_eq!(rest, Err(TooLong { max: 3 }));
        assert_eq!(lines(b"abc\r", &[], 3).1, Ok(4), "its line feed may follow");
        assert_eq!(lines(b"abc\r\r", &[], 3).1, Err(TooLong { max: 3 }));
        assert_eq!(lines(b"abc\r\r\n", &[], 3).1, Err(TooLong { max: 3 }));
    }

    #[test]
    fn what_was_searched_is_not_searched_again() {
        let mut lines = Lines::new(100);
        let stream = [b'x'; 60];
        for end in 1..=60 {
            let mut input = Input::new(&stream[..end]);
            assert_eq!(lines.take(&mut input), Ok(None));
            assert_eq!(lines.searched, end);
        }
    }

    proptest! {
        #[test]
        fn the_split_means_nothing(
            stream in prop::collection::vec(prop::sample::select(b"ab\r\n".to_vec()), 0..60),
            pieces in prop::collection::vec(1..5usize, 0..60),
            max in 0..8usize,
        ) {
            prop_assert_eq!(lines(&stream, &pieces, max), lines(&stream, &[], max));
        }
    }
}
