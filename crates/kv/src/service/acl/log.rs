//! ACL LOG: refused commands, keys and channels by user, the newest first.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a name that are kept.
const SHOWN: usize = 256;
/// Milliseconds in which refusals that are alike are one entry.
const GROUPED_MS: u64 = 60_000;

/// The kind of right that a user did not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Auth,
}

impl Reason {
    pub(super) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

/// The context in which a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    TopLevel,
    /// The command was to be queued by MULTI.
    Queued,
    /// The command was run by EXEC.
    Multi,
    Script,
}

impl Where {
    pub(super) fn name(self) -> &'static str {
        match self {
            Where::TopLevel => "toplevel",
            Where::Queued | Where::Multi => "multi",
            Where::Script => "lua",
        }
    }
}

/// A refusal, or several that are alike.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) count: u64,
    pub(super) reason: Reason,
    pub(super) place: Where,
    pub(super) object: Vec<u8>,
    pub(super) user: Vec<u8>,
    pub(super) client: String,
    pub(super) created_ms: u64,
    pub(super) updated_ms: u64,
}

impl Entry {
    /// Bytes of memory.
    fn bytes(&self) -> usize {
        size_of::<Entry>() + self.object.len() + self.user.len() + self.client.capacity()
    }
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    next_id: u64,
    pub(super) entries: VecDeque<Entry>,
}

/// The log of refused calls and logins.
#[derive(Debug, Default)]
pub(crate) struct Log {
    kept: Mutex<Kept>,
    counts: [AtomicU64; 4],
}

impl Log {
    /// Notes a refusal; the oldest goes when there are more than `most`. `client` is what CLIENT
    /// LIST shows of the refused client.
    #[cold]
    pub(crate) fn add(
        &self,
        (reason, place): (Reason, Where),
        object: &[u8],
        user: &[u8],
        client: String,
        now_ms: u64,
        most: usize,
    ) {
        self.counts[reason as usize].fetch_add(1, Relaxed);
        let (object, user) = (shortened(object), shortened(user));
        let mut kept = self.kept();
        let alike = kept.entries.iter().position(|entry| {
            entry.reason == reason
                && entry.place == place
                && entry.object == object
                && entry.user == user
                && now_ms.saturating_sub(entry.created_ms) <= GROUPED_MS
        });
        let entry = match alike.and_then(|at| kept.entries.remove(at)) {
            Some(known) => Entry {
                count: known.count + 1,
                client,
                updated_ms: now_ms,
                ..known
            },
            None => {
                kept.next_id += 1;
                Entry {
                    id: kept.next_id - 1,
                    count: 1,
                    reason,
                    place,
                    object,
                    user,
                    client,
                    created_ms: now_ms,
                    updated_ms: now_ms,
                }
            }
        };
        kept.entries.push_front(entry);
        kept.entries.truncate(most);
    }

    /// Bytes of memory of all kept entries. Goes through all of it.
    pub(crate) fn bytes(&self) -> usize {
        self.kept().entries.iter().map(Entry::bytes).sum()
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many refusals there were for this reason.
    pub(crate) fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Relaxed)
    }
}

fn shortened(name: &[u8]) -> Vec<u8> {
    name[..name.len().min(SHOWN)].to_vec()
}
