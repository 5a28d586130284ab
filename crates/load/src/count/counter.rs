//! A counter: a tool whose counts are read between rounds.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::profile::{ParseError, Profile};

/// The instructions of each thread, under a name for the thread that does not change.
pub type Threads = BTreeMap<String, Profile>;

/// Something that counts what a server does, and can be read between rounds.
pub trait Counter {
    /// Asks for a reading. The request takes effect at the latest when the server runs next.
    ///
    /// # Errors
    /// [`CountError`].
    fn begin(&mut self) -> Result<(), CountError>;

    /// Whether the reading has been made; waits for it at most so long.
    ///
    /// # Errors
    /// [`CountError`].
    fn is_done(&mut self, within: Duration) -> Result<bool, CountError>;

    /// The counts from the previous reading to this one.
    ///
    /// # Errors
    /// [`CountError`].
    fn take(&mut self) -> Result<Threads, CountError>;
}

/// Why nothing could be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountError {
    /// The tool is not there.
    #[error(
        "no {tool} here, which counts {what}: install it (the package is called {tool}), or leave --count out"
    )]
    Missing {
        /// Name of the tool.
        tool: &'static str,
        /// The purpose of the program.
        what: &'static str,
    },
    /// The tool does not behave as it should.
    #[error("{tool}: {what}")]
    Tool {
        /// Name of the tool.
        tool: &'static str,
        /// The output of the program.
        what: String,
    },
    /// A file of the tool cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the tool has an unexpected content.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The fault, in words.
        source: ParseError,
    },
}

/// Runs a tool with one flag that makes it say its version; the first line of that.
pub(super) fn version(
    tool: &'static str,
    what: &'static str,
    flag: &str,
) -> Result<String, CountError> {
    let said = std::process::Command::new(tool).arg(flag).output();
    let said = said.map_err(|_| CountError::Missing { tool, what })?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    match text.lines().next() {
        Some(line) if said.status.success() => Ok(line.trim().to_owned()),
        _ => Err(CountError::Missing { tool, what }),
    }
}
