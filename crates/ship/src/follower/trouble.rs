//! A file that cannot be read at present, or whose producer the server does not take: it is tried again, after pauses
//! that grow, and other files go on.
//!
//! Permissions are set late, descriptors run out, network file systems go away for a while; a server has a limit on
//! producers. What is wrong with the file itself is not here: trying again would not help.

use std::time::Duration;

/// The first pause; each next one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// How many times the pause doubles: up to about a minute.
const DOUBLED: u32 = 6;

#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// Tries that failed, one after the other.
    tries: u32,
    /// When the next one is due.
    until: Duration,
}

impl Trouble {
    pub(super) fn again(before: Option<Trouble>, now: Duration) -> Trouble {
        let before = before.map_or(0, |trouble| trouble.tries);
        Trouble {
            tries: before + 1,
            until: now + PAUSE * 2u32.pow(before.min(DOUBLED)),
        }
    }

    /// Whether it is to be left alone for now.
    pub(super) fn is_pausing(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Whether it was tried so often that nothing else waits for it.
    pub(super) fn is_lasting(&self) -> bool {
        self.tries > DOUBLED
    }
}
