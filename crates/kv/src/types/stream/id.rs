//! The ids of entries: a time and a number within it, as one ordered pair.

/// The id of an entry of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, if the server has chosen the id.
    pub ms: u64,
    /// A number that tells ids of one millisecond apart.
    pub seq: u64,
}

impl StreamId {
    /// The id before all entries; no entry has this id.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest id.
    pub const MAX: StreamId = StreamId {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// The next one; `None` behind the last.
    #[must_use]
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The one before; `None` in front of the first.
    #[must_use]
    pub fn before(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self
                .ms
                .checked_sub(1)
                .map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }

    /// The text of the id: `ms-seq`.
    #[must_use]
    pub fn text(self) -> IdText {
        let mut text = IdText {
            bytes: [0; 41],
            start: 41,
        };
        text.put(self.seq);
        text.start -= 1;
        text.bytes[text.start] = b'-';
        text.put(self.ms);
        text
    }
}

/// The text of an id, without memory of its own.
#[derive(Clone, Copy, Debug)]
pub struct IdText {
    bytes: [u8; 41],
    start: usize,
}

impl IdText {
    fn put(&mut self, mut n: u64) {
        loop {
            self.start -= 1;
            self.bytes[self.start] = b'0' + (n % 10) as u8;
            n /= 10;
            if n == 0 {
                return;
            }
        }
    }

    /// Bytes of the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn neighbours_and_text() {
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(id(2, 0).before(), Some(id(1, u64::MAX)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(StreamId::MIN.before(), None);
        assert_eq!(id(0, 7).text().as_bytes(), b"0-7");
        let most = b"18446744073709551615-18446744073709551615";
        assert_eq!(StreamId::MAX.text().as_bytes(), most);
    }
}
