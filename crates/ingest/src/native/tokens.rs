//! Tokens: secrets that clients send. The server keeps only hashes of tokens, and a comparison
//! takes constant time.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The rights of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Reading, and moving cursors.
    pub read: bool,
    /// Sending messages.
    pub write: bool,
    /// Creating, changing, deleting and listing streams.
    pub admin: bool,
}

/// Reading and writing.
impl Default for Rights {
    fn default() -> Rights {
        Rights {
            read: true,
            write: true,
            admin: false,
        }
    }
}

/// One right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
    Admin,
}

impl Rights {
    fn has(self, right: Right) -> bool {
        match right {
            Right::Read => self.read,
            Right::Write => self.write,
            Right::Admin => self.admin,
        }
    }
}

/// A token that is accepted.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The token's name in log lines.
    pub name: String,
    /// The SHA-256 hash of the token's bytes. Tokens should be long and random: the hash is not
    /// salted.
    pub sha256: [u8; 32],
    /// The streams for which the token is valid; empty for all.
    pub streams: Vec<String>,
    /// The token's rights.
    pub rights: Rights,
}

/// Shows the token without its hash.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Token {
            name,
            streams,
            rights,
            ..
        } = self;
        write!(f, "Token({name:?}, {streams:?}, {rights:?})")
    }
}

impl Token {
    /// A token with this secret, valid for reading and writing.
    #[must_use]
    pub fn new(name: &str, secret: &str, streams: &[&str]) -> Token {
        Token {
            name: name.to_owned(),
            sha256: Sha256::digest(secret).into(),
            streams: streams.iter().map(|&s| s.to_owned()).collect(),
            rights: Rights::default(),
        }
    }
}

/// The tokens that are accepted now.
#[derive(Debug)]
pub(super) struct Tokens {
    list: RwLock<Arc<[Token]>>,
    /// How many times the tokens were changed.
    changes: AtomicU32,
}

/// The token that a client has sent.
#[derive(Debug)]
pub(super) struct Pass {
    hash: [u8; 32],
    /// How often the tokens had been changed when it was looked at.
    seen: AtomicU32,
}

impl Pass {
    pub(super) fn new(secret: &str) -> Pass {
        Pass {
            hash: Sha256::digest(secret).into(),
            seen: AtomicU32::new(u32::MAX),
        }
    }
}

impl Tokens {
    pub(super) fn new(list: Vec<Token>) -> Tokens {
        Tokens {
            list: RwLock::new(list.into()),
            changes: AtomicU32::new(0),
        }
    }

    /// Replaces the accepted tokens by these tokens.
    pub(super) fn change(&self, list: Vec<Token>) {
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list.into();
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn list(&self) -> Arc<[Token]> {
        let list = self.list.read();
        list.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.list().is_empty()
    }

    /// Whether a client with this pass has this right for a stream; for any, if none is named.
    /// Without any tokens, all clients have all rights.
    pub(super) fn allow(&self, pass: &Pass, right: Right, stream: Option<&str>) -> bool {
        let changes = self.changes.load(Ordering::Acquire);
        let tokens = self.list();
        pass.seen.store(changes, Ordering::Relaxed);
        if tokens.is_empty() {
            return true;
        }
        let mut found = Choice::from(0);
        // All tokens are compared, so that the time does not reveal which one matched.
        for token in &*tokens {
            let is_for =
                |stream| token.streams.is_empty() || token.streams.iter().any(|s| s == stream);
            let here = token.rights.has(right) && stream.is_none_or(is_for);
            found |= pass.hash.ct_eq(&token.sha256) & Choice::from(u8::from(here));
        }
        found.into()
    }

    /// The name of the token that a client has shown, if there are tokens.
    pub(super) fn name(&self, pass: &Pass) -> Option<Arc<str>> {
        let tokens = self.list();
        let mut found = None;
        for token in &*tokens {
            if pass.hash.ct_eq(&token.sha256).into() {
                found = Some(token.name.as_str().into());
            }
        }
        found
    }

    /// Like [`Tokens::allow`], for a client that was allowed before: checked again only when the
    /// tokens have changed.
    pub(super) fn still_allow(&self, pass: &Pass, right: Right, stream: Option<&str>) -> bool {
        let changes = self.changes.load(Ordering::Acquire);
        pass.seen.load(Ordering::Relaxed) == changes || self.allow(pass, right, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(tokens: &Tokens, secret: &str, right: Right, stream: &str) -> bool {
        tokens.allow(&Pass::new(secret), right, Some(stream))
    }

    #[test]
    fn a_token_opens_its_streams() {
        assert!(allowed(&Tokens::new(vec![]), "", Right::Admin, "any"));
        let tokens = Tokens::new(vec![
            Token::new("one", "s3cret", &["a", "b"]),
            Token::new("root", "r00t", &[]),
        ]);
        assert!(allowed(&tokens, "s3cret", Right::Write, "a"));
        assert!(allowed(&tokens, "s3cret", Right::Read, "b"));
        assert!(!allowed(&tokens, "s3cret", Right::Write, "c"));
        assert!(allowed(&tokens, "r00t", Right::Write, "c"));
        assert!(!allowed(&tokens, "", Right::Write, "a"));
        assert!(!allowed(&tokens, "s3cre", Right::Write, "a"));
        assert!(!format!("{tokens:?}").contains("sha"));
    }

    #[test]
    fn a_token_is_good_for_its_rights() {
        let named = |name, rights| Token {
            rights,
            ..Token::new(name, name, &["a"])
        };
        let none = Rights {
            read: false,
            write: false,
            admin: false,
        };
        let tokens = Tokens::new(vec![
            named("reader", Rights { read: true, ..none }),
            named(
                "writer",
                Rights {
                    write: true,
                    ..none
                },
            ),
            named(
                "admin",
                Rights {
                    admin: true,
                    ..none
                },
            ),
        ]);
        let all = [
            ("reader", Right::Read),
            ("writer", Right::Write),
            ("admin", Right::Admin),
        ];
        for (name, _) in all {
            for (whose, right) in all {
                assert_eq!(allowed(&tokens, name, right, "a"), name == whose);
                assert!(!allowed(&tokens, name, right, "b"));
                let somewhere = tokens.allow(&Pass::new(name), right, None);
                assert_eq!(somewhere, name == whose);
            }
        }
    }

    #[test]
    fn what_was_shown_is_looked_at_again_when_tokens_change() {
        let tokens = Tokens::new(vec![Token::new("old", "old", &[])]);
        let pass = Pass::new("old");
        assert!(tokens.allow(&pass, Right::Read, Some("a")));
        assert!(tokens.still_allow(&pass, Right::Read, Some("a")));
        tokens.change(vec![Token::new("new", "new", &[])]);
        assert!(!tokens.still_allow(&pass, Right::Read, Some("a")));
        tokens.change(vec![Token::new("old", "old", &["b"])]);
        assert!(!tokens.still_allow(&pass, Right::Read, Some("a")));
        assert!(tokens.still_allow(&pass, Right::Read, Some("b")));
    }

    #[test]
    fn hashes_are_what_sha256sum_prints() {
        let hash = Token::new("", "abc", &[]).sha256;
        assert_eq!(hash[..4], [0xba, 0x78, 0x16, 0xbf]);
    }
}
