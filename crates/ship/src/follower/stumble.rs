//! What a follower does while its file cannot be read, or its producer is not taken.

use std::io;
use std::time::Duration;

use super::trouble::Trouble;
use super::{Around, Follower};
use crate::file_system::FileSystem;
use crate::network::{Lane, Network};

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

    /// The bytes that were to be read have been read.
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
        let mut troubles = self.trouble.iter().chain(&self.crowded);
        troubles.any(|trouble| trouble.is_pausing(now))
    }

    /// Whether the file was tried so often that later files of its path do not wait any more.
    pub(crate) fn is_stuck(&self) -> bool {
        let is_lasting = |trouble: Trouble| trouble.is_lasting();
        self.left.is_some() && self.trouble.is_some_and(is_lasting)
    }
}
