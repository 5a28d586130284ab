//! The bounds on the producers of a partition while this server holds the partition.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewire_log::{Tenure, Ticket};

use crate::home::Marks;

/// A partition that this node has, from the claim to its end: how far its producers are at home, and how far what they send.
pub struct Hold {
    tenure: Tenure,
    /// The ids in the home, by stream and producer.
    marks: Mutex<ByStream>,
    /// The ticket plus one; 0 for none.
    replicated: AtomicU64,
    ending: AtomicU8,
    guests: AtomicUsize,
}

/// Last ids, by stream and then producer, to be found by names that are borrowed.
type ByStream = BTreeMap<Arc<str>, BTreeMap<Arc<str>, u64>>;

/// Whether a hold goes on, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// The hold goes on.
    No,
    /// The partition is handed over: nothing more is to be taken for it, and what was taken is still carried.
    Leaving,
    /// The tenure is over: no record is carried any more.
    Over,
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hold({:?}, {:?})", self.tenure, self.ending())
    }
}

impl Hold {
    /// A hold that begins with these marks. For a node, and for tests of its callers.
    #[doc(hidden)]
    #[must_use]
    pub fn new(tenure: Tenure, marks: &Marks) -> Hold {
        let hold = Hold {
            tenure,
            marks: Mutex::default(),
            replicated: AtomicU64::new(0),
            ending: AtomicU8::new(Ending::No as u8),
            guests: AtomicUsize::new(0),
        };
        hold.learn(marks);
        hold
    }

    /// Since when the partition is here: it belongs to the names of producers in the log.
    #[must_use]
    pub fn tenure(&self) -> Tenure {
        self.tenure
    }

    /// The last id of a producer that is in the home, as far as is known. The log may have a later id of the present
    /// tenure.
    #[must_use]
    pub fn mark(&self, stream: &str, producer: &str) -> Option<u64> {
        self.marks().get(stream)?.get(producer).copied()
    }

    /// All that was taken in this tenure up to this ticket of the log is at home. `None`: that is not known yet.
    #[must_use]
    pub fn replicated(&self) -> Option<Ticket> {
        self.replicated.load(Acquire).checked_sub(1).map(Ticket)
    }

    /// Whether the hold goes on.
    #[must_use]
    pub fn ending(&self) -> Ending {
        match self.ending.load(SeqCst) {
            0 => Ending::No,
            1 => Ending::Leaving,
            _ => Ending::Over,
        }
    }

    /// A caller appends for a producer until the guest is dropped; a partition that is handed over
    /// waits for that. `None` if the hold has ended.
    #[must_use]
    pub fn enter(self: &Arc<Hold>) -> Option<Guest> {
        // A guest enters before it checks for the end, and the owner ends the hold before it checks
        // for guests: so one of the two sees the other.
        self.guests.fetch_add(1, SeqCst);
        let guest = Guest(self.clone());
        (self.ending() == Ending::No).then_some(guest)
    }

    pub(crate) fn has_guests(&self) -> bool {
        self.guests.load(SeqCst) > 0
    }

    /// See [`Hold::new`].
    #[doc(hidden)]
    pub fn ends(&self, how: Ending) {
        self.ending.fetch_max(how as u8, SeqCst);
    }

    /// See [`Hold::new`].
    #[doc(hidden)]
    pub fn reached(&self, replicated: Option<Ticket>) {
        if let Some(Ticket(ticket)) = replicated {
            self.replicated.fetch_max(ticket.saturating_add(1), Release);
        }
    }

    /// More records are in the home.
    pub(crate) fn learn(&self, marks: &Marks) {
        let mut known = self.marks();
        for ((stream, producer), &last) in marks {
            let of_stream = known.entry(stream.clone()).or_default();
            of_stream.insert(producer.clone(), last);
        }
    }

    fn marks(&self) -> MutexGuard<'_, ByStream> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a partition from being handed over for as long as there is time.
#[derive(Debug)]
pub struct Guest(Arc<Hold>);

impl Guest {
    /// The hold that the guest has entered.
    #[must_use]
    pub fn hold(&self) -> &Arc<Hold> {
        &self.0
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.guests.fetch_sub(1, SeqCst);
    }
}
