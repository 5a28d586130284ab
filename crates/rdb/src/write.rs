//! How lengths and strings are written.

/// The opcode of a library, since Redis 7.
pub(crate) const LIBRARY: u8 = 245;

/// A length, in as few bytes as it takes.
pub(crate) fn length(to: &mut Vec<u8>, n: usize) {
    match n {
        0..0x40 => to.push(n as u8),
        0x40..0x4000 => to.extend_from_slice(&[0x40 | (n >> 8) as u8, n as u8]),
        0x4000..=0xffff_ffff => {
            to.push(0x80);
            to.extend_from_slice(&(n as u32).to_be_bytes());
        }
        _ => {
            to.push(0x81);
            to.extend_from_slice(&(n as u64).to_be_bytes());
        }
    }
}

/// A string: its length, then its bytes.
pub(crate) fn string(to: &mut Vec<u8>, s: &[u8]) {
    length(to, s.len());
    to.extend_from_slice(s);
}
