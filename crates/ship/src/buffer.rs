//! The bytes read of a file, cut into messages.
//!
//! A message's id is the offset of its end. A few bytes before what was read last are kept and read
//! again each time: so a file that was truncated and has grown again is noticed.

use std::collections::VecDeque;
use std::io;

use memchr::memchr;
use regex::bytes::Regex;

use crate::settings::Oversized;

/// Bytes that are read again.
pub(crate) const KEPT: usize = 64;

/// A message in the buffer.
#[derive(Clone, Copy, Debug)]
struct Message {
    start: usize,
    end: usize,
    id: u64,
}

/// What reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Number of bytes; the file may have more.
    More(usize),
    /// Number of bytes, and then the file's end.
    End(usize),
    /// The bytes that were read before are not in the file any more.
    Changed,
}

/// How messages are told apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cutting<'a> {
    pub(crate) start: Option<&'a Regex>,
    pub(crate) oversized: Oversized,
    pub(crate) most: usize,
}

/// A line that is too long and must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// Where it begins.
    pub(crate) at: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    /// The offset of `bytes[0]` in the file.
    base: u64,
    /// Bytes that are there.
    filled: usize,
    /// Where the next message begins.
    next: usize,
    /// Where the line begins that is looked at; later than `next` if the message has lines already.
    line: usize,
    /// No line feed is between `line` and here.
    searched: usize,
    messages: VecDeque<Message>,
    /// The line that begins at this offset is to be left out.
    skipping: Option<u64>,
    /// Lines that were left out.
    pub(crate) skipped: u64,
}

impl Buffer {
    /// The offset of the first byte that is in no message yet, and not in a line that was left out
    /// whole: of one whose end is not there yet, reading must be able to begin again at its start.
    pub(crate) fn next(&self) -> u64 {
        self.skipping.unwrap_or(self.base + self.next as u64)
    }

    /// The offset behind the last byte read.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.filled as u64
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Whether there are bytes that are no message yet.
    pub(crate) fn has_rest(&self) -> bool {
        self.next < self.filled
    }

    /// Whether the rest begins with whole lines.
    pub(crate) fn has_lines(&self) -> bool {
        self.next < self.line
    }

    /// Gives back the memory that is of no use, if no messages wait.
    pub(crate) fn rest(&mut self) {
        if self.messages.is_empty() {
            self.compact();
            self.bytes.truncate(self.filled);
            self.bytes.shrink_to_fit();
        }
    }

    /// Moves the needed bytes to the start.
    fn compact(&mut self) {
        let from = self.next.saturating_sub(KEPT);
        self.bytes.copy_within(from..self.filled, 0);
        self.base += from as u64;
        self.filled -= from;
        self.next -= from;
        self.line -= from;
        self.searched -= from;
    }

    /// Begins anew at `offset`. `before` are the bytes right before it, at most [`KEPT`] of which are
    /// used.
    pub(crate) fn seek(&mut self, offset: u64, before: &[u8]) {
        let kept = &before[before.len().saturating_sub(KEPT)..];
        self.bytes.clear();
        self.bytes.extend_from_slice(kept);
        self.base = offset - kept.len() as u64;
        self.filled = kept.len();
        (self.next, self.line, self.searched) = (kept.len(), kept.len(), kept.len());
        self.messages.clear();
        self.skipping = None;
    }

    /// Passes over the zeros at which the next message would begin; how many.
    pub(crate) fn pass_zeros(&mut self) -> u64 {
        debug_assert!(!self.has_rest() || self.next == self.line);
        let rest = &self.bytes[self.next..self.filled];
        let here = rest.iter().take_while(|byte| **byte == 0).count();
        self.drop_to(self.next + here);
        here as u64
    }

    /// The offset of the first byte that is in no message yet, and not in a line that is being left out.
    pub(crate) fn rest_from(&self) -> u64 {
        self.base + self.next as u64
    }

    /// Forgets what was read of a hole from `hole` to `data`, and of the zeros right before it; where these begin. `None` if something else is
    /// there.
    pub(crate) fn end_at_hole(&mut self, hole: u64, data: u64) -> Option<u64> {
        let is_zero = |byte: &&u8| **byte == 0;
        let at = (hole - self.base) as usize;
        let to = (data.min(self.end()) - self.base) as usize;
        if !self.bytes[at..to].iter().all(|byte| *byte == 0) {
            return None;
        }
        let before = self.bytes[self.next..at].iter().rev();
        self.filled = at - before.take_while(is_zero).count();
        self.searched = self.searched.min(self.filled);
        Some(self.end())
    }

    /// Whether the next message would begin with a zero, and all that is known before it are zeros as well, or nothing.
    pub(crate) fn begins_in_zeros(&self) -> bool {
        let from = self.next.saturating_sub(KEPT);
        self.next == self.line
            && self.skipping.is_none()
            && self.bytes[..self.filled].get(self.next) == Some(&0)
            && self.bytes[from..self.next].iter().all(|byte| *byte == 0)
    }

    /// How many bytes before an offset [`seek`](Buffer::seek) wants.
    pub(crate) fn wants_before(offset: u64) -> usize {
        offset.min(KEPT as u64) as usize
    }

    /// The last bytes that are there, and where they stand.
    pub(crate) fn kept(&self) -> (u64, &[u8]) {
        let from = self.filled - self.filled.min(KEPT);
        (self.base + from as u64, &self.bytes[from..self.filled])
    }

    /// Messages up to this id need not be sent.
    pub(crate) fn forget(&mut self, id: u64) {
        self.messages.retain(|message| message.id > id);
    }

    /// Reads on, at most `chunk` bytes, by `read` from an offset. All messages must have been taken.
    pub(crate) fn fill(
        &mut self,
        chunk: usize,
        read: impl FnOnce(u64, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Filled> {
        debug_assert!(self.messages.is_empty());
        self.compact();
        let kept = self.filled.min(KEPT);
        let at = self.filled - kept;
        let mut before = [0; KEPT];
        before[..kept].copy_from_slice(&self.bytes[at..self.filled]);
        if self.bytes.len() < self.filled + chunk {
            self.bytes.resize(self.filled + chunk, 0);
        }
        let wanted = &mut self.bytes[at..self.filled + chunk];
        let n = read(self.base + at as u64, wanted)?;
        let is_same = n >= kept && wanted[..kept] == before[..kept];
        if !is_same {
            // What is in memory is what was there.
            wanted[..kept].copy_from_slice(&before[..kept]);
            return Ok(Filled::Changed);
        }
        let new = n - kept;
        self.filled += new;
        Ok(if new < chunk {
            Filled::End(new)
        } else {
            Filled::More(new)
        })
    }

    /// Makes messages of the bytes that were read.
    pub(crate) fn cut(&mut self, by: Cutting<'_>) -> Result<(), TooLong> {
        while let Some(at) = memchr(b'\n', &self.bytes[self.searched..self.filled]) {
            let feed = self.searched + at;
            self.whole_line(feed, by)?;
            self.line = feed + 1;
            self.searched = feed + 1;
            if by.start.is_none() {
                self.next = self.line;
            }
        }
        self.searched = self.filled;
        if self.skipping.is_none() && self.filled - self.line > by.most {
            self.close();
            self.too_long(self.filled, by)?;
        }
        if self.skipping.is_some() {
            self.drop_to(self.filled);
        }
        Ok(())
    }

    /// Drops all bytes from here on.
    fn drop_to(&mut self, at: usize) {
        (self.next, self.line, self.searched) = (at, at, at);
    }

    /// A line from `line` to `feed`.
    fn whole_line(&mut self, feed: usize, by: Cutting<'_>) -> Result<(), TooLong> {
        if self.skipping.take().is_some() {
            self.next = feed + 1;
            return Ok(());
        }
        if let Some(start) = by.start
            && self.next < self.line
            && (feed - self.next > by.most || start.is_match(&self.bytes[self.line..feed]))
        {
            self.close();
        }
        if feed - self.line > by.most {
            self.close();
            self.too_long(feed, by)?;
            if self.skipping.take().is_some() {
                self.next = feed + 1;
                return Ok(());
            }
            self.line = self.next;
        }
        // The end of a line of which all before was sent.
        if feed == self.line && self.next == feed && self.is_inside_a_line() {
            self.next = feed + 1;
            return Ok(());
        }
        if by.start.is_none() {
            self.push(self.next, feed, feed + 1);
        }
        Ok(())
    }

    /// Whether the next bytes continue a line.
    fn is_inside_a_line(&self) -> bool {
        self.next > 0 && self.bytes[self.next - 1] != b'\n'
    }

    /// The lines before `line` are a message.
    fn close(&mut self) {
        if self.next < self.line {
            self.push(self.next, self.line - 1, self.line);
            self.next = self.line;
        }
    }

    /// Deals with a line that begins at `next`, and is too long, up to `end`.
    fn too_long(&mut self, end: usize, by: Cutting<'_>) -> Result<(), TooLong> {
        match by.oversized {
            Oversized::Fail => return Err(TooLong { at: self.next() }),
            Oversized::Skip => {
                self.skipped += 1;
                self.skipping = Some(self.next());
            }
            Oversized::Split => {
                while end - self.next > by.most {
                    let to = self.next + piece(&self.bytes[self.next..end], by.most);
                    self.push(self.next, to, to);
                    (self.next, self.line) = (to, to);
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, start: usize, end: usize, upto: usize) {
        let id = self.base + upto as u64;
        self.messages.push_back(Message { start, end, id });
    }

    /// The lines that are there are a message, whatever follows.
    pub(crate) fn close_lines(&mut self) {
        self.close();
    }

    /// All that is there is a message, though its last line has no end.
    pub(crate) fn close_all(&mut self) {
        self.close();
        if self.skipping.take().is_some() {
            self.drop_to(self.filled);
        } else if self.next < self.filled {
            self.push(self.next, self.filled, self.filled);
            self.drop_to(self.filled);
        }
    }

    /// The messages that wait, with their ids.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let messages = self.messages.iter();
        messages.map(|message| (message.id, &self.bytes[message.start..message.end]))
    }

    /// The first `n` messages were taken; the id of the last.
    pub(crate) fn taken(&mut self, n: usize) -> Option<u64> {
        self.messages.drain(..n).next_back().map(|last| last.id)
    }
}

/// How long a first piece may be without cutting a character, if it is text.
fn piece(bytes: &[u8], most: usize) -> usize {
    let is_inside = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let whole = (most.saturating_sub(3).max(1)..=most)
        .rev()
        .find(|&at| !is_inside(at));
    whole.unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cut {
        messages: Vec<(u64, String)>,
        skipped: u64,
    }

    /// Everything that comes out of `file`, read from `from` on in pieces.
    fn cut(file: &[u8], from: u64, piece: usize, by: Cutting<'_>, end: bool) -> Cut {
        let mut buffer = Buffer::default();
        let before = from as usize - Buffer::wants_before(from);
        buffer.seek(from, &file[before..from as usize]);
        let mut messages = Vec::new();
        let mut take = |buffer: &mut Buffer| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            messages.extend(buffer.messages().map(|(id, bytes)| (id, text(bytes))));
            let count = buffer.messages().count();
            buffer.taken(count);
        };
        loop {
            let filled = buffer.fill(piece, |offset, into| {
                let rest = &file[offset as usize..];
                let n = rest.len().min(into.len());
                into[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            });
            let filled = filled.unwrap();
            buffer.cut(by).unwrap();
            take(&mut buffer);
            if let Filled::End(_) = filled {
                break;
            }
        }
        if end {
            buffer.close_all();
            take(&mut buffer);
        }
        Cut {
            messages,
            skipped: buffer.skipped,
        }
    }

    fn lines(most: usize) -> Cutting<'static> {
        Cutting {
            start: None,
            oversized: Oversized::Split,
            most,
        }
    }

    /// Whatever was stored up to a mark, going on there gives the rest and nothing twice.
    fn resumes(file: &[u8], by: Cutting<'_>) {
        let whole = cut(file, 0, 1000, by, true).messages;
        for piece in [1, 2, 3, 5, 64, 1000] {
            assert_eq!(cut(file, 0, piece, by, true).messages, whole, "{piece}");
            for (at, (id, _)) in whole.iter().enumerate() {
                let rest = cut(file, *id, piece, by, true).messages;
                assert_eq!(rest, whole[at + 1..], "from {id}");
            }
        }
    }

    #[test]
    fn ids_are_ends() {
        let file = b"one\n\ntwo\r\nlast";
        let found = cut(file, 0, 4, lines(100), true).messages;
        let want = [(4, "one"), (5, ""), (10, "two\r"), (14, "last")];
        assert_eq!(found, want.map(|(id, text)| (id, text.to_owned())));
        assert_eq!(cut(file, 0, 4, lines(100), false).messages.len(), 3);
        resumes(file, lines(100));
    }

    #[test]
    fn long_lines_are_split_and_go_on_anywhere() {
        let file = "12345678\nx\n12345\n1234567890\n\nä€𝄞ä€𝄞\n1234567890".as_bytes();
        resumes(file, lines(5));
        let found = cut(file, 0, 3, lines(5), true).messages;
        assert!(found.iter().all(|(_, text)| text.len() <= 5), "{found:?}");
        assert_eq!(found[0], (5, "12345".to_owned()));
        assert_eq!(found[1], (9, "678".to_owned()));
        assert_eq!(found[4], (22, "12345".to_owned()));
    }

    #[test]
    fn long_lines_are_left_out() {
        let by = Cutting {
            oversized: Oversized::Skip,
            ..lines(5)
        };
        let file = b"12345678\nx\n1234567\n12345\n123456";
        for piece in [1, 3, 5, 100] {
            let found = cut(file, 0, piece, by, true);
            assert_eq!(found.skipped, 3, "{piece}");
            let texts: Vec<_> = found.messages.iter().map(|(_, text)| &**text).collect();
            assert_eq!(texts, ["x", "12345"]);
        }
    }

    #[test]
    fn lines_are_joined() {
        let start = Regex::new("^[0-9]").unwrap();
        let by = Cutting {
            start: Some(&start),
            ..lines(30)
        };
        let file = b"  before\n1 a\n  b\n2 c\n3 d\n  e\n\n  f";
        let found = cut(file, 0, 1000, by, true).messages;
        let texts: Vec<_> = found.iter().map(|(_, text)| &**text).collect();
        assert_eq!(texts, ["  before", "1 a\n  b", "2 c", "3 d\n  e\n", "  f"]);
        for piece in [1, 2, 7] {
            assert_eq!(cut(file, 0, piece, by, true).messages, found);
        }
        // What is not known to be whole waits.
        assert_eq!(cut(file, 0, 7, by, false).messages.len(), 3);
        // A message that would be too large ends before the line.
        let found = cut(
            b"1 a\n234\n5 6\n x\n y\n z\n",
            0,
            4,
            Cutting { most: 5, ..by },
            true,
        );
        assert!(found.messages.iter().all(|(_, text)| text.len() <= 5));
    }

    #[test]
    fn what_changed_is_noticed() {
        let mut buffer = Buffer::default();
        let read = |text: &'static [u8]| {
            move |offset: u64, into: &mut [u8]| {
                let rest = text.get(offset as usize..).unwrap_or_default();
                let n = rest.len().min(into.len());
                into[..n].copy_from_slice(&rest[..n]);
                Ok(n)
            }
        };
        assert_eq!(buffer.fill(100, read(b"one\n")).unwrap(), Filled::End(4));
        assert_eq!(
            buffer.fill(100, read(b"one\ntwo\n")).unwrap(),
            Filled::End(4)
        );
        assert_eq!(
            buffer.fill(100, read(b"other and more\n")).unwrap(),
            Filled::Changed
        );
        assert_eq!(buffer.fill(100, read(b"")).unwrap(), Filled::Changed);
        assert_eq!((buffer.end(), buffer.next()), (8, 0));
    }
}
