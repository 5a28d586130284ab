//! A file that cannot be read at present: it is tried again, after pauses that grow.
//!
//! Permissions are set late, descriptors run out, network file systems go away for a while. What is
//! wrong with the file itself is not here: trying again would not help.

use std::io;
use std::time::Duration;

use super::{Around, Follower};
use crate::file_system::FileSystem;
use crate::network::{Lane, Network};

/// The first pause; each next one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// So many times it becomes longer: up to about a minute.
const DOUBLED: u32 = 6;

#[derive(Clone, Copy, Debug)]
pub(super) struct Trouble {
    /// Tries that failed, one after the other.
    tries: u32,
    /// When the next one is due.
    until: Duration,
}

impl<F, L: Lane> Follower<F, L> {
    /// Reading failed, which may pass.
    pub(super) fn stumble<S, N>(&mut self, around: &mut Around<'_, S, N>, error: &io::Error)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        let before = self.trouble.map_or(0, |trouble| trouble.tries);
        if before == 0 {
            let path = self.entry.path.display();
            let again = match around.settings.once {
                true => "it is left for the next time",
                false => "it is tried again",
            };
            around
                .events
                .push(format!("cannot read {path}: {error}; {again}"));
        }
        self.trouble = Some(Trouble {
            tries: before + 1,
            until: around.now + PAUSE * 2u32.pow(before.min(DOUBLED)),
        });
        self.file = None;
        self.displace();
    }

    /// What was to be read was.
    pub(super) fn recovered<S: FileSystem, N: Network>(&mut self, around: &mut Around<'_, S, N>) {
        if self.trouble.take().is_some() {
            let path = self.entry.path.display();
            around.events.push(format!("{path} can be read again"));
        }
    }

    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble.is_some()
    }

    /// Whether it is to be left alone for now.
    pub(super) fn is_pausing(&self, now: Duration) -> bool {
        self.trouble.is_some_and(|trouble| now < trouble.until)
    }

    /// Whether it was tried so often that what comes after it in its path does not wait any more.
    pub(crate) fn is_stuck(&self) -> bool {
        let is_stuck = |trouble: Trouble| trouble.tries > DOUBLED;
        self.left.is_some() && self.trouble.is_some_and(is_stuck)
    }
}
