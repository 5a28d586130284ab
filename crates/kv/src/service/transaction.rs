//! The commands that a connection has queued for EXEC, and the keys that it watches.

use std::collections::HashSet;

use super::table::{Entry, table};
use crate::store::{Store, Watch};

/// A connection's queued commands and watched keys. Exists from the first MULTI or WATCH to the
/// next EXEC or DISCARD.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// MULTI was called.
    pub(super) open: bool,
    /// A command could not be queued: EXEC will refuse.
    pub(super) failed: bool,
    pub(super) commands: Vec<Queued>,
    /// The arguments of all commands, one behind the other.
    pub(super) text: Vec<u8>,
    /// Where each argument ends.
    pub(super) ends: Vec<u32>,
    pub(super) watches: Vec<Watch>,
    /// The databases and keys of `watches`.
    pub(super) watched: HashSet<(u16, Box<[u8]>)>,
    /// Bytes of memory of the queued commands and the watched keys.
    pub(super) held: usize,
}

/// The error of EXEC while a script takes long.
pub(super) const ABORTED_BUSY: &str = "EXECABORT Transaction discarded because of: BUSY Redis is busy \
    running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";

#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) id: u16,
    /// The command's arguments end before this one of `ends`.
    pub(super) args_end: u32,
}

impl Transaction {
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// EXEC will refuse: the queued commands need not be kept.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
        (self.text, self.ends, self.commands) = Default::default();
    }

    /// Stops watching.
    pub(crate) fn forget(self, store: &Store) {
        for watch in self.watches {
            store.unwatch(watch);
        }
    }

    /// The queued commands, with their arguments among `args`, the arguments of all of them.
    pub(super) fn commands<'x>(
        &self,
        args: &'x [&'x [u8]],
    ) -> Vec<(&'static Entry, &'x [&'x [u8]])> {
        let mut from = 0;
        let command = |queued: &Queued| {
            let these = &args[from..queued.args_end as usize];
            from = queued.args_end as usize;
            (table().entry(queued.id), these)
        };
        self.commands.iter().map(command).collect()
    }

    pub(super) fn args(&self) -> Vec<&[u8]> {
        let mut start = 0;
        let slice = |&end: &u32| {
            let arg = &self.text[start..end as usize];
            start = end as usize;
            arg
        };
        self.ends.iter().map(slice).collect()
    }
}
