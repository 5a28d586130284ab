//! Passwords, of which the server keeps only hashes.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hash([u8; 32]);

impl Hash {
    pub(super) fn of(password: &[u8]) -> Hash {
        Hash(Sha256::digest(password).into())
    }

    /// From 64 hexadecimal digits in lower case.
    pub(super) fn parse(digits: &[u8]) -> Option<Hash> {
        let mut hash = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| match d {
                b'0'..=b'9' => Some(d - b'0'),
                b'a'..=b'f' => Some(d - b'a' + 10),
                _ => None,
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Hash(hash))
    }

    pub(super) fn to_hex(self) -> String {
        use std::fmt::Write;
        let mut digits = String::with_capacity(64);
        for byte in self.0 {
            let _ = write!(digits, "{byte:02x}");
        }
        digits
    }

    /// Whether the hash is one of these, in a time that reveals only how many there are.
    pub(super) fn is_among(self, hashes: &[Hash]) -> bool {
        let mut found = Choice::from(0);
        for hash in hashes {
            found |= hash.0.ct_eq(&self.0);
        }
        found.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_is_accepted() {
        let kept = [Hash::of(b"other"), Hash::of(b"s3cret")];
        assert!(Hash::of(b"s3cret").is_among(&kept));
        for wrong in [&b""[..], b"s3cre", b"s3cret ", b"S3cret", b"s3cret\0"] {
            assert!(!Hash::of(wrong).is_among(&kept), "{wrong:?}");
        }
        assert!(!Hash::of(b"").is_among(&[]));
    }

    #[test]
    fn digits_are_read_as_they_are_written() {
        let hash = Hash::of(b"s3cret");
        assert_eq!(Hash::parse(hash.to_hex().as_bytes()), Some(hash));
        for wrong in ["", "ab", &"A".repeat(64), &"g".repeat(64), &"a".repeat(65)] {
            assert_eq!(Hash::parse(wrong.as_bytes()), None);
        }
    }
}
