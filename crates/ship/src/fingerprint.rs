//! The fingerprint by which a file is recognised.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Most bytes of the beginning of a file that are remembered of it.
pub(crate) const HEAD: usize = 1024;

/// The beginning of a file: how many bytes, and their hash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Where the bytes begin.
    pub at: u64,
    /// How many.
    pub len: usize,
    /// The first half of their SHA-256, in hexadecimal.
    pub hash: String,
}

impl Fingerprint {
    pub(crate) fn of(at: u64, bytes: &[u8]) -> Fingerprint {
        let hash = Sha256::digest(bytes);
        let hash = hash[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Fingerprint {
            at,
            len: bytes.len(),
            hash,
        }
    }

    /// Whether the fingerprint is of zeros alone, or of no byte.
    pub(crate) fn is_of_zeros(&self) -> bool {
        self.len == 0 || self.fits(&vec![0; self.len])
    }

    /// Whether `bytes`, read where it says, are these.
    pub(crate) fn fits(&self, bytes: &[u8]) -> bool {
        *self == Fingerprint::of(self.at, bytes)
    }
}
