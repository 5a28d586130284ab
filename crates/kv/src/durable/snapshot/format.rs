//! The file of a snapshot: a header, blocks with a checksum each, and a last one that says that all is
//! there. `docs/formats/kv-snapshot.md` draws it.

use std::fmt;

/// The first bytes of every snapshot.
const MAGIC: &[u8; 8] = b"TWKVSNAP";
/// The format that is written.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a header.
pub(crate) const HEADER: usize = 64;
/// Bytes in front of the payload of a block.
pub(crate) const BLOCK_HEAD: usize = 16;
/// Most bytes of a block's payload.
pub(crate) const BLOCK_MAX: usize = i32::MAX as usize;

const DATA: u32 = 1;
const END: u32 = 2;

/// The name under which a snapshot is written.
pub(crate) const PART: &str = "snapshot.part";
const PREFIX: &str = "snapshot-";
/// The end of a snapshot's name while the snapshot is [given anew](super::keeper::Keeper::new).
const MOVED: &str = ".moved";

/// The name of the file of the snapshot of what is below a position of the log.
#[must_use]
pub fn name(position: u64) -> String {
    format!("{PREFIX}{position:020}")
}

/// The position that a name says.
pub(crate) fn position_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_number = digits.len() == 20 && digits.bytes().all(|c| c.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Where a snapshot is for a moment, while its name is given anew.
pub(super) fn moved(position: u64) -> String {
    name(position) + MOVED
}

/// The position in the name of a file that was moved.
pub(super) fn position_of_moved(name: &str) -> Option<u64> {
    name.strip_suffix(MOVED).and_then(position_of)
}

/// The header of a snapshot, which describes the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The random number of the log that goes on behind it.
    pub log: u64,
    /// The first record of that log that is not in it.
    pub position: u64,
    /// The time at which the snapshot was begun: milliseconds since 1970.
    pub began_ms: u64,
    /// One more than the highest number of a database that had keys.
    pub databases: u16,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.position.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.began_ms.to_le_bytes());
        bytes[40..42].copy_from_slice(&self.databases.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Result<Header, Wrong> {
        let u32_at = |at| u32::from_le_bytes(four(bytes, at));
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if bytes[..8] != MAGIC[..] {
            return Err(Wrong::new(0, "the first bytes of a snapshot", "others"));
        }
        let mut zeroed = *bytes;
        zeroed[12..16].fill(0);
        let crc = checksum(&zeroed);
        if u32_at(12) != crc {
            return Err(Wrong::checksum(0, u32_at(12), crc));
        }
        if u32_at(8) != VERSION {
            let found = format!("{}, written by a later version of Tidewire", u32_at(8));
            return Err(Wrong::new(8, format!("format {VERSION}"), found));
        }
        Ok(Header {
            log: u64_at(16),
            position: u64_at(24),
            began_ms: u64_at(32),
            databases: u16::from_le_bytes([bytes[40], bytes[41]]),
        })
    }
}

fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]
}

fn checksum(header: &[u8; HEADER]) -> u32 {
    crc32c::crc32c(header)
}

/// The totals in the last block of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Keys.
    pub(crate) keys: u64,
    /// Bytes of items.
    pub(crate) bytes: u64,
}

impl Totals {
    pub(crate) fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.keys.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Totals> {
        let (keys, bytes) = bytes.split_at_checked(8)?;
        Some(Totals {
            keys: u64::from_le_bytes(keys.try_into().ok()?),
            bytes: u64::from_le_bytes(bytes.try_into().ok()?),
        })
    }
}

/// The header in front of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) is_end: bool,
    /// Counted from 0, so that none is missing.
    pub(crate) number: u32,
    pub(crate) size: usize,
    crc: u32,
}

impl BlockHead {
    pub(crate) fn of(is_end: bool, number: u32, payload: &[u8]) -> BlockHead {
        let mut head = BlockHead {
            is_end,
            number,
            size: payload.len(),
            crc: 0,
        };
        head.crc = head.checksum(payload);
        head
    }

    fn checksum(&self, payload: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.encode()[..12]), payload)
    }

    pub(crate) fn encode(&self) -> [u8; BLOCK_HEAD] {
        let kind = if self.is_end { END } else { DATA };
        let words = [kind, self.number, self.size as u32, self.crc];
        let mut bytes = [0; BLOCK_HEAD];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// `offset` is the position of the header, for error texts.
    pub(crate) fn decode(bytes: &[u8; BLOCK_HEAD], offset: u64) -> Result<BlockHead, Wrong> {
        let word = |at| u32::from_le_bytes(four(bytes, at));
        let is_end = match word(0) {
            DATA => false,
            END => true,
            kind => return Err(Wrong::new(offset, "a block", format!("one of kind {kind}"))),
        };
        let size = word(8) as usize;
        if size > BLOCK_MAX {
            let found = format!("{size} bytes");
            return Err(Wrong::new(offset + 8, "the size of a block", found));
        }
        Ok(BlockHead {
            is_end,
            number: word(4),
            size,
            crc: word(12),
        })
    }

    pub(crate) fn check(&self, payload: &[u8], offset: u64) -> Result<(), Wrong> {
        let crc = self.checksum(payload);
        if crc == self.crc {
            Ok(())
        } else {
            Err(Wrong::checksum(offset, self.crc, crc))
        }
    }
}

/// A fault in a file: the offset, the expected and the found value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// The expected value, in words.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

impl Wrong {
    pub(crate) fn new(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Wrong {
        Wrong {
            offset,
            expected: expected.into(),
            found: found.into(),
        }
    }

    fn checksum(offset: u64, expected: u32, found: u32) -> Wrong {
        let expected = format!("the checksum {expected:08x}");
        Wrong::new(offset, expected, format!("{found:08x}"))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong {
            offset,
            expected,
            found,
        } = self;
        write!(f, "at byte {offset}: expected {expected}, found {found}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_OF_A_SNAPSHOT: Header = Header {
        log: 0x0102_0304_0506_0708,
        position: 1000,
        began_ms: 1_700_000_000_000,
        databases: 16,
    };

    #[test]
    fn headers_are_read_as_they_are_written_and_every_bit_counts() {
        let bytes = HEADER_OF_A_SNAPSHOT.encode();
        assert_eq!(Header::decode(&bytes), Ok(HEADER_OF_A_SNAPSHOT));
        for bit in 0..8 * HEADER {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let head = BlockHead::of(false, 0, b"\x01\x00\x00\x01k\x01v");
        let expected = b"\x01\0\0\0\0\0\0\0\x07\0\0\0";
        assert_eq!(head.encode()[..12], expected[..]);
        assert_eq!(head.encode()[12..], [0x77, 0x57, 0x4a, 0xe3]);
        let header = HEADER_OF_A_SNAPSHOT.encode();
        assert_eq!(header[..16], *b"TWKVSNAP\x01\0\0\0\xde\xab\x73\x9a");
        assert_eq!(header[40..44], [16, 0, 0, 0]);
        let decoded = BlockHead::decode(&head.encode(), 64).unwrap();
        assert_eq!(decoded, head);
        assert!(decoded.check(b"\x01\x00\x00\x01k\x01v", 64).is_ok());
        assert!(decoded.check(b"\x01\x00\x00\x01k\x01w", 64).is_err());
    }

    #[test]
    fn names_say_the_position() {
        assert_eq!(position_of(&name(42)), Some(42));
        assert_eq!(position_of_moved(&moved(42)), Some(42));
        for other in [
            PART,
            &moved(42),
            "snapshot-42",
            "snapshot-0000000000000000004x",
            "claims",
        ] {
            assert_eq!(position_of(other), None, "{other}");
        }
    }
}
