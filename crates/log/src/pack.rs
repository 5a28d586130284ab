//! Records of a run, compressed: their length (4 bytes), then what the compressor makes of them.

use crate::{Compression, GROUP_MAX};

/// Bytes of the length in front of compressed data.
const LENGTH: usize = 4;
/// More than a run of records can have: the largest group.
pub(crate) const UNPACKED_MAX: usize = GROUP_MAX + 1;
/// The level of Zstandard: its own default.
const ZSTD_LEVEL: i32 = 3;
/// Shorter data is stored uncompressed: compressing it gains nothing.
const LEAST: usize = 128;

/// The records in a shorter form, if there is one.
pub(crate) fn pack(by: Compression, frames: &[u8]) -> Option<Vec<u8>> {
    if frames.len() < LEAST {
        return None;
    }
    let length = u32::try_from(frames.len()).ok()?;
    let packed = match by {
        Compression::None => return None,
        Compression::Lz4 => lz4_flex::block::compress(frames),
        Compression::Zstd => zstd::bulk::compress(frames, ZSTD_LEVEL).ok()?,
    };
    let is_shorter = LENGTH + packed.len() < frames.len();
    is_shorter.then(|| [&length.to_le_bytes()[..], &packed].concat())
}

/// Restores the original records. `None` if [`pack`] has not made these bytes; the result is never
/// longer than `most`.
pub(crate) fn unpack(by: Compression, stored: &[u8], most: usize) -> Option<Vec<u8>> {
    if by == Compression::None {
        return (stored.len() <= most).then(|| stored.to_vec());
    }
    let (length, packed) = stored.split_first_chunk::<LENGTH>()?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > most {
        return None;
    }
    let frames = match by {
        Compression::None => return None,
        Compression::Lz4 => lz4_flex::block::decompress(packed, length).ok()?,
        Compression::Zstd => zstd::bulk::decompress(packed, length).ok()?,
    };
    (frames.len() == length).then_some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_nothing_else() {
        let frames = b"the same again and again, ".repeat(40);
        for by in [Compression::Lz4, Compression::Zstd] {
            let packed = pack(by, &frames).expect("shorter");
            assert!(packed.len() < frames.len() / 4);
            assert_eq!(unpack(by, &packed, frames.len()).as_ref(), Some(&frames));
            assert_eq!(unpack(by, &packed, frames.len() - 1), None, "too long");
            for cut in 0..packed.len() {
                assert_ne!(unpack(by, &packed[..cut], 1 << 20).as_ref(), Some(&frames));
            }
            for at in 0..LENGTH {
                let mut flipped = packed.clone();
                flipped[at] ^= 1;
                assert_eq!(unpack(by, &flipped, 1 << 20), None, "flipped at {at}");
            }
            let mut random = fastrand::Rng::with_seed(1);
            let noise: Vec<u8> = (0..1000).map(|_| random.u8(..)).collect();
            assert_eq!(pack(by, &noise), None, "no shorter");
            // No input breaks the reader.
            for _ in 0..1000 {
                let mut bent = packed.clone();
                let at = random.usize(LENGTH..bent.len());
                bent[at] ^= 1 << random.u8(0..8);
                let _ = unpack(by, &bent, 1 << 20);
            }
        }
        assert_eq!(pack(Compression::Lz4, &frames[..LEAST - 1]), None);
    }
}
