//! What a producer is bound to where partitions move between servers.

use std::sync::Arc;

use tidewire::Cx;
use tidewire_replicate::{Ending as Tenancy, Guest, Hold};

use super::{Ending, Producer};
use crate::native::codec::Reason;
use crate::native::conn::{IngestConn, NOWHERE};
use crate::native::fleet::At;
use crate::native::service::Shared;

/// A partition that is here, and whose producer this is by the names that clients know.
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

    /// Each tenure has producers of its own there.
    pub(super) fn name_in_log(&self) -> String {
        self.hold().tenure().name(&self.producer)
    }

    pub(super) fn mark_at_home(&self) -> Option<u64> {
        self.hold().mark(&self.stream, &self.producer)
    }
}

impl Producer {
    pub(in crate::native) fn bound_to(mut self, bound: Option<Bound>) -> Producer {
        self.bound = bound.map(Box::new);
        self
    }

    /// Its partition is handed over: what was taken is still acknowledged. Or it is somebody else's: nothing is.
    pub(in crate::native) fn unbound(&mut self, shared: &Shared, cx: &mut Cx<'_, IngestConn>) {
        let Some(bound) = &self.bound else {
            return;
        };
        if cx.link.is_closing() {
            return;
        }
        let fleet = shared.settings.fleet.as_ref();
        let (reason, text) = match fleet.map(|fleet| fleet.at(&bound.producer)) {
            Some(At::There(place)) => (Reason::Moved, place.to_string()),
            _ => (Reason::Stopping, NOWHERE.to_owned()),
        };
        let next = self.ids.next().unwrap_or(u64::MAX);
        match bound.hold().ending() {
            Tenancy::No => {}
            Tenancy::Leaving if self.has_refused() => {}
            Tenancy::Leaving => {
                cx.link.pause();
                self.end_after(next, reason, text, cx);
            }
            Tenancy::Over => {
                self.ending = Ending::No;
                self.end(next, reason, &text, cx);
            }
        }
    }
}
