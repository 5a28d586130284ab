//! A producer whose partition goes to another server.

use tidewire::Cx;
use tidewire_replicate::Ending as Tenancy;

use super::{Bound, Ending, Producer};
use crate::native::codec::Reason;
use crate::native::fleet::At;
use crate::native::local::Native;
use crate::native::reply::NOWHERE;
use crate::native::shared::Shared;

impl Producer {
    pub(in crate::native) fn bound_to(mut self, bound: Option<Bound>) -> Producer {
        self.bound = bound.map(Box::new);
        self
    }

    /// The producer's partition leaves this server. If it is handed over, messages that were taken
    /// are still acknowledged. If it belongs to another server already, no more messages are
    /// acknowledged.
    pub(in crate::native) fn unbound(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        let Some(bound) = &self.bound else {
            return;
        };
        if cx.link.is_closing() {
            return;
        }
        let fleet = shared.settings.fleet.as_ref();
        let (reason, text) = match fleet.map(|fleet| fleet.at(bound.producer())) {
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
