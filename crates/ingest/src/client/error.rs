//! The errors of the blocking clients.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::broken::Broken;

/// Why a call of a blocking client failed. Messages that were not acknowledged before the failure
/// may or may not be stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is malformed, or its name is unknown.
    #[error("{to:?} is no address to connect to: {source}")]
    Address {
        /// The address as the caller gave it.
        to: String,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// No connection could be made, or it broke.
    #[error("cannot {what} {to}: {source}")]
    Connection {
        /// The operation that failed.
        what: &'static str,
        /// The server.
        to: String,
        /// The error of the operating system.
        source: Arc<io::Error>,
    },
    /// The conversation cannot go on.
    #[error("{to}: {source}")]
    Broken {
        /// The server.
        to: String,
        /// Why.
        source: Broken,
    },
    /// All attempts are used up.
    #[error("gave up after {attempts} attempts in {elapsed:.1?}: {last}")]
    GaveUp {
        /// How many there were since the connection was lost.
        attempts: u32,
        /// How long the attempts took.
        elapsed: Duration,
        /// Why the last one failed.
        last: Box<Error>,
    },
    /// A message is larger than the server's limit.
    #[error("a message of {len} bytes is too large: {to} takes at most {most}")]
    TooLarge {
        /// The server.
        to: String,
        /// Bytes of the message.
        len: usize,
        /// The largest allowed number.
        most: u32,
    },
    /// The id given cannot be next.
    #[error("{0}")]
    Id(super::session::NotTaken),
    /// No message was acknowledged within the given time.
    #[error("not everything was acknowledged within {0:.1?}")]
    TimedOut(Duration),
}

impl Error {
    /// This error itself, or the failure of the last attempt if there were several attempts.
    #[must_use]
    pub fn last(&self) -> &Error {
        match self {
            Error::GaveUp { last, .. } => last.last(),
            error => error,
        }
    }

    /// Why the conversation ended, if that is what happened, in the end.
    #[must_use]
    pub fn broken(&self) -> Option<&Broken> {
        match self.last() {
            Error::Broken { source, .. } => Some(source),
            _ => None,
        }
    }

    /// Whether a new connection may help.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            // Errors of TLS are permanent.
            Error::Connection { source, .. } => source.kind() != io::ErrorKind::InvalidData,
            // A name may become known later; a malformed address never becomes valid.
            Error::Address { source, .. } => source.kind() != io::ErrorKind::InvalidInput,
            Error::Broken { source, .. } => source.is_passing(),
            _ => false,
        }
    }
}
