//! The lease of a home's owner: proof, for a while, that no other process serves what is at home.
//!
//! One idea: a transaction that commits proves that no other process had opened the home when the transaction was sent. So the
//! owner holds its lease for a fixed time from *before* it sent that transaction. Another process that opens the home fences the
//! owner first, so the owner's lease ends at most that time later. The other process waits for this time, and a margin for clocks
//! of different speed, before its own lease begins. A [note](LEASE) in the home beside the records says how long the time is, and
//! whether the owner has released its lease.
//!
//! Nothing here depends on the time of day: only how fast [clocks](monotonic) run, on two machines, is compared.
//! `docs/inside/lease.md` has the argument.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::home::{Owner, Words};

/// The name of the word that says how long a lease lasts, and whose it is.
pub const LEASE: &str = "lease";

/// The lease that an owner left word of at home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The process that held the lease, or still holds it.
    pub owner: Owner,
    /// How long the lease lasts from before a transaction was sent; zero once the lease is
    /// released.
    pub lasts: Duration,
}

impl Granted {
    /// The encoding among the marks: three 64-bit little-endian numbers, for the log, its process, and
    /// milliseconds.
    #[must_use]
    pub fn encode(&self) -> [u8; 24] {
        let lasts_ms = u64::try_from(self.lasts.as_millis()).unwrap_or(u64::MAX);
        let mut word = [0; 24];
        let numbers = [self.owner.log, self.owner.session, lasts_ms];
        for (bytes, number) in word.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        word
    }

    /// The lease that a home records; `None` if no owner ever held a lease there. A later version may append
    /// to the note.
    #[must_use]
    pub fn of(words: &Words) -> Option<Granted> {
        let (numbers, _) = words.get(LEASE)?.as_chunks::<8>();
        let &[log, session, lasts_ms, ..] = numbers else {
            return None;
        };
        let number = u64::from_le_bytes;
        Some(Granted {
            owner: Owner {
                log: number(log),
                session: number(session),
            },
            lasts: Duration::from_millis(number(lasts_ms)),
        })
    }

    /// How long another process waits after it has fenced this owner: the lease, and a fiftieth for clocks that run at different
    /// speeds. Zero for a lease that was released.
    #[must_use]
    pub fn wait(&self) -> Duration {
        self.lasts + self.lasts / 50
    }
}

/// Until when a process holds the lease. Clones show one lease.
#[derive(Clone, Default)]
pub struct Lease(Arc<Until>);

#[derive(Default)]
struct Until {
    /// Nanoseconds of the clock that the replicator is driven with; 0: not held.
    ends_ns: AtomicU64,
    /// The lease was released, or lost, for good.
    is_over: AtomicBool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?})", self.ends())
    }
}

impl Lease {
    /// Whether the lease is held at `now`, by the clock that drives the replicator. Requests that came before `now` may then be
    /// answered from this process's memory.
    #[must_use]
    pub fn is_held(&self, now: Duration) -> bool {
        now < self.ends()
    }

    /// [`is_held`](Lease::is_held) for a replicator that [runs](crate::Running).
    #[must_use]
    pub fn is_held_now(&self) -> bool {
        // A lease that was never held costs no look at the clock.
        self.0.ends_ns.load(SeqCst) > 0 && self.is_held(monotonic())
    }

    /// How long the lease is still held, by a replicator that [runs](crate::Running).
    #[must_use]
    pub fn left(&self) -> Duration {
        self.ends().saturating_sub(monotonic())
    }

    /// Zero once the lease is over, also where a proof and the end come at one moment from two
    /// threads.
    fn ends(&self) -> Duration {
        match self.0.is_over.load(SeqCst) {
            true => Duration::ZERO,
            false => Duration::from_nanos(self.0.ends_ns.load(SeqCst)),
        }
    }

    /// A transaction has proved the lease until then.
    pub(crate) fn extend(&self, ends: Duration) {
        let ends_ns = u64::try_from(ends.as_nanos()).unwrap_or(u64::MAX);
        self.0.ends_ns.fetch_max(ends_ns, SeqCst);
    }

    /// Ends the lease: this process does not hold it any more, and will not again.
    pub(crate) fn end(&self) {
        self.0.is_over.store(true, SeqCst);
    }
}

/// The time since some fixed moment, by a clock that is never set, and that runs on while the machine sleeps.
#[must_use]
pub fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn words_are_these_bytes_and_others_are_none() {
        let granted = Granted {
            owner: Owner { log: 1, session: 2 },
            lasts: Duration::from_millis(3),
        };
        let word = granted.encode();
        assert_eq!((word[0], word[8], word[16]), (1, 2, 3));
        let words = |word: &[u8]| Words::from([(LEASE.into(), word.into())]);
        assert_eq!(Granted::of(&words(&word)), Some(granted));
        let longer = [&word[..], b"more than that"].concat();
        assert_eq!(Granted::of(&words(&longer)), Some(granted));
        for bad in [&word[..23], b""] {
            assert_eq!(Granted::of(&words(bad)), None);
        }
        assert_eq!(Granted::of(&Words::new()), None);
    }

    #[test]
    fn a_lease_is_held_until_its_end_and_never_again_once_it_is_over() {
        let lease = Lease::default();
        assert!(!lease.is_held(Duration::ZERO) && !lease.is_held_now());
        lease.extend(2 * SECOND);
        lease.extend(SECOND);
        assert!(lease.is_held(SECOND) && !lease.is_held(2 * SECOND));
        lease.end();
        lease.extend(3 * SECOND);
        assert!(!lease.is_held(SECOND));
    }

    /// Another process never begins before the end, whatever the length.
    #[test]
    fn what_is_waited_is_longer_than_the_lease_by_a_margin() {
        let wait = |lasts| {
            Granted {
                owner: Owner { log: 1, session: 1 },
                lasts,
            }
            .wait()
        };
        assert_eq!(wait(Duration::ZERO), Duration::ZERO);
        assert_eq!(wait(50 * SECOND), 51 * SECOND);
    }
}
