//! The error replies of commands.

use std::borrow::Cow;

/// An error reply: its code and text, without the leading `-`. The text may repeat arguments of the
/// client, which may be any bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub Cow<'static, [u8]>);

/// The text of [`Error::OUT_OF_MEMORY`].
pub(crate) const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";

impl Error {
    /// The key holds another type.
    pub const WRONG_TYPE: Error =
        Error::new("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// Options that do not fit together, or are unknown.
    pub const SYNTAX: Error = Error::new("ERR syntax error");
    /// An argument or value is not a 64-bit integer.
    pub const NOT_INTEGER: Error = Error::new("ERR value is not an integer or out of range");
    /// An argument or value is not a number.
    pub const NOT_FLOAT: Error = Error::new("ERR value is not a valid float");
    /// The key has to exist.
    pub const NO_KEY: Error = Error::new("ERR no such key");
    /// An index is beyond the end.
    pub const INDEX: Error = Error::new("ERR index out of range");
    /// A database that does not exist.
    pub const DB_INDEX: Error = Error::new("ERR DB index is out of range");
    /// An addition beyond 64 bits.
    pub const OVERFLOW: Error = Error::new("ERR increment or decrement would overflow");
    /// A string would be longer than 512 MiB.
    pub const TOO_LONG: Error =
        Error::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    /// A number below zero where none can be.
    pub const NOT_POSITIVE: Error = Error::new("ERR value is out of range, must be positive");
    /// Memory is short and nothing may be evicted.
    pub const OUT_OF_MEMORY: Error = Error::new(OUT_OF_MEMORY);
    /// A script takes long.
    pub const BUSY: Error = Error::new(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    );
    /// The name of the command is missing, so the text does not contain it.
    pub const NO_KEYS_GIVEN: Error = Error::new("ERR at least 1 input key is needed");

    /// An error with a fixed text.
    #[must_use]
    pub const fn new(text: &'static str) -> Error {
        Error(Cow::Borrowed(text.as_bytes()))
    }

    /// An error with a text made for the occasion.
    #[cold]
    #[must_use]
    pub fn text(text: String) -> Error {
        Error(text.into_bytes().into())
    }

    /// An error that repeats what was sent, up to its first zero byte as Redis does.
    #[cold]
    #[must_use]
    pub fn quoting(before: &str, sent: &[u8], after: &str) -> Error {
        let sent = sent.split(|byte| *byte == 0).next().unwrap_or_default();
        Error([before.as_bytes(), sent, after.as_bytes()].concat().into())
    }

    /// A wrong number of arguments for this command.
    #[cold]
    #[must_use]
    pub fn arity(name: &str) -> Error {
        Error::text(format!(
            "ERR wrong number of arguments for '{name}' command"
        ))
    }

    /// A time to live that cannot be, for this command.
    #[cold]
    #[must_use]
    pub fn expire_time(name: &str) -> Error {
        Error::text(format!("ERR invalid expire time in '{name}' command"))
    }
}

/// The result of a command; an error removes the part of the reply that the command had written.
pub type Done = Result<(), Error>;
