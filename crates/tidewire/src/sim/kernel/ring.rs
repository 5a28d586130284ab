//! A ring: its queued operations, those in flight, those completed.

use std::collections::{BTreeMap, VecDeque};

use crate::kernel::queues::{Done, Operation};
use crate::sim::kernel::files::FileId;
use crate::sim::kernel::memory::{Lent, Sent};

/// Flags of completions.
pub(super) const BUFFER: u32 = 1;
pub(super) const MORE: u32 = 2;
pub(super) const SOCK_NONEMPTY: u32 = 4;

/// An operation in flight.
pub(super) struct InFlight {
    pub(super) user_data: u64,
    pub(super) operation: Operation,
    pub(super) file: FileId,
    /// The bytes of a send.
    pub(super) sends: Vec<Sent>,
    /// Hash of the bytes to send, taken when the operation was handed over.
    pub(super) sum: u64,
    /// Is ready, or may be: to be worked on.
    pub(super) queued: bool,
    pub(super) taken_back: TakenBack,
}

/// Whether an operation that is still in flight was taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TakenBack {
    No,
    /// Cancelled while the operation was about to go on, which it does once more.
    Racing,
    /// The operation is over, and is told so when the ring is next entered.
    Over,
}

/// A group of receive buffers.
#[derive(Default)]
pub(super) struct Group {
    pub(super) id: u16,
    pub(super) buffers: VecDeque<Lent>,
}

#[derive(Default)]
pub(super) struct Ring {
    pub(super) queued: VecDeque<(Operation, u64)>,
    pub(super) in_flight: BTreeMap<u64, InFlight>,
    /// Operations to work on.
    pub(super) tasks: Vec<u64>,
    pub(super) completions: VecDeque<Done>,
    /// Completions that found no room.
    pub(super) overflow: VecDeque<Done>,
    pub(super) groups: Vec<Group>,
    /// Waits on what was closed under them: to be taken back before the program waits.
    pub(super) orphans: Vec<u64>,
    /// Files that have no descriptor, or need none.
    pub(super) table: Vec<Option<FileId>>,
    pub(super) last: u64,
}

impl Ring {
    pub(super) fn has_something(&self) -> bool {
        !(self.completions.is_empty() && self.overflow.is_empty() && self.tasks.is_empty())
    }

    pub(super) fn is_queued(&self, id: u64) -> bool {
        self.in_flight.get(&id).is_some_and(|o| o.queued)
    }
}
