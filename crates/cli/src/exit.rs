//! How the command ends: what it says, and with which status.

/// What was asked for cannot be done: usage, a port in use, nobody to connect to.
pub(crate) const USAGE: u8 = 1;
/// A server under load gave a wrong answer or lost a connection; messages were not acknowledged; a
/// log is damaged.
pub(crate) const WRONG: u8 = 2;
/// A comparison found a regression, or an objective was missed.
pub(crate) const MISSED: u8 = 3;
/// A measurement came to figures that should not be believed.
pub(crate) const UNTRUSTWORTHY: u8 = 4;

/// Why the command failed: a sentence that says what was attempted, on what, why it failed and what
/// to do about it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    pub(crate) message: String,
}

impl Failure {
    /// Something could not be done.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure {
            status: USAGE,
            message: message.into(),
        }
    }

    /// A server answered wrongly, or not at all.
    pub(crate) fn wrong(message: impl Into<String>) -> Failure {
        Failure {
            status: WRONG,
            message: message.into(),
        }
    }
}
