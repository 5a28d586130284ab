//! How a producer is bound to a partition, where partitions move between servers.

use std::sync::Arc;

use tidewire_replicate::{Guest, Hold};

/// A partition that this server has, and the producer's name in it.
pub(in crate::native) struct Bound {
    guest: Guest,
    stream: Box<str>,
    producer: Box<str>,
}

impl Bound {
    pub(in crate::native) fn new(guest: Guest, stream: &str, producer: &str) -> Bound {
        Bound {
            guest,
            stream: stream.into(),
            producer: producer.into(),
        }
    }

    pub(super) fn hold(&self) -> &Arc<Hold> {
        self.guest.hold()
    }

    /// The producer's name in the log: each tenure has producers of its own in the log.
    pub(super) fn name_in_log(&self) -> String {
        self.hold().tenure().name(&self.producer)
    }

    pub(super) fn producer(&self) -> &str {
        &self.producer
    }

    pub(super) fn mark_at_home(&self) -> Option<u64> {
        self.hold().mark(&self.stream, &self.producer)
    }
}
