//! One number that tells a connection whether it has to look twice before its next command.
//!
//! A connection remembers the number that it has handled last, and compares it with the present
//! one. So changed rights, a pause of clients, MONITOR, a slow script, and keys that belong to the
//! log cost other connections only one comparison.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Clients are paused: no connection ever remembers this, so all look.
const PAUSED: u64 = 1 << 63;

/// A client is shown all commands.
const MONITORED: u64 = 1 << 62;

/// A script takes long, and no other client may read or change keys.
const BUSY: u64 = 1 << 61;

/// Some keys are streams of the log of messages: every command is checked for such keys.
const LOG_KEYS: u64 = 1 << 60;

/// The number.
#[derive(Debug, Default)]
pub(crate) struct Attention(AtomicU64);

impl Attention {
    /// Whether there is something to look at, for a connection that has dealt with `seen`.
    #[inline]
    pub(crate) fn differs(&self, seen: u64) -> bool {
        self.0.load(SeqCst) != seen
    }

    /// Whether that is keys which may not be the store's, and nothing else.
    #[inline]
    pub(crate) fn is_about_keys(&self, seen: u64) -> bool {
        self.0.load(SeqCst) == seen | LOG_KEYS
    }

    /// The number that a connection stores when it looks at its rights now.
    pub(crate) fn now(&self) -> u64 {
        self.0.load(SeqCst) & !(PAUSED | MONITORED | BUSY | LOG_KEYS)
    }

    pub(crate) fn rights_changed(&self) {
        self.0.fetch_add(1, SeqCst);
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.set(PAUSED, paused);
    }

    pub(crate) fn set_monitored(&self, monitored: bool) {
        self.set(MONITORED, monitored);
    }

    pub(crate) fn set_busy(&self, busy: bool) {
        self.set(BUSY, busy);
    }

    pub(crate) fn set_log_keys(&self) {
        self.set(LOG_KEYS, true);
    }

    fn set(&self, what: u64, yes: bool) {
        if yes {
            self.0.fetch_or(what, SeqCst);
        } else {
            self.0.fetch_and(!what, SeqCst);
        }
    }

    /// Whether a client is shown all commands.
    pub(crate) fn is_monitored(&self) -> bool {
        self.0.load(SeqCst) & MONITORED != 0
    }

    /// Whether a script takes long.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.load(SeqCst) & BUSY != 0
    }

    /// Whether clients may be paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.0.load(SeqCst) & PAUSED != 0
    }
}
