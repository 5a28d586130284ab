//! Sizes, names and headers of segments, and how numbers stand in bytes.

use std::fmt;

use crate::Kind;

/// First bytes of a segment.
pub(super) const SEGMENT_MAGIC: [u8; 8] = *b"tidelog\n";
/// The version of the format that is written.
pub(crate) const VERSION: u32 = 2;
/// The previous version, which can be read too; nothing is appended to a segment of that version.
pub(crate) const VERSION_BEFORE: u32 = 1;
/// Length of a segment's header.
pub(crate) const SEGMENT_HEADER: usize = 64;
/// First bytes of a batch, without the version.
pub(super) const BATCH_MAGIC: [u8; 3] = *b"TWb";
/// Length of a batch's header.
pub(crate) const BATCH_HEADER: usize = 80;
/// Length of a batch's header in version 1.
pub(crate) const BATCH_HEADER_BEFORE: usize = 72;
/// Length of the header of a run of records.
pub(crate) const RECORDS_HEADER: usize = 48;
/// Length of what every run begins with: its kind and its length.
pub(crate) const RUN_PREFIX: usize = 8;
/// Length of the header in front of each payload: id and size.
pub(crate) const FRAME_HEADER: usize = 12;
/// Batches begin at multiples of this.
pub(crate) const ALIGN: usize = 8;

/// A fault at an offset of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) offset: u64,
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Fault {
    pub(crate) fn new(offset: u64, expected: impl fmt::Display, found: impl fmt::Display) -> Fault {
        Fault {
            offset,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

/// Features that a reader of a segment must know, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs(pub(crate) u32);

impl Needs {
    /// Records are compressed.
    pub(crate) const COMPRESSION: Needs = Needs(2);
    /// Streams are administered: settings, deletion, records that were taken out.
    pub(crate) const STREAMS: Needs = Needs(4);
    /// All features that this version knows.
    pub(crate) const KNOWN: Needs = Needs(6);

    pub(crate) fn has(self, other: Needs) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }
}

/// The beginning of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The version of the format: that which is written, or the one before.
    pub(crate) version: u32,
    pub(crate) needs: Needs,
    /// The random number of the segment's log.
    pub(crate) log: u64,
    /// The number of the segment's first batch, which is also the segment's name.
    pub(crate) number: u64,
    /// Whether the log holds messages or keys; not recorded up to version 0.2.0.
    pub(crate) kind: Option<Kind>,
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; SEGMENT_HEADER] {
        let mut bytes = [0; SEGMENT_HEADER];
        bytes[..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.needs.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.log.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.number.to_le_bytes());
        bytes[32..36].copy_from_slice(&Kind::code(self.kind).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..SEGMENT_HEADER - 4]);
        bytes[SEGMENT_HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header of the file whose name says `number`.
    pub(crate) fn decode(bytes: &[u8], number: u64) -> Result<SegmentHeader, Fault> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER) else {
            let found = format!("a file of {} bytes", bytes.len());
            return Err(Fault::new(0, "a segment header of 64 bytes", found));
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(Fault::new(0, "a segment header", "zeros"));
        }
        if bytes[..8] != SEGMENT_MAGIC {
            return Err(Fault::new(
                0,
                "the first bytes of a segment",
                "something else",
            ));
        }
        let (stored, computed) = (u32_at(bytes, 60), crc32c::crc32c(&bytes[..60]));
        if stored != computed {
            return Err(checksum_fault(0, "a segment header", stored, computed));
        }
        let version = u32_at(bytes, 8);
        if !(VERSION_BEFORE..=VERSION).contains(&version) {
            let found = format!("version {version}, which a later Tidewire has written");
            let expected = format!("format version {VERSION} or {VERSION_BEFORE}");
            return Err(Fault::new(8, expected, found));
        }
        let needs = Needs(u32_at(bytes, 12));
        if !Needs::KNOWN.has(needs) {
            let found = format!("{:#x}, which a later Tidewire has written", needs.0);
            return Err(Fault::new(12, "features that this version knows", found));
        }
        let kind = u32_at(bytes, 32);
        if Kind::is_later(kind) {
            let found = format!("kind {kind}, which a later Tidewire has written");
            return Err(Fault::new(32, "a log of messages or of keys", found));
        }
        let header = SegmentHeader {
            version,
            needs,
            log: u64_at(bytes, 16),
            number: u64_at(bytes, 24),
            kind: Kind::of(kind),
        };
        if header.number != number {
            let expected = format!("segment {number}, as the name says");
            return Err(Fault::new(
                24,
                expected,
                format!("segment {}", header.number),
            ));
        }
        Ok(header)
    }
}

/// The name of a segment's file.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}.seg")
}

/// The name of a segment's index file.
pub(crate) fn index_name(number: u64) -> String {
    format!("{number:020}.idx")
}

/// The number in a file name made of 20 digits, a dot and this extension.
pub(crate) fn number_of(name: &str, extension: &str) -> Option<u64> {
    let (number, rest) = name.split_once('.')?;
    (rest == extension && number.len() == 20 && number.bytes().all(|digit| digit.is_ascii_digit()))
        .then(|| number.parse().ok())
        .flatten()
}

pub(crate) fn checksum_fault(offset: u64, of: &str, stored: u32, computed: u32) -> Fault {
    let expected = format!("{of} with the checksum {stored:08x} that is stored with it");
    Fault::new(offset, expected, format!("checksum {computed:08x}"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Whether a batch may begin like this.
pub(crate) fn is_batch(bytes: &[u8]) -> bool {
    bytes.starts_with(&BATCH_MAGIC)
}

/// How many bytes are missing to a multiple of [`ALIGN`].
pub(crate) fn padding(len: usize) -> usize {
    len.wrapping_neg() % ALIGN
}
