//! The part of a log that a replicator carries.

use std::fmt;
use std::sync::Arc;

use crate::home::Held;

/// A part of what a log holds, with a home of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// The whole log: the partition belongs to one server.
    Whole,
    /// The producers of a partition of a fleet, in the tenure in which it belongs to the log.
    Partition {
        /// The number of the partition, from 0.
        number: u32,
        /// How many there are.
        count: u32,
    },
    /// Records without a producer. Such records stay with the log that took them, in a fleet with
    /// this many partitions.
    Own {
        /// The random number of the log.
        log: u64,
        /// How many there are.
        count: u32,
    },
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Share::Whole => f.write_str("everything"),
            Share::Partition { number, .. } => write!(f, "partition {number}"),
            Share::Own { .. } => f.write_str("anonymous messages"),
        }
    }
}

impl Share {
    /// The share's partition in the home, where the home has more than one.
    #[must_use]
    pub fn partition(self) -> Option<u32> {
        match self {
            Share::Whole => None,
            Share::Partition { number, .. } => Some(number),
            // Below a number of 32 bits.
            Share::Own { log, count } => Some((log % u64::from(count.max(1))) as u32),
        }
    }

    /// Whether what a home holds is of the kind of this share.
    pub(crate) fn fits(self, held: &Held) -> Result<(), Arc<str>> {
        match (self, held.owner, held.claim) {
            (Share::Whole, _, Some(_)) => Err(
                "the home belongs to a fleet, whose members share its partitions: give this server a topic of its own, \
                 or --fleet-address"
                    .into(),
            ),
            (Share::Partition { .. }, Some(_), None) => Err(
                "the home belongs to single servers, each with a partition of its own: a fleet that shares its \
                 partitions needs a topic of its own"
                    .into(),
            ),
            (Share::Partition { count, .. }, _, Some(claim)) if claim.partitions != count => {
                let before = claim.partitions;
                Err(format!(
                    "the fleet began with {before} partitions, and this node's settings say \
                     {count}: with another number producers would belong elsewhere"
                )
                .into())
            }
            _ => Ok(()),
        }
    }
}
