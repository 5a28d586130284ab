//! State that the connections of one loop share: acknowledgements that are owed, and connections
//! that wait.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use tidewire::{Bell, ConnId, Protocol};
use tidewire_log::{Tenure, Ticket};
use tidewire_replicate::Hold;

use super::counters::LoopTally;
use super::message::Message;
use super::refused::Refused;

/// A connection's ids that were appended, or that were committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) batches: u64,
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// A batch that was appended and is to be acknowledged when it is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    pub(super) ticket: Ticket,
    pub(super) to: ConnId,
    /// The id to acknowledge.
    pub(super) id: u64,
    /// The log's ticket after the connection's last append.
    pub(super) sent: Sent,
}

/// The state that all connections of one loop share.
pub struct IngestLocal {
    pub(super) bell: Bell<Message>,
    /// In the order of tickets, which is that of appending.
    pub(super) owed: VecDeque<Owed>,
    /// Acknowledgements that are owed when records have reached the home, in the same order.
    pub(super) owed_home: VecDeque<Owed>,
    /// Acknowledgements that are owed by the home, for each partition that moves; no queue is empty
    /// between calls.
    pub(super) owed_bound: BTreeMap<Tenure, OwedBy>,
    /// Acknowledgements that a commit has just made due; empty between calls.
    pub(super) committed: Vec<Owed>,
    /// Producers that wait for the messages of the session before theirs.
    pub(super) settling: Vec<ConnId>,
    /// Producers that wait for room in the queue of the log, in the order in which they came.
    pub(super) crowded: Vec<ConnId>,
    /// Readers that wait at the tail.
    pub(super) followers: Vec<ConnId>,
    pub(super) refused: Refused,
    pub(super) tally: LoopTally,
    /// Where frames are put together; empty between calls.
    pub(super) scratch: Vec<u8>,
}

/// A connection of these loops. The code for producers and readers is generic over this trait, so that the connection's own
/// type stands above it.
pub(super) trait Native: Protocol<Local = IngestLocal, Message = Message> {}

impl<P: Protocol<Local = IngestLocal, Message = Message>> Native for P {}

impl fmt::Debug for IngestLocal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IngestLocal({:?})", self.tally)
    }
}

/// Acknowledgements that are owed for one partition.
pub(super) struct OwedBy {
    pub(super) hold: Arc<Hold>,
    pub(super) owed: VecDeque<Owed>,
}

impl IngestLocal {
    /// The queue of acknowledgements for a partition that this server has.
    pub(super) fn owed_by(&mut self, hold: &Arc<Hold>) -> &mut VecDeque<Owed> {
        let by = self.owed_bound.entry(hold.tenure());
        let by = by.or_insert_with(|| OwedBy {
            hold: hold.clone(),
            owed: VecDeque::new(),
        });
        &mut by.owed
    }

    pub(super) fn waits(&self) -> bool {
        !(self.owed.is_empty()
            && self.owed_home.is_empty()
            && self.owed_bound.is_empty()
            && self.settling.is_empty()
            && self.crowded.is_empty()
            && self.followers.is_empty())
    }
}
