//! Why a log does not open.

use std::{fmt, io};

use crate::Kind;

/// Bytes of a file that differ from the bytes that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Bytes from the beginning of the file.
    pub offset: u64,
    /// The number of the batch that should be there.
    pub batch: u64,
    /// The expected value, in words.
    pub expected: String,
    /// The found value, in words.
    pub found: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage {
            file,
            offset,
            batch,
            expected,
            found,
        } = self;
        write!(
            f,
            "{file}: at byte {offset} (batch {batch}): expected {expected}, found {found}"
        )
    }
}

/// Why a log does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system says so.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// Why the operation failed.
        source: io::Error,
    },
    /// Records that were acknowledged as durable are not there any more.
    #[error(
        "{damage}; batches up to {claimed} were durable, so this is damage and not a torn tail. \
         Nothing was changed. `tidewire log check` shows everything that is wrong, `tidewire log \
         repair` keeps all that is not"
    )]
    Damaged {
        /// The place of the damage, and what was found.
        damage: Damage,
        /// The last batch that another one says was durable.
        claimed: u64,
    },
    /// A later version has written it, or what its readers must know is not known here.
    #[error(
        "{file}: at byte {offset}: {found}, which a later version of Tidewire has written and this one does not know. \
         Nothing was changed; use that version, or one that is newer still"
    )]
    Later {
        /// The file.
        file: String,
        /// Bytes from the beginning of the file.
        offset: u64,
        /// The found value, in words.
        found: String,
    },
    /// The log is of another kind than it was to be opened as.
    #[error(
        "this is a log of {found}, and not of {wanted}. Nothing was changed; --data is the directory of a server's data, in \
         which messages are, and keys in `kv`"
    )]
    Kind {
        /// The kind of the log.
        found: Kind,
        /// The kind that was asked for.
        wanted: Kind,
    },
    /// A setting is out of its range.
    #[error("{0}")]
    Settings(&'static str),
}

impl OpenError {
    pub(crate) fn io(what: impl fmt::Display, source: io::Error) -> OpenError {
        OpenError::Io {
            what: what.to_string(),
            source,
        }
    }
}

pub(super) fn unreadable_file(file: &str, error: io::Error) -> OpenError {
    OpenError::io(format!("reading {file}"), error)
}
