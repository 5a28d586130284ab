//! Cutting input into messages: whatever can be read at once is cut at once, so that what comes
//! slowly is sent promptly and what comes fast is sent in large pieces.

use std::str::FromStr;

use memchr::memchr_iter;

/// How messages are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A line each, without its line feed.
    Lines,
    /// A length of four bytes, little-endian, in front of each.
    LengthPrefixed,
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Format, String> {
        match name {
            "lines" => Ok(Format::Lines),
            "length-prefixed" => Ok(Format::LengthPrefixed),
            _ => Err("lines or length-prefixed".into()),
        }
    }
}

/// Read at a time.
const CHUNK: usize = 256 << 10;
/// Bytes of a length.
const PREFIX: usize = 4;

/// Why input cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// A message above the limit.
    TooLarge,
    /// The end came in the middle of a message.
    Truncated,
}

/// Cuts messages out of bytes.
pub(crate) struct Cutter {
    format: Format,
    most: usize,
    buffer: Vec<u8>,
    filled: usize,
    /// So many bytes at the start are dealt with.
    done: usize,
    /// No line ends before here.
    searched: usize,
}

impl Cutter {
    /// Messages have at most so many bytes.
    pub(crate) fn new(format: Format, most: u32) -> Cutter {
        Cutter {
            format,
            most: most as usize,
            buffer: vec![0; CHUNK],
            filled: 0,
            done: 0,
            searched: 0,
        }
    }

    /// Where to read to.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.done..self.filled, 0);
        self.filled -= self.done;
        self.searched -= self.done;
        self.done = 0;
        if self.buffer.len() - self.filled < CHUNK {
            // At most a message, its frame and a chunk: larger messages are refused before.
            self.buffer.resize(self.filled + CHUNK, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// So many bytes were read; the messages that are whole now.
    pub(crate) fn read(&mut self, n: usize) -> Result<Vec<&[u8]>, Bad> {
        self.filled += n;
        let mut messages = Vec::new();
        let found = match self.format {
            Format::Lines => self.lines(&mut messages),
            Format::LengthPrefixed => self.prefixed(&mut messages),
        };
        // What is before a bad message is sent nevertheless; that one is met again.
        if messages.is_empty() {
            found?;
        }
        let messages = messages
            .into_iter()
            .map(|(from, to)| &self.buffer[from..to]);
        Ok(messages.collect())
    }

    fn lines(&mut self, messages: &mut Vec<(usize, usize)>) -> Result<(), Bad> {
        let base = self.searched;
        for at in memchr_iter(b'\n', &self.buffer[base..self.filled]) {
            let end = base + at;
            if end - self.done > self.most {
                self.searched = end;
                return Err(Bad::TooLarge);
            }
            messages.push((self.done, end));
            self.done = end + 1;
            self.searched = end + 1;
        }
        self.searched = self.filled;
        if self.filled - self.done > self.most {
            return Err(Bad::TooLarge);
        }
        Ok(())
    }

    fn prefixed(&mut self, messages: &mut Vec<(usize, usize)>) -> Result<(), Bad> {
        while let Some((len, _)) = self.buffer[self.done..self.filled].split_first_chunk::<PREFIX>()
        {
            let len = u32::from_le_bytes(*len) as usize;
            if len > self.most {
                return Err(Bad::TooLarge);
            }
            let begin = self.done + PREFIX;
            if self.filled - begin < len {
                break;
            }
            messages.push((begin, begin + len));
            self.done = begin + len;
            self.searched = self.done;
        }
        Ok(())
    }

    /// The input has ended: the last line, if it had no line feed.
    pub(crate) fn end(&mut self) -> Result<Option<&[u8]>, Bad> {
        let rest = self.done..self.filled;
        (self.done, self.searched) = (self.filled, self.filled);
        match self.format {
            _ if rest.is_empty() => Ok(None),
            Format::Lines => Ok(Some(&self.buffer[rest])),
            Format::LengthPrefixed => Err(Bad::Truncated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that comes out, whatever the pieces are that go in.
    fn cut(format: Format, most: u32, input: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Bad>) {
        let mut cutter = Cutter::new(format, most);
        let mut all = Vec::new();
        for piece in input.chunks(piece) {
            cutter.room()[..piece.len()].copy_from_slice(piece);
            let mut n = piece.len();
            loop {
                match cutter.read(std::mem::take(&mut n)) {
                    Err(bad) => return (all, Some(bad)),
                    Ok(messages) if messages.is_empty() => break,
                    Ok(messages) => all.extend(messages.into_iter().map(<[u8]>::to_vec)),
                }
            }
        }
        match cutter.end() {
            Err(bad) => (all, Some(bad)),
            Ok(rest) => {
                all.extend(rest.map(<[u8]>::to_vec));
                (all, None)
            }
        }
    }

    #[test]
    fn lines_are_the_same_however_they_come() {
        for piece in [1, 2, 3, 7, 100] {
            let (lines, bad) = cut(Format::Lines, 5, b"one\n\ntwo\r\nthree\nlast", piece);
            assert_eq!(bad, None);
            let want: [&[u8]; 5] = [b"one", b"", b"two\r", b"three", b"last"];
            assert_eq!(lines, want);
            let (lines, bad) = cut(Format::Lines, 4, b"one\ntwo\nthree\nfour\n", piece);
            assert_eq!((lines.len(), bad), (2, Some(Bad::TooLarge)));
        }
    }

    #[test]
    fn lengths_are_the_same_however_they_come() {
        let input = b"\x03\0\0\0one\0\0\0\0\x01\0\0\0\n";
        for piece in [1, 2, 3, 7, 100] {
            let (messages, bad) = cut(Format::LengthPrefixed, 3, input, piece);
            assert_eq!(bad, None);
            let want: [&[u8]; 3] = [b"one", b"", b"\n"];
            assert_eq!(messages, want);
            let (_, bad) = cut(Format::LengthPrefixed, 3, &input[..9], piece);
            assert_eq!(bad, Some(Bad::Truncated));
            let (messages, bad) = cut(Format::LengthPrefixed, 2, input, piece);
            assert_eq!((messages.len(), bad), (0, Some(Bad::TooLarge)));
        }
    }
}
