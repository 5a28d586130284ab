//! Tokens of ingest: secrets, by their hashes, and what they are good for.

use serde::Deserialize;
use tidewire_ingest::native::{Rights, Token};

use crate::exit::Failure;
use crate::secret::Secret;

/// A right that a token gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RightName {
    Read,
    Write,
    Admin,
}

/// A token of the configuration: its secret, as a hash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TokenEntry {
    name: String,
    /// 64 hexadecimal digits.
    sha256: String,
    #[serde(default)]
    streams: Vec<String>,
    /// What the token may do; if absent, reading and writing.
    rights: Option<Vec<RightName>>,
}

/// Most bytes of a token that a client can send.
const TOKEN_MAX: usize = 255;

/// A secret that clients can send.
pub(super) fn sendable(from: &str, secret: Secret) -> Result<String, Failure> {
    let secret = secret.into_text();
    match secret.len() {
        0..=TOKEN_MAX => Ok(secret),
        len => Err(Failure::usage(format!(
            "{from}: the token has {len} bytes, and clients can send {TOKEN_MAX} at most"
        ))),
    }
}

impl TokenEntry {
    pub(super) fn token(&self) -> Result<Token, Failure> {
        let hash = parse_hash(&self.sha256).ok_or_else(|| {
            Failure::usage(format!(
                "the token {:?}: sha256 is not 64 hexadecimal digits; `printf %s SECRET | sha256sum` \
                 shows what it should be",
                self.name
            ))
        })?;
        Ok(Token {
            name: self.name.clone(),
            sha256: hash,
            streams: self.streams.clone(),
            rights: match &self.rights {
                None => Rights::default(),
                Some(rights) => Rights {
                    read: rights.contains(&RightName::Read),
                    write: rights.contains(&RightName::Write),
                    admin: rights.contains(&RightName::Admin),
                },
            },
        })
    }
}

fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_hexadecimal() {
        assert_eq!(parse_hash(&"0a".repeat(32)), Some([10; 32]));
        assert_eq!(parse_hash("0a"), None);
        assert_eq!(parse_hash(&"+1".repeat(32)), None);
        assert_eq!(parse_hash(&"zz".repeat(32)), None);
    }
}
