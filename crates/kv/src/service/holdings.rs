//! The memory that the server holds because of one client, and because of all clients together.
//!
//! One account for each client: it is written by the connection's own loop, where something changes
//! that stays (a name, a subscription, a queued command, a wait), and read by any thread. A command
//! that leaves nothing behind touches none of it. The sum of all accounts is bounded by
//! `maxmemory-clients`: beyond it the largest client is evicted, as in Redis. The lasting memory of
//! one client is bounded by `client-query-buffer-limit`: a command that would exceed the limit is
//! refused.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Bytes that the server holds for a connection that has done nothing yet, about.
pub(crate) const BASE: u64 = 1536;
/// The sum of all accounts knows each one in steps of so many bytes, so that small clients never write to it.
const STEP: u64 = 4 << 10;
/// Input and output up to this size do not count in the sum: nearly all of it is gone by the end of the loop's turn.
pub(crate) const IN_PASSING: u64 = 16 << 10;
/// Bytes that a key takes, beside its name, for which a command waits: in the command, and in the shard's table.
const WAITING_KEY: usize = 448;
/// Bytes that a kept argument takes beside its text.
const ARGUMENT: usize = 40;
/// Bytes that a prefix of CLIENT TRACKING takes beside its text.
pub(crate) const PREFIX: usize = 256;

/// Memory that stays in use because of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// The client's name, and the names of its library.
    Names,
    /// The client's channels and patterns.
    Subscriptions,
    /// The queue of MULTI, and the keys that WATCH watches.
    Transaction,
    /// The arguments of the command that it waits in, and the keys that it waits for.
    Wait,
    /// The prefixes of CLIENT TRACKING.
    Prefixes,
}

const HOLDINGS: usize = Holding::Prefixes as usize + 1;

/// The account of one client; bytes of memory. Only the loop of its connection writes to it.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    by_kind: [AtomicU64; HOLDINGS],
    sum: AtomicU64,
    /// The part of the account that the common sum already includes.
    pub(super) known: AtomicU64,
}

impl Holdings {
    /// Sets how many bytes the client holds of this kind from now on.
    pub(crate) fn set(&self, holding: Holding, bytes: usize) {
        let bytes = bytes as u64;
        let before = self.by_kind[holding as usize].swap(bytes, Relaxed);
        let sum = self.sum.load(Relaxed);
        self.sum.store(sum - before + bytes, Relaxed);
    }

    pub(crate) fn get(&self, holding: Holding) -> u64 {
        self.by_kind[holding as usize].load(Relaxed)
    }

    /// The sum of all holdings.
    #[inline]
    pub(crate) fn sum(&self) -> u64 {
        self.sum.load(Relaxed)
    }

    /// Whether the sum of all clients knows something else, now that this one has `passing` bytes of input and output.
    #[inline]
    pub(crate) fn has_changed(&self, passing: u64) -> bool {
        self.rounded(passing) != self.known.load(Relaxed)
    }

    #[inline]
    pub(super) fn rounded(&self, passing: u64) -> u64 {
        let passing = if passing > IN_PASSING { passing } else { 0 };
        (self.sum() + passing) / STEP * STEP
    }
}

/// The sum of all clients' accounts, and the limit of the sum.
#[derive(Debug, Default)]
pub(crate) struct Total {
    pub(super) bytes: AtomicI64,
    /// The limit as CONFIG SET was given it: bytes; percent of `maxmemory` if negative; 0 is no
    /// limit.
    limit: AtomicI64,
    /// Held by the loop that looks for clients to evict.
    pub(super) evicting: Mutex<()>,
}

/// How much all clients may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientsLimit {
    Bytes(u64),
    /// A percentage of `maxmemory`; no limit if `maxmemory` has none.
    Percent(u8),
}

impl std::fmt::Display for ClientsLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientsLimit::Bytes(bytes) => write!(f, "{bytes}"),
            ClientsLimit::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

impl Total {
    pub(crate) fn limit(&self) -> ClientsLimit {
        match self.limit.load(Relaxed) {
            percent @ ..0 => ClientsLimit::Percent(percent.unsigned_abs() as u8),
            bytes => ClientsLimit::Bytes(bytes as u64),
        }
    }

    pub(crate) fn set_limit(&self, limit: ClientsLimit) {
        let limit = match limit {
            ClientsLimit::Bytes(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX),
            ClientsLimit::Percent(percent) => -i64::from(percent),
        };
        self.limit.store(limit, Relaxed);
    }

    pub(super) fn change(&self, before: u64, now: u64) {
        self.bytes.fetch_add(now as i64 - before as i64, Relaxed);
    }
}

/// Bytes of memory of arguments that are kept.
pub(crate) fn arguments_memory<T: AsRef<[u8]>>(args: &[T]) -> usize {
    args.iter().map(|arg| arg.as_ref().len() + ARGUMENT).sum()
}

/// Bytes of memory of the keys that a command waits for.
pub(crate) fn waiting_memory<T: AsRef<[u8]>>(keys: &[T]) -> usize {
    let each = keys.iter().map(|key| 2 * key.as_ref().len() + WAITING_KEY);
    each.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_an_account_is_that_of_its_parts() {
        let holdings = Holdings::default();
        assert!(!holdings.has_changed(IN_PASSING));
        holdings.set(Holding::Names, 100);
        holdings.set(Holding::Wait, 5_000);
        holdings.set(Holding::Names, 10);
        assert_eq!(
            (holdings.sum(), holdings.get(Holding::Wait)),
            (5_010, 5_000)
        );
        assert!(holdings.has_changed(0));
        holdings.set(Holding::Wait, 0);
        assert_eq!(holdings.sum(), 10);
        // Too little for the sum of all clients to know.
        assert!(!holdings.has_changed(0));
        assert!(holdings.has_changed(IN_PASSING + 1));
    }
}
