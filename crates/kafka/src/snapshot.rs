//! A snapshot at home: pieces in a topic beside the records, and a word among the marks that says which they are.

/// The name of the word.
pub use tidewire_replicate::SNAPSHOT;

/// The name of the word for how many bytes of changes had ever gone home when the snapshot was sent: a little-endian number.
pub const SNAPSHOT_CARRIED: &str = "snapshot-carried";

/// A snapshot that is whole at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtHome {
    /// Tells the pieces of this snapshot from pieces of others, which may have been cut short.
    pub id: u64,
    /// The random number of the log whose snapshot it is.
    pub log: u64,
    /// The position of the first record that is not in the snapshot.
    pub position: u64,
    /// No piece is before this offset.
    pub from: u64,
    /// How many pieces there are.
    pub pieces: u64,
    /// Bytes of all pieces of the snapshot.
    pub bytes: u64,
}

impl AtHome {
    /// The encoding among the marks.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [
            self.id,
            self.log,
            self.position,
            self.from,
            self.pieces,
            self.bytes,
        ];
        numbers
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    /// Decodes a note about a snapshot; `None` if the bytes are no such note.
    #[must_use]
    pub fn decode(word: &[u8]) -> Option<AtHome> {
        let (numbers, rest) = word.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|one| u64::from_le_bytes(*one)).collect();
        match (&numbers[..], rest) {
            (&[id, log, position, from, pieces, bytes], []) => Some(AtHome {
                id,
                log,
                position,
                from,
                pieces,
                bytes,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_these_bytes_and_others_are_none() {
        let one = AtHome {
            id: 1,
            log: 2,
            position: 3,
            from: 4,
            pieces: 5,
            bytes: 6,
        };
        let word = one.encode();
        assert_eq!(word.len(), 48);
        assert_eq!((word[0], word[8], word[40]), (1, 2, 6));
        assert_eq!(AtHome::decode(&word), Some(one));
        for bad in [&word[..47], &[&word[..], &[0]].concat(), b""] {
            assert_eq!(AtHome::decode(bad), None);
        }
    }
}
