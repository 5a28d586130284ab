//! Which member gets which partition; the group decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A group of nodes that share partitions, of which this one is a member. The group decides which
/// member is to have a partition; the home decides which member has it.
///
/// No function of this trait blocks.
pub trait Membership: Send {
    /// The next event of the group.
    fn event(&mut self) -> Option<Event>;

    /// A partition that was [revoked](Event::Revoked) has been handed over. If this call does not come in time,
    /// the group goes on without it.
    fn released(&mut self, partition: u32);
}

/// An event of a member: partitions are given or taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These are all partitions of this node. Other partitions that it had belong to other members.
    Assigned {
        /// Counts what the group has decided, as far as this member knows of it.
        generation: u64,
        /// All partitions of this node.
        partitions: BTreeSet<u32>,
    },
    /// These partitions go to other members as soon as this node has released them.
    Revoked(BTreeSet<u32>),
    /// The group goes on without this node, perhaps: it has not been reached for too long.
    Lost,
    /// The addresses for clients of the nodes that get these partitions.
    Places(BTreeMap<u32, Arc<str>>),
}
