//! MurmurHash64A, by which elements are spread: published by Austin Appleby, with the seed of Redis.

const SEED: u64 = 0xadc8_3b19;
const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The hash of some bytes.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        let mixed = (word ^ word >> SHIFT).wrapping_mul(FACTOR);
        hash = (hash ^ mixed).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}
