//! Refusals, and how a producer's connection ends.

use std::time::Duration;

use tidewire::{Cx, Next};
use tidewire_log::Progress;

use super::put::Put;
use super::{Ending, Producer};
use crate::native::codec::Reason;
use crate::native::local::Native;
use crate::native::reply::{CUT_SHORT, millis, refuse};

impl Producer {
    /// Refuses a message, and all behind it until it comes again.
    pub(super) fn refuse(
        &mut self,
        id: u64,
        reason: Reason,
        retry_after: Duration,
        cx: &mut Cx<'_, impl Native>,
    ) -> Put {
        self.refused = Some(id);
        refuse(cx, id, reason, millis(retry_after), reason.name());
        Put::Refused
    }

    /// Refuses the producer for good, once all taken messages are acknowledged.
    pub(super) fn end_after(
        &mut self,
        id: u64,
        reason: Reason,
        text: String,
        cx: &mut Cx<'_, impl Native>,
    ) -> Next {
        self.ending = Ending::Refused { id, reason, text };
        self.finish_if_settled(cx);
        Next::Paused
    }

    pub(super) fn has_refused(&self) -> bool {
        matches!(self.ending, Ending::Refused { .. })
    }

    /// Refuses the producer for good, after the acknowledgements that can be given now.
    pub(super) fn end(
        &mut self,
        id: u64,
        reason: Reason,
        text: &str,
        cx: &mut Cx<'_, impl Native>,
    ) {
        if let Some(id) = self.due.take() {
            self.acked = Some(id);
            self.unsent = true;
        }
        if self.unsent {
            self.write_ack(cx);
        }
        refuse(cx, id, reason, 0, text);
    }

    pub(in crate::native) fn fenced(&mut self, cx: &mut Cx<'_, impl Native>) {
        let next = self.ids.next().unwrap_or(u64::MAX);
        self.end(next, Reason::Fenced, Reason::Fenced.name(), cx);
    }

    /// The producer's token is not accepted any more.
    pub(in crate::native) fn shut_out(&mut self, cx: &mut Cx<'_, impl Native>) {
        let next = self.ids.next().unwrap_or(u64::MAX);
        let text = "the token is not accepted any more".to_owned();
        self.end_after(next, Reason::Unauthorised, text, cx);
    }

    pub(in crate::native) fn log_failed(
        &mut self,
        progress: &Progress,
        cx: &mut Cx<'_, impl Native>,
    ) {
        let text = match &progress.failure {
            Some(failure) => &failure.0,
            None => Reason::LogFailed.name(),
        };
        let unacked = self
            .acked
            .map_or(self.ids.first, |acked| acked.saturating_add(1));
        self.end(unacked, Reason::LogFailed, text, cx);
    }

    /// The client has finished sending before it was welcomed.
    pub(in crate::native) fn finishes_early(&mut self) {
        self.ending = Ending::Finished;
    }

    /// The client has finished sending, with so many bytes behind its last whole message.
    pub(in crate::native) fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, impl Native>) {
        if self.has_refused() {
            return;
        }
        // Bytes behind a refused message are dropped, whole messages or not.
        self.ending = if unread > 0 && self.refused.is_none() {
            Ending::Refused {
                id: self.ids.next().unwrap_or(u64::MAX),
                reason: Reason::Malformed,
                text: CUT_SHORT.to_owned(),
            }
        } else {
            Ending::Finished
        };
        self.finish_if_settled(cx);
    }

    pub(in crate::native) fn draining(&mut self, cx: &mut Cx<'_, impl Native>) {
        if self.has_refused() {
            return;
        }
        cx.link.pause();
        let next = self.ids.next().unwrap_or(u64::MAX);
        let text = Reason::Stopping.name().to_owned();
        self.end_after(next, Reason::Stopping, text, cx);
    }

    /// Ends the connection once everything is acknowledged.
    pub(super) fn finish_if_settled(&mut self, cx: &mut Cx<'_, impl Native>) {
        if self.owes() {
            return;
        }
        match std::mem::replace(&mut self.ending, Ending::No) {
            Ending::No => {}
            Ending::Finished => {
                if self.unsent {
                    self.write_ack(cx);
                }
                cx.link.finish();
            }
            Ending::Refused { id, reason, text } => self.end(id, reason, &text, cx),
        }
    }
}
