//! Who is to have which partition, as others decide it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A group of nodes that share partitions, of which this one is a member. It decides who is to have what, not who has it:
/// that is decided at home.
///
/// Nothing here blocks.
pub trait Membership: Send {
    /// The next thing that happened.
    fn event(&mut self) -> Option<Event>;

    /// A partition that was [revoked](Event::Revoked) has been handed over. Where this does not come in time the
    /// group goes on without it.
    fn released(&mut self, partition: u32);
}

/// What happens to a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// These are all that this node is to have. What it had beside them is somebody else's.
    Assigned {
        /// Counts what the group has decided, as far as this member knows of it.
        generation: u64,
        /// All of them.
        partitions: BTreeSet<u32>,
    },
    /// These are to be somebody else's as soon as they are released.
    Revoked(BTreeSet<u32>),
    /// The group goes on without this node, perhaps: it has not been reached for too long.
    Lost,
    /// Where the nodes are that are to have these partitions: as clients find them.
    Places(BTreeMap<u32, Arc<str>>),
}
