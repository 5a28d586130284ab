//! Acknowledgements to a producer, and when they are sent.

use tidewire::Cx;
use tidewire_log::Progress;

use super::{Pause, Producer};
use crate::native::codec::{Level, ServerFrame};
use crate::native::counters::Count;
use crate::native::local::Native;
use crate::native::local::Owed;
use crate::native::reply::send;
use crate::native::shared::Shared;

/// Why a producer waits that is not told more exactly.
const QUEUE_FULL: &str =
    "the queue of the server's log is full: the disk is slower than the producers";
const REPLICATING: &str =
    "the messages are durable on the server, and on their way to the home of its log";
const COMMITTING: &str = "the server's log has not synced the messages yet";

impl Producer {
    /// A batch is committed, and all batches before it.
    pub(in crate::native) fn committed(&mut self, owed: &Owed, cx: &mut Cx<'_, impl Native>) {
        if owed.sent.batches <= self.committed.batches {
            return;
        }
        self.committed = owed.sent;
        self.acknowledge(owed.id, cx);
        if self.pause == Pause::Window && !self.has_refused() && !self.over_window() {
            self.pause = Pause::No;
            cx.link.resume();
        }
        self.finish_if_settled(cx);
    }

    pub(super) fn acknowledge(&mut self, id: u64, cx: &mut Cx<'_, impl Native>) {
        self.acked = Some(id);
        if cx.link.full() {
            self.unsent = true;
        } else {
            self.write_ack(cx);
        }
    }

    pub(super) fn write_ack(&mut self, cx: &mut Cx<'_, impl Native>) {
        self.unsent = false;
        if let Some(id) = self.acked {
            self.told_at = cx.link.now();
            cx.local.tally.add(Count::acks, 1);
            let frame = ServerFrame::Ack {
                id,
                keep_alive: false,
                why: "",
            };
            send(cx, &frame);
        }
    }

    pub(in crate::native) fn writable(&mut self, cx: &mut Cx<'_, impl Native>) {
        if self.unsent {
            self.write_ack(cx);
        }
    }

    /// Whether an acknowledgement waits for a commit.
    pub(super) fn owes(&self) -> bool {
        self.sent.batches > self.committed.batches
    }

    /// From now on, an acknowledgement waits for the log.
    pub(super) fn wait_from_now(&mut self, cx: &mut Cx<'_, impl Native>) {
        if !self.owes() && self.pause != Pause::Crowded {
            self.told_at = cx.link.now();
        }
        if cx.link.timer().is_none() {
            cx.link.set_timer(self.told_at + self.keepalive);
        }
    }

    /// Sends a keep-alive if no frame was sent for long while an acknowledgement waits.
    pub(in crate::native) fn expired(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        if !self.owes() && self.pause != Pause::Crowded {
            return;
        }
        if cx.link.now() >= self.told_at + self.keepalive {
            self.told_at = cx.link.now();
            if !cx.link.full() {
                let id = self.acked.unwrap_or(self.ids.first.wrapping_sub(1));
                cx.local.tally.add(Count::keepalives, 1);
                let Progress { blocked, away, .. } = shared.log.progress();
                let is_for_home = self.level == Level::Replicated || self.pause == Pause::Crowded;
                let why = match (&blocked, &away, self.pause) {
                    (Some(why), ..) => &*why.0,
                    (None, Some(why), _) if is_for_home => &*why.0,
                    (None, _, Pause::Crowded) => QUEUE_FULL,
                    (None, ..) if self.level == Level::Replicated => REPLICATING,
                    (None, ..) => COMMITTING,
                };
                let frame = ServerFrame::Ack {
                    id,
                    keep_alive: true,
                    why,
                };
                send(cx, &frame);
            }
        }
        cx.link.set_timer(self.told_at + self.keepalive);
    }

    /// Goes on: the log's queue may have room.
    pub(in crate::native) fn room(&mut self, cx: &mut Cx<'_, impl Native>) {
        if self.pause == Pause::Crowded && !self.has_refused() {
            cx.link.resume();
        }
    }
}
