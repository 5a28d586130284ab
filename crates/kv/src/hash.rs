//! How keys and members are hashed: SipHash-1-3 under a secret key.
//!
//! Clients choose the hashed keys and may have read this code, so the place of an entry must depend
//! on a secret only. Hashes that multiply the input with constants (foldhash, wyhash, FNV, ...)
//! have inputs that collide under every seed: where the constant meets itself, a factor becomes
//! zero. A universal hash with secret factors has no such inputs. But it is safe only from
//! attackers who never see its values, and SCAN shows them: keys come in the order of their hashes,
//! and cursors are bits of hashes. After a few hundred equations the factors are known. SipHash was
//! made to be a pseudorandom function: an attacker who sees as many values as he likes learns
//! nothing about the next. Rust's and Python's tables take one round a word and three at the end
//! against this attack too.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// The secret that hashes depend on: 128 bits.
#[derive(Clone, Copy)]
pub struct HashKey {
    k0: u64,
    k1: u64,
}

impl HashKey {
    /// A key from the operating system's randomness: what a server wants.
    #[must_use]
    pub fn random() -> HashKey {
        // The standard library asks the system for 128 bits; two values of a pseudorandom function
        // under them are as good.
        let state = RandomState::new();
        HashKey {
            k0: state.hash_one(0u8),
            k1: state.hash_one(1u8),
        }
    }

    /// Always the same key for a seed: for runs that have to be repeated, and for nothing that
    /// strangers reach.
    #[must_use]
    pub fn from_seed(seed: u64) -> HashKey {
        HashKey {
            k0: seed,
            k1: !seed,
        }
    }

    /// The hash of some bytes; all of its bits are good.
    #[inline]
    #[must_use]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let mut state = State {
            v0: self.k0 ^ 0x736f_6d65_7073_6575,
            v1: self.k1 ^ 0x646f_7261_6e64_6f6d,
            v2: self.k0 ^ 0x6c79_6765_6e65_7261,
            v3: self.k1 ^ 0x7465_6462_7974_6573,
        };
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        state.absorb((bytes.len() as u64) << 56 | tail(bytes, rest));
        state.v2 ^= 0xff;
        state.round();
        state.round();
        state.round();
        state.v0 ^ state.v1 ^ state.v2 ^ state.v3
    }
}

/// The last bytes of `bytes`, less than a word, as a number.
#[inline]
fn tail(bytes: &[u8], rest: &[u8]) -> u64 {
    if rest.is_empty() {
        0
    } else if let Some(last) = bytes.last_chunk::<8>() {
        // The last eight bytes as a word, without the bytes that were hashed before.
        u64::from_le_bytes(*last) >> (64 - 8 * rest.len())
    } else if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        // The two words overlap where there are fewer than eight bytes.
        let last = u64::from(u32::from_le_bytes(*last)) << (8 * (rest.len() - 4));
        u64::from(u32::from_le_bytes(*first)) | last
    } else {
        let byte = |at: usize| u64::from(rest[at]) << (8 * at);
        byte(0) | byte(rest.len() / 2) | byte(rest.len() - 1)
    }
}

/// Tables of the standard library under this key: with a key from a seed, their order is a function of the seed.
impl BuildHasher for HashKey {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: *self, sum: 0 }
    }
}

/// Hashes the parts of a value one after the other, each under a key that depends on the hash of
/// the parts before.
#[derive(Debug)]
pub struct KeyedHasher {
    key: HashKey,
    sum: u64,
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let key = HashKey {
            k0: self.key.k0 ^ self.sum,
            ..self.key
        };
        self.sum = key.hash(bytes);
    }

    fn finish(&self) -> u64 {
        self.sum
    }
}

impl fmt::Debug for HashKey {
    /// Shows no part of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

/// SipHash's four words.
struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline(always)]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline(always)]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

/// The key of all collections of the process: they do not know their store.
static COLLECTIONS: OnceLock<HashKey> = OnceLock::new();

/// How the tables of collections hash.
pub(crate) fn of_member(member: &[u8]) -> u64 {
    COLLECTIONS.get_or_init(HashKey::random).hash(member)
}

/// Sets the hash key for the tables of collections, unless one is set. Clients see the order of
/// these tables, so a run that is to be repeated needs the same key.
pub(crate) fn decide_once(key: HashKey) {
    let _ = COLLECTIONS.set(key);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    /// Families of 20,000 keys for which an attacker would look who knows a hash function, but no
    /// key.
    pub(crate) fn families() -> Vec<(&'static str, Vec<Vec<u8>>)> {
        type Family = fn(u64) -> Vec<u8>;
        let families: [(&str, Family); 9] = [
            ("published: the second word is foldhash's constant", |n| {
                let constant = 0x3f84_d5b5_b547_0917_u64;
                [n.to_le_bytes(), constant.to_le_bytes()].concat()
            }),
            ("the same behind and in front of longer keys", |n| {
                let constant = 0x3f84_d5b5_b547_0917_u64.to_le_bytes();
                [constant, n.to_le_bytes(), constant, constant].concat()
            }),
            ("numbers in binary", |n| n.to_le_bytes().to_vec()),
            ("numbers in the high bits", |n| {
                (n << 40).to_le_bytes().to_vec()
            }),
            ("numbers as text", |n| n.to_string().into_bytes()),
            ("zeros of every length", |n| vec![0; n as usize]),
            ("one bit in a long key", |n| {
                let mut key = vec![0; 2560];
                key[n as usize / 8] = 1 << (n % 8);
                key
            }),
            ("two words that cancel out", |n| {
                [
                    n.to_le_bytes(),
                    n.to_le_bytes(),
                    n.wrapping_neg().to_le_bytes(),
                ]
                .concat()
            }),
            ("long, equal but for the middle", |n| {
                [&[7; 100][..], &n.to_le_bytes(), &[7; 100][..]].concat()
            }),
        ];
        families
            .into_iter()
            .map(|(name, make)| (name, (0..20_000).map(make).collect()))
            .collect()
    }

    #[test]
    fn it_is_siphash_1_3() {
        let bytes: Vec<u8> = (0..=255).collect();
        let zero = HashKey { k0: 0, k1: 0 };
        for len in 0..bytes.len() {
            // The hasher of the standard library, with a key of zeros.
            let mut known = DefaultHasher::new();
            known.write(&bytes[..len]);
            assert_eq!(zero.hash(&bytes[..len]), known.finish(), "{len} bytes");
        }
    }

    #[test]
    fn a_key_of_its_own_each_time() {
        let one = HashKey::random();
        let other = HashKey::random();
        assert_ne!(one.hash(b"key"), other.hash(b"key"));
        assert_ne!(one.k0, one.k1);
        assert_eq!(format!("{one:?}"), "HashKey(secret)");
    }

    #[test]
    fn no_family_of_keys_collides_beyond_chance() {
        let key = HashKey::random();
        for (name, keys) in families() {
            // The bits that shards, buckets and tags are made of.
            for (bits, shift) in [("low", 0), ("middle", 32), ("high", 48)] {
                let mut buckets = vec![0u32; 1 << 16];
                for k in &keys {
                    buckets[(key.hash(k) >> shift) as usize & 0xffff] += 1;
                }
                let longest = buckets.iter().max().copied();
                // By chance once in about ten thousand million runs.
                assert!(
                    longest < Some(12),
                    "{name}, {bits} bits: {longest:?} in a bucket"
                );
            }
        }
    }
}
