//! Secrets that clients show. Only their hashes are kept, and comparing takes the same time
//! whatever is right about them.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// A token that is accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is called in logs.
    pub name: String,
    /// The SHA-256 hash of its bytes. Tokens should be long and random: the hash is not salted.
    pub sha256: [u8; 32],
    /// The streams that it is for; empty for all.
    pub streams: Vec<String>,
}

/// Without the hash.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?}, {:?})", self.name, self.streams)
    }
}

impl Token {
    /// The token with these bytes.
    #[must_use]
    pub fn new(name: &str, secret: &str, streams: &[&str]) -> Token {
        Token {
            name: name.to_owned(),
            sha256: Sha256::digest(secret).into(),
            streams: streams.iter().map(|&s| s.to_owned()).collect(),
        }
    }
}

/// Whether `secret` may use `stream`. Without any tokens, everybody may.
pub(super) fn allowed(tokens: &[Token], secret: &str, stream: &str) -> bool {
    if tokens.is_empty() {
        return true;
    }
    let hash: [u8; 32] = Sha256::digest(secret).into();
    let mut found = Choice::from(0);
    // All of them, so that the time does not tell which it was.
    for token in tokens {
        let here = token.streams.is_empty() || token.streams.iter().any(|s| s == stream);
        found |= hash.ct_eq(&token.sha256) & Choice::from(u8::from(here));
    }
    found.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_its_streams() {
        assert!(allowed(&[], "", "any"));
        let tokens = [
            Token::new("one", "s3cret", &["a", "b"]),
            Token::new("root", "r00t", &[]),
        ];
        assert!(allowed(&tokens, "s3cret", "a"));
        assert!(allowed(&tokens, "s3cret", "b"));
        assert!(!allowed(&tokens, "s3cret", "c"));
        assert!(allowed(&tokens, "r00t", "c"));
        assert!(!allowed(&tokens, "", "a"));
        assert!(!allowed(&tokens, "s3cre", "a"));
        assert!(!format!("{tokens:?}").contains("sha"));
    }

    #[test]
    fn hashes_are_those_that_sha256sum_prints() {
        let hash = Token::new("", "abc", &[]).sha256;
        assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
