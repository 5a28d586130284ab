//! What makes a connection look twice before its next command, in one number.
//!
//! A connection remembers the number that it has dealt with, and compares. So rights that change and
//! a pause of clients, and MONITOR, cost those whom they do not concern one comparison.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Clients are paused: no connection ever remembers this, so all look.
const PAUSED: u64 = 1 << 63;

/// Somebody is shown all commands.
const MONITORED: u64 = 1 << 62;

/// The number.
#[derive(Debug, Default)]
pub(crate) struct Attention(AtomicU64);

impl Attention {
    /// Whether there is something to look at, for who has dealt with `seen`.
    #[inline]
    pub(crate) fn differs(&self, seen: u64) -> bool {
        self.0.load(SeqCst) != seen
    }

    /// What a connection is to remember that now looks at its rights.
    pub(crate) fn now(&self) -> u64 {
        self.0.load(SeqCst) & !(PAUSED | MONITORED)
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

    fn set(&self, what: u64, yes: bool) {
        if yes {
            self.0.fetch_or(what, SeqCst);
        } else {
            self.0.fetch_and(!what, SeqCst);
        }
    }

    /// Whether somebody is shown all commands.
    pub(crate) fn is_monitored(&self) -> bool {
        self.0.load(SeqCst) & MONITORED != 0
    }

    /// Whether clients may be paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.0.load(SeqCst) & PAUSED != 0
    }
}
