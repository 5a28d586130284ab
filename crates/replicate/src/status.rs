//! The visible state of a replicator.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The present work of a replicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// The replicator waits before it tries again.
    #[default]
    Away,
    /// The replicator reads the home's marks.
    Looking,
    /// The replicator opens the home, which fences the process that had opened it before.
    Opening,
    /// The replicator carries records.
    Carrying,
    /// Another process has opened the home: this one carries nothing any more.
    Over,
    /// The replicator hands a partition over to another node.
    Leaving,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 6] = [
        Phase::Away,
        Phase::Looking,
        Phase::Opening,
        Phase::Carrying,
        Phase::Over,
        Phase::Leaving,
    ];

    /// The name of the phase.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Away => "away",
            Phase::Looking => "looking",
            Phase::Opening => "opening",
            Phase::Carrying => "carrying",
            Phase::Over => "over",
            Phase::Leaving => "leaving",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a replicator does.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The present work of the replicator.
    pub phase: Phase,
    /// The latest error; `None` as soon as an attempt succeeds.
    pub trouble: Option<Arc<str>>,
    /// The known end of each stream in the home.
    pub home: BTreeMap<Arc<str>, u64>,
    /// Transactions committed.
    pub transactions: u64,
    /// Messages in the carried records.
    pub messages: u64,
    /// Bytes of the carried records, with their headers.
    pub bytes: u64,
    /// Bytes that were ever carried to a home that [needs all](crate::Settings::needs_all), by whomever, as it says itself.
    pub carried: u64,
    /// The home [needs all](crate::Settings::needs_all), and what is before its first record is in no
    /// [snapshot](crate::SNAPSHOT) there yet.
    pub needs_snapshot: bool,
    /// Requests to the home that failed, or were not answered in time.
    pub failures: u64,
    /// Messages that could not be carried because they were lost in damage, or removed, before.
    pub lost: u64,
    /// Bytes of messages in memory, with their headers: in transactions that are filled or committed now.
    pub held: u64,
    /// State of a member of a fleet; the phase above is the phase of anonymous messages.
    pub fleet: Option<Fleet>,
}

impl Status {
    /// Adds what another has counted.
    pub(crate) fn add(&mut self, other: &Status) {
        self.transactions += other.transactions;
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.failures += other.failures;
        self.lost += other.lost;
        self.held += other.held;
    }
}

/// How a member of a fleet does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// The number of the group's decisions.
    pub generation: u64,
    /// The group is not reached.
    pub is_lost: bool,
    /// The partitions of this node, and the phase of each.
    pub partitions: BTreeMap<u32, Phase>,
    /// Partitions that were here and are not any more.
    pub ended: u64,
    /// Partitions among them that had to go before all durable records were in the home.
    pub cut_short: u64,
    /// Tenures that are over and have left something that is not at home.
    pub left_tenures: usize,
    /// Records in the positions from the first to the last of them, including records of others
    /// between them.
    pub left_records: u64,
}

/// The place where a replicator shows its status. Clones show one status.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<Mutex<Status>>);

impl Shown {
    /// The present status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
