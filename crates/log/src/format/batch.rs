//! The header of a batch, and what makes a batch valid.

use super::layout::{
    ALIGN, BATCH_HEADER, BATCH_HEADER_BEFORE, BATCH_MAGIC, Fault, checksum_fault, is_batch, u32_at,
    u64_at,
};
use super::run::{RunView, Runs};

/// The flags of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(pub(crate) u32);

impl Flags {
    /// Has a checkpoint, which describes the log after this batch.
    pub(crate) const CHECKPOINT: Flags = Flags(1);
    /// Written when the log was closed.
    pub(crate) const CLOSING: Flags = Flags(2);
    /// Stands in the place of batches that are lost; says which, and which positions.
    pub(crate) const GAP: Flags = Flags(4);
    /// All features that this version knows.
    const KNOWN: u32 = 7;

    pub(crate) fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The last byte of [`BATCH_MAGIC`] and the length of the header, by version.
const VERSIONS: [(u8, usize); 2] = [(b'2', BATCH_HEADER), (b'1', BATCH_HEADER_BEFORE)];

/// The version of a batch that begins like this, if it is a later one. Where the rest of the header is valid in the layout of a
/// known version, only its first bytes are damaged, and the batch is not of a later version.
pub(super) fn newer(bytes: &[u8]) -> Option<char> {
    let last = *bytes.get(3).filter(|_| is_batch(bytes))?;
    let is_later = (VERSIONS[0].0 + 1..=b'9').contains(&last) && restored(bytes).is_none();
    is_later.then_some(char::from(last))
}

/// The header of the batch that begins like this, if it is whole but for its first bytes, which its checksum does not
/// cover: with these as they must have been.
pub(crate) fn restored(bytes: &[u8]) -> Option<[u8; BATCH_HEADER]> {
    let is_whole = |&(_, length): &(u8, usize)| {
        let header = bytes.get(..length);
        header.is_some_and(|header| u32_at(header, 4) == crc32c::crc32c(&header[8..]))
    };
    let (version, length) = VERSIONS.into_iter().find(is_whole)?;
    let mut header = [0; BATCH_HEADER];
    header[..length].copy_from_slice(&bytes[..length]);
    header[..3].copy_from_slice(&BATCH_MAGIC);
    header[3] = version;
    Some(header)
}

/// The beginning of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Length of the header.
    pub(crate) header: usize,
    /// The random number of the log.
    pub(crate) log: u64,
    /// The segment to which the batch was written.
    pub(crate) segment: u64,
    /// Number of the batch, dense over the log, from 1.
    pub(crate) number: u64,
    /// The last batch that was known to be durable when this batch was written.
    pub(crate) durable_through: u64,
    /// When the batch was written: microseconds since the Unix epoch.
    pub(crate) written_us: u64,
    /// Length of the batch, header and padding included.
    pub(crate) length: u32,
    pub(crate) runs: u32,
    pub(crate) records: u32,
    /// Over what [`RunView::covered`] names, run after run.
    pub(crate) body_crc: u32,
    pub(crate) flags: Flags,
    /// The number of the opening of the log that wrote the batch, counted from 1; 0 in version 1.
    /// The number never goes back, so a batch that was cut off once and has come back is
    /// recognised.
    pub(crate) epoch: u32,
    /// How long the log had been open, over all openings, in microseconds; 0 in version 1.
    pub(crate) lived_us: u64,
}

impl BatchHeader {
    /// Always in the newest version.
    pub(crate) fn encode(&self) -> [u8; BATCH_HEADER] {
        let mut bytes = [0; BATCH_HEADER];
        bytes[..3].copy_from_slice(&BATCH_MAGIC);
        bytes[3] = VERSIONS[0].0;
        let longs = [
            self.log,
            self.segment,
            self.number,
            self.durable_through,
            self.written_us,
        ];
        for (index, long) in longs.into_iter().enumerate() {
            bytes[8 + index * 8..][..8].copy_from_slice(&long.to_le_bytes());
        }
        let words = [
            self.length,
            self.runs,
            self.records,
            self.body_crc,
            self.flags.0,
            self.epoch,
        ];
        for (index, word) in words.into_iter().enumerate() {
            bytes[48 + index * 4..][..4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[72..80].copy_from_slice(&self.lived_us.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes`, which are at `offset` of segment `segment`; whether the
    /// rest of the batch is there is not looked at.
    pub(crate) fn decode(bytes: &[u8], offset: u64, segment: u64) -> Result<BatchHeader, Fault> {
        let end = || Fault::new(offset, "a batch header", "the end of the file");
        if bytes.len() < BATCH_HEADER_BEFORE {
            return Err(end());
        }
        let looked_at = &bytes[..BATCH_HEADER.min(bytes.len())];
        if looked_at.iter().all(|&byte| byte == 0) {
            return Err(Fault::new(offset, "a batch header", "zeros"));
        }
        let version = VERSIONS.into_iter().find(|&(last, _)| last == bytes[3]);
        let Some((_, length)) = version.filter(|_| is_batch(bytes)) else {
            return Err(Fault::new(
                offset,
                "the first bytes of a batch",
                "something else",
            ));
        };
        let bytes = bytes.get(..length).ok_or_else(end)?;
        let (stored, computed) = (u32_at(bytes, 4), crc32c::crc32c(&bytes[8..]));
        if stored != computed {
            return Err(checksum_fault(offset, "a batch header", stored, computed));
        }
        let is_newest = length == BATCH_HEADER;
        let header = BatchHeader {
            header: length,
            epoch: if is_newest { u32_at(bytes, 68) } else { 0 },
            lived_us: if is_newest { u64_at(bytes, 72) } else { 0 },
            log: u64_at(bytes, 8),
            segment: u64_at(bytes, 16),
            number: u64_at(bytes, 24),
            durable_through: u64_at(bytes, 32),
            written_us: u64_at(bytes, 40),
            length: u32_at(bytes, 48),
            runs: u32_at(bytes, 52),
            records: u32_at(bytes, 56),
            body_crc: u32_at(bytes, 60),
            flags: Flags(u32_at(bytes, 64)),
        };
        if header.segment != segment {
            let found = format!("a batch of segment {}", header.segment);
            return Err(Fault::new(
                offset,
                format!("a batch of segment {segment}"),
                found,
            ));
        }
        if header.flags.0 & !Flags::KNOWN != 0 {
            let found = format!("{:#x}", header.flags.0);
            return Err(Fault::new(offset, "flags that this version knows", found));
        }
        let length = header.length as usize;
        if length < header.header || !length.is_multiple_of(ALIGN) {
            let found = format!("a length of {length}");
            return Err(Fault::new(
                offset,
                "a batch's length, a multiple of 8",
                found,
            ));
        }
        Ok(header)
    }

    /// The runs of this batch, which begins `bytes` at `offset`; whether they are valid, the
    /// iterator says.
    pub(crate) fn runs<'a>(&self, bytes: &'a [u8], offset: u64) -> Result<Runs<'a>, Fault> {
        match bytes.get(self.header..self.length as usize) {
            Some(body) => Ok(Runs::new(body, offset + self.header as u64, self.runs)),
            None => {
                let expected = format!("a batch of {} bytes", self.length);
                Err(Fault::new(
                    offset,
                    expected,
                    format!("the file ends after {}", bytes.len()),
                ))
            }
        }
    }

    /// Whether everything in this batch, which begins `bytes` at `offset`, is what was written.
    pub(crate) fn verify(&self, bytes: &[u8], offset: u64) -> Result<(), Fault> {
        let mut crc = 0;
        let mut records: u64 = 0;
        let mut runs = self.runs(bytes, offset)?;
        for run in &mut runs {
            let (at, run) = run?;
            crc = crc32c::crc32c_append(crc, run.covered());
            if let RunView::Records(run) = run {
                run.verify(run.frames, at)?;
                records += u64::from(run.count);
            }
        }
        runs.verify_padding()?;
        if crc != self.body_crc {
            return Err(checksum_fault(
                offset,
                "the runs of a batch",
                self.body_crc,
                crc,
            ));
        }
        if records != u64::from(self.records) {
            let expected = format!("{} records in the batch", self.records);
            return Err(Fault::new(offset, expected, records));
        }
        Ok(())
    }
}

/// The checksum of the body according to a batch header that is itself damaged; 0 if the header is
/// cut short.
pub(crate) fn body_crc_of(header: &[u8]) -> u32 {
    let is_there = header.len() >= BATCH_HEADER_BEFORE;
    if is_there { u32_at(header, 60) } else { 0 }
}
