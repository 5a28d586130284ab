//! Why a call is refused, and what its client is told.

use crate::commands::Error;

/// The missing right for which a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied<'a> {
    Command,
    /// The key, and which one of its keys it is.
    Key(usize, &'a [u8]),
    Channel(&'a [u8]),
    /// This option of SORT may read any key.
    Pattern(&'static str),
}

impl Denied<'_> {
    /// The closest of the refusals of several selectors is told.
    pub(super) fn rank(&self) -> (u8, usize) {
        match self {
            Denied::Command => (0, 0),
            Denied::Key(at, _) => (1, *at),
            Denied::Pattern(_) => (2, 0),
            Denied::Channel(_) => (3, 0),
        }
    }

    /// The error reply; `before` stands in front of the denied command, key or channel.
    pub(crate) fn error(&self, code: &str, before: &str, user: &[u8], call: &str) -> Error {
        let user = String::from_utf8_lossy(user);
        let what = match self {
            Denied::Command => {
                format!("User {user} has no permissions to run the '{call}' command")
            }
            Denied::Key(..) => "No permissions to access a key".to_owned(),
            Denied::Channel(_) => "No permissions to access a channel".to_owned(),
            Denied::Pattern(option) => {
                return Error::text(format!(
                    "ERR {option} option of SORT denied due to insufficient ACL permissions."
                ));
            }
        };
        Error::text(format!("{code} {before}{what}"))
    }

    /// The refusal with the name of the key or channel.
    pub(super) fn in_full(&self, user: &[u8], call: &str) -> Vec<u8> {
        let of = |what: &str, name: &[u8]| {
            [
                b"User ",
                user,
                b" has no permissions to access the '",
                name,
                format!("' {what}").as_bytes(),
            ]
            .concat()
        };
        match self {
            Denied::Key(_, key) => of("key", key),
            Denied::Channel(channel) => of("channel", channel),
            Denied::Command | Denied::Pattern(_) => {
                let error = self.error("", "", user, call);
                error.0.trim_ascii_start().to_vec()
            }
        }
    }
}
