//! Why a server ends, and how it has ended.

use std::time::Duration;

use crate::serve::handover::inherit::Inherited;

/// How often a warning says that a successor which holds a log keeps all clients waiting.
pub(crate) const SAID: Duration = Duration::from_secs(60);

/// How a server has ended.
pub(crate) enum End {
    Over,
    /// The successor has not come to serve: these are its listeners, with the clients that wait
    /// there.
    Again(Inherited),
    /// The server is to begin anew; these are its listeners.
    Anew(Inherited),
}

/// Why a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The server was asked to stop, or has to.
    Stop,
    /// A successor serves.
    Succeeded,
    /// A successor will serve once it has the logs.
    LogsAwaited,
    /// A service has asked to begin anew.
    Anew,
}
