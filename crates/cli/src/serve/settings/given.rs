//! The given flags of features that may be absent.

use crate::serve::listeners::kind::Named;

/// The condition under which a flag of the frame has an effect. Which flag needs what is written beside
/// the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A service whose clients send messages.
    Messages,
    /// Whatever writes to the log of messages, or to one of its own.
    Log,
    /// A log or a store with a home.
    Home,
    /// A log of messages that has one.
    Replicated,
    /// A log that is synced before any client is answered.
    SyncedLog,
    Tls,
    Admin,
    /// A limit that counts addresses, or networks.
    Addresses,
    Prefixes,
}

/// The given flags of features that may be absent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// The given flags, with the tables in which they stand.
    pub(crate) flags: Vec<(String, Option<String>)>,
    /// Flags that name a service.
    pub(crate) scopes: Vec<(&'static str, Named)>,
}
