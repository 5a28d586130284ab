//! How the command ends: what it says, and with which status. The table is the same for all subcommands; docs/reference/command.md
//! and every `--help` have it.

/// The command could not be done: no server to connect to, a port in use, a file that cannot be
/// read; or it failed.
pub const FAILED: u8 = 1;
/// The request is invalid: a mistake in the command line, the environment, or a settings file. The command did
/// nothing, and wrote nothing to stdout.
pub const USAGE: u8 = 2;
/// A comparison found a regression, or an objective was missed.
pub const MISSED: u8 = 3;
/// A measurement came to figures that should not be believed.
pub const UNTRUSTWORTHY: u8 = 4;
/// The command was done, and something is wrong: a server under load gave a wrong answer or lost a
/// connection, messages were not acknowledged, a log is damaged or has failed. The number equals
/// [`USAGE`], which scripts around the load generator have relied on from the beginning: in both
/// cases a person has to look before the command is repeated.
pub const WRONG: u8 = 2;

/// The table of exit statuses, for the end of `--help`.
pub const TABLE: &str = "\
Exit status, of all commands:
  0  done
  1  the command failed: no server to connect to, an address in use, a file that cannot be read
  2  a person has to look: usage (the command line, the environment or a file of settings; nothing was done), or
     something was found wrong (wrong answers, messages without acknowledgement, a damaged log)
  3  bench, lab: an objective was missed, or a regression found
  4  bench, lab: figures that should not be believed";

/// Why the command failed: a sentence with what was attempted, on what, why it failed and what to
/// do.
#[derive(Debug)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// The message for stderr.
    pub message: String,
}

impl Failure {
    /// A failure of usage: the arguments cannot be meant.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure {
            status: USAGE,
            message: message.into(),
        }
    }

    /// The failure of an attempt.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure {
            status: FAILED,
            message: message.into(),
        }
    }

    /// A server answered wrongly, or not at all; a log is damaged.
    pub fn wrong(message: impl Into<String>) -> Failure {
        Failure {
            status: WRONG,
            message: message.into(),
        }
    }
}
