//! Refusals are counted each, and logged so that a flood of them does not become one of lines.

use std::time::Duration;

use crate::reactor::env::Env;
use crate::reactor::throttle::Throttle;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::peer::Peer;

/// One line for each reason a second, over all loops.
pub(crate) struct Refusals([Throttle; Refusal::KINDS]);

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals([const { Throttle::new(Duration::from_secs(1)) }; Refusal::KINDS])
    }
}

impl Env {
    /// Counts and logs that somebody is turned away.
    #[cold]
    pub(crate) fn refuse(&self, service: u16, why: Refusal, peer: &Peer) {
        self.of_service(service).refused[why.kind()].add(1);
        if let Some(held_back) = self.refusals.0[why.kind()].pass(self.now) {
            let service = self.door(service).service();
            let client = peer.original().map(tracing::field::display);
            tracing::warn!(service, peer = %peer.endpoint, client, reason = %why, held_back, "connection refused");
        }
    }
}
