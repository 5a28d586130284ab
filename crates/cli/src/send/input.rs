//! Cuts input into messages. All bytes that can be read at once are cut at once, so that slow input
//! is sent promptly and fast input in large pieces.

use std::str::FromStr;

use memchr::memchr;

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

/// How to handle a message that is larger than the server takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Oversized {
    /// Sending ends there.
    #[default]
    Fail,
    /// The message is left out, and gets no id.
    Skip,
    /// As much of its beginning is sent as the server takes.
    Truncate,
}

/// Bytes read at a time.
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
    /// Bytes at the start that are dealt with.
    done: usize,
    /// No line ends before here.
    searched: usize,
    oversized: Oversized,
    /// How much of an oversized message is still to be discarded.
    discard: Discard,
    /// Messages that were too large.
    cut: u64,
}

/// The input to discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Discard {
    Nothing,
    /// Up to the end of the line.
    Line,
    /// Number of bytes.
    Bytes(usize),
}

impl Cutter {
    /// Messages have at most so many bytes.
    pub(crate) fn new(format: Format, most: u32, oversized: Oversized) -> Cutter {
        Cutter {
            format,
            most: most as usize,
            buffer: vec![0; CHUNK],
            filled: 0,
            done: 0,
            searched: 0,
            oversized,
            discard: Discard::Nothing,
            cut: 0,
        }
    }

    /// How messages that are too large are handled.
    pub(crate) fn oversized(&self) -> Oversized {
        self.oversized
    }

    /// How many messages were too large so far, and were skipped or truncated.
    pub(crate) fn cut(&self) -> u64 {
        self.cut
    }

    /// The free part of the buffer, to read into.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.done..self.filled, 0);
        self.filled -= self.done;
        self.searched -= self.done;
        self.done = 0;
        if self.buffer.len() - self.filled < CHUNK {
            // The buffer holds at most a message, its frame and a chunk: larger messages are
            // refused before.
            self.buffer.resize(self.filled + CHUNK, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Takes `n` bytes that were read; returns the messages that are whole now.
    pub(crate) fn read(&mut self, n: usize) -> Result<Vec<&[u8]>, Bad> {
        self.filled += n;
        let mut messages = Vec::new();
        self.throw_away();
        let found = match self.format {
            Format::Lines => self.lines(&mut messages),
            Format::LengthPrefixed => self.prefixed(&mut messages),
        };
        // Messages before a bad one are sent; the bad one is met again.
        if messages.is_empty() {
            found?;
        }
        let messages = messages
            .into_iter()
            .map(|(from, to)| &self.buffer[from..to]);
        Ok(messages.collect())
    }

    /// Drops the rest of a message that was too large, as far as the buffer has it.
    fn throw_away(&mut self) {
        let here = &self.buffer[self.done..self.filled];
        let gone = match self.discard {
            Discard::Nothing => return,
            Discard::Line => match memchr(b'\n', here) {
                Some(at) => {
                    self.discard = Discard::Nothing;
                    at + 1
                }
                None => here.len(),
            },
            Discard::Bytes(left) => {
                let gone = left.min(here.len());
                self.discard = match left - gone {
                    0 => Discard::Nothing,
                    left => Discard::Bytes(left),
                };
                gone
            }
        };
        self.done += gone;
        self.searched = self.searched.max(self.done);
    }

    /// Handles a message that is too large and begins at `begin`. If only a part of the message is
    /// to be sent, one byte more than the server's limit has been read.
    fn too_large(&mut self, begin: usize, messages: &mut Vec<(usize, usize)>) -> Result<(), Bad> {
        match self.oversized {
            Oversized::Fail => return Err(Bad::TooLarge),
            Oversized::Skip => {}
            Oversized::Truncate => {
                let end = begin + text_end(&self.buffer[begin..self.filled], self.most);
                messages.push((begin, end));
            }
        }
        self.cut += 1;
        Ok(())
    }

    fn lines(&mut self, messages: &mut Vec<(usize, usize)>) -> Result<(), Bad> {
        if self.discard != Discard::Nothing {
            return Ok(());
        }
        while let Some(at) = memchr(b'\n', &self.buffer[self.searched..self.filled]) {
            let end = self.searched + at;
            if end - self.done > self.most {
                self.searched = end;
                self.too_large(self.done, messages)?;
            } else {
                messages.push((self.done, end));
            }
            self.done = end + 1;
            self.searched = end + 1;
        }
        self.searched = self.filled;
        if self.filled - self.done > self.most {
            self.too_large(self.done, messages)?;
            self.discard = Discard::Line;
            self.done = self.filled;
        }
        Ok(())
    }

    fn prefixed(&mut self, messages: &mut Vec<(usize, usize)>) -> Result<(), Bad> {
        while let Some((len, rest)) =
            self.buffer[self.done..self.filled].split_first_chunk::<PREFIX>()
        {
            let len = u32::from_le_bytes(*len) as usize;
            let begin = self.done + PREFIX;
            if len > self.most {
                // The message's beginning is waited for only if it is sent.
                if self.oversized == Oversized::Truncate && rest.len() <= self.most {
                    break;
                }
                self.too_large(begin, messages)?;
                self.done = begin;
                self.discard = Discard::Bytes(len);
                self.throw_away();
                continue;
            }
            if rest.len() < len {
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
            Format::LengthPrefixed if matches!(self.discard, Discard::Bytes(_)) => {
                Err(Bad::Truncated)
            }
            _ if rest.is_empty() => Ok(None),
            Format::Lines => Ok(Some(&self.buffer[rest])),
            Format::LengthPrefixed => Err(Bad::Truncated),
        }
    }
}

/// The end of the first `most` bytes of a text, without cutting a character; for bytes that are no
/// text, exactly `most`.
fn text_end(bytes: &[u8], most: usize) -> usize {
    let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let whole = (most.saturating_sub(3)..=most)
        .rev()
        .find(|&at| !is_inside(at));
    whole.unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that comes out, whatever the pieces are that go in.
    fn cut(format: Format, most: u32, input: &[u8], piece: usize) -> (Vec<Vec<u8>>, Option<Bad>) {
        let (all, bad, _) = cut_by(Oversized::Fail, format, most, input, piece);
        (all, bad)
    }

    fn cut_by(
        oversized: Oversized,
        format: Format,
        most: u32,
        input: &[u8],
        piece: usize,
    ) -> (Vec<Vec<u8>>, Option<Bad>, u64) {
        let mut cutter = Cutter::new(format, most, oversized);
        let mut all = Vec::new();
        for piece in input.chunks(piece) {
            cutter.room()[..piece.len()].copy_from_slice(piece);
            let mut n = piece.len();
            loop {
                match cutter.read(std::mem::take(&mut n)) {
                    Err(bad) => return (all, Some(bad), cutter.cut()),
                    Ok(messages) if messages.is_empty() => break,
                    Ok(messages) => all.extend(messages.into_iter().map(<[u8]>::to_vec)),
                }
            }
        }
        let bad = match cutter.end() {
            Err(bad) => Some(bad),
            Ok(rest) => {
                all.extend(rest.map(<[u8]>::to_vec));
                None
            }
        };
        (all, bad, cutter.cut())
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

    #[test]
    fn what_is_too_large_is_skipped_or_cut_however_it_comes() {
        let lines = "one\ntoo large\n\ntw\u{f6}lf\nmuch too large".as_bytes();
        let framed = b"\x03\0\0\0one\x09\0\0\0too large\0\0\0\0\x05\0\0\0tw\xc3\xb6l";
        for piece in [1, 2, 3, 5, 7, 100] {
            let (messages, bad, cut) = cut_by(Oversized::Skip, Format::Lines, 3, lines, piece);
            assert_eq!(
                (messages, bad, cut),
                (vec![b"one".to_vec(), vec![]], None, 3)
            );
            let (messages, bad, cut) = cut_by(Oversized::Truncate, Format::Lines, 3, lines, piece);
            let want = [&b"one"[..], b"too", b"", b"tw", b"muc"];
            assert_eq!((bad, cut), (None, 3));
            assert_eq!(messages, want);
            let format = Format::LengthPrefixed;
            let (messages, bad, cut) = cut_by(Oversized::Skip, format, 3, framed, piece);
            assert_eq!(
                (messages, bad, cut),
                (vec![b"one".to_vec(), vec![]], None, 2)
            );
            let (messages, bad, cut) = cut_by(Oversized::Truncate, format, 3, framed, piece);
            assert_eq!((bad, cut), (None, 2));
            assert_eq!(messages, [&b"one"[..], b"too", b"", b"tw"]);
            let ends_early = &framed[..framed.len() - 1];
            let (_, bad, _) = cut_by(Oversized::Skip, format, 3, ends_early, piece);
            assert_eq!(bad, Some(Bad::Truncated));
        }
    }
}
