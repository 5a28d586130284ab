//! A file that cannot be read at present, or whose producer the server does not take: it is tried again, after pauses
//! that grow, and other files go on.
//!
//! Permissions are set late, descriptors run out, network file systems go away for a while; a server has a limit on
//! producers. What is wrong with the file itself is not here: trying again would not help.

use std::io;
use std::time::Duration;

use super::{Around, Follower};
use crate::file_system::FileSystem;
use crate::network::{Lane, Network};

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
    fn again(before: Option<Trouble>, now: Duration) -> Trouble {
        let before = before.map_or(0, |trouble| trouble.tries);
        Trouble {
            tries: before + 1,
            until: now + PAUSE * 2u32.pow(before.min(DOUBLED)),
        }
    }
}

fn again(once: bool) -> &'static str {
    match once {
        true => "it is left for the next time",
        false => "it is tried again",
    }
}

impl<F, L: Lane> Follower<F, L> {
    /// Reading failed, which may pass.
    pub(super) fn stumble<S, N>(&mut self, around: &mut Around<'_, S, N>, error: &io::Error)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        if self.trouble.is_none() {
            let (path, again) = (self.entry.path.display(), again(around.settings.once));
            around
                .events
                .push(format!("cannot read {path}: {error}; {again}"));
        }
        self.trouble = Some(Trouble::again(self.trouble, around.now));
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

    /// The server takes no more producers.
    pub(super) fn turned_away<S, N>(&mut self, around: &mut Around<'_, S, N>, why: &str)
    where
        S: FileSystem<File = F>,
        N: Network<Lane = L>,
    {
        if self.crowded.is_none() {
            let (path, again) = (self.entry.path.display(), again(around.settings.once));
            around.events.push(format!("{path}: {why}; {again}"));
        }
        self.crowded = Some(Trouble::again(self.crowded, around.now));
    }

    /// The server has taken its producer.
    pub(super) fn let_in<S: FileSystem, N: Network>(&mut self, around: &mut Around<'_, S, N>) {
        if self.crowded.take().is_some() {
            let path = self.entry.path.display();
            around.events.push(format!("{path} is shipped again"));
        }
    }

    pub(crate) fn is_in_trouble(&self) -> bool {
        self.trouble.is_some() || self.crowded.is_some()
    }

    /// Whether it is to be left alone for now.
    pub(super) fn is_pausing(&self, now: Duration) -> bool {
        let troubles = self.trouble.iter().chain(&self.crowded);
        troubles
            .map(|trouble| trouble.until)
            .any(|until| now < until)
    }

    /// Whether it was tried so often that what comes after it in its path does not wait any more.
    pub(crate) fn is_stuck(&self) -> bool {
        let is_stuck = |trouble: Trouble| trouble.tries > DOUBLED;
        self.left.is_some() && self.trouble.is_some_and(is_stuck)
    }
}
