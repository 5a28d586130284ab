//! A connection over a sink with a log: the commits it waits for, and what happens after them.

use tidewire::{Cx, Next};
use tidewire_log::Ticket;

use super::{Again, ClassicConn, LOG_FAILED, REPLIES};
use crate::classic::codec::Batch;
use crate::classic::counters::Count;
use crate::classic::later::{Ending, Owed, Pause};
use crate::classic::policy::{AckPolicy, Classic};
use crate::sink::{Accepted, Sink};

impl<S: Sink> ClassicConn<S> {
    /// How the connection goes on if the sink has not taken a batch.
    #[inline]
    pub(super) fn not_taken(&mut self, stored: Accepted, cx: &mut Cx<'_, Self>) -> Option<Again> {
        match stored {
            Accepted::Now | Accepted::Later(_) => None,
            Accepted::Fewer => Some(Again::Fewer),
            Accepted::Busy => Some(Again::Not(self.pause(Pause::Crowded, cx))),
            Accepted::Refused(why) => {
                cx.local.tally.add(Count::refused_by_log, 1);
                tracing::warn!(peer = %cx.link.peer().endpoint, "{why}: closing the connection");
                self.end(Ending::Because(why), cx);
                Some(Again::Not(Next::Paused))
            }
        }
    }

    /// A batch was taken, and is to be acknowledged when it is committed.
    pub(super) fn owe(
        &mut self,
        ticket: Ticket,
        batch: &Batch<'_>,
        replies: &[u8],
        cx: &mut Cx<'_, Self>,
    ) {
        let owed = Owed {
            ticket,
            to: cx.link.id(),
            messages: batch.messages() as u32,
            bytes: batch.bytes().len(),
            last_id: batch.last_id().unwrap_or_default(),
        };
        let later = self.later.get_or_insert_default();
        later.add(owed.bytes, replies);
        if let Some(waiting) = &mut cx.local.waiting {
            waiting.owed.push_back(owed);
        }
    }

    pub(super) fn owes(&self) -> bool {
        S::LATER && self.later.as_ref().is_some_and(|later| later.owes())
    }

    pub(super) fn is_full(&self) -> bool {
        S::LATER && self.later.as_ref().is_some_and(|later| later.is_full())
    }

    /// Stops reading until the sink has room.
    pub(super) fn pause(&mut self, why: Pause, cx: &mut Cx<'_, Self>) -> Next {
        self.later.get_or_insert_default().pause = why;
        match (why, &mut cx.local.waiting) {
            (Pause::Crowded, Some(waiting)) => {
                waiting.crowded.push(cx.link.id());
                cx.local.tally.add(Count::paused_by_log, 1);
            }
            _ => cx.local.tally.add(Count::paused_by_commits, 1),
        }
        Next::Paused
    }

    /// A batch is committed; [`progressed`](ClassicConn::progressed) follows when all are told.
    pub(super) fn committed(&mut self, owed: &Owed, cx: &mut Cx<'_, Self>) {
        let Classic { form, policy, .. } = self.shared.classic;
        if let Some(later) = &mut self.later {
            later.committed(owed.messages as usize, owed.bytes, form);
        }
        if policy != AckPolicy::EachMessage {
            self.accepted(owed.messages as usize, owed.last_id, cx);
        }
    }

    /// Batches were committed: acknowledges them according to the policy.
    pub(super) fn progressed(&mut self, cx: &mut Cx<'_, Self>) {
        // The policy is called once for all acknowledgements together.
        if let Some(later) = &mut self.later
            && std::mem::take(&mut later.fresh)
        {
            if self.shared.classic.policy != AckPolicy::EachMessage {
                self.schedule(cx);
            }
            self.go_on(cx);
        }
    }

    /// Sends what may be sent, and reads on if that made room, or ends if it was the last.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
        self.send_replies(REPLIES, cx);
        let Some(later) = &mut self.later else {
            return;
        };
        if let Some(how) = later.ending {
            if !later.owes() {
                self.end(how, cx);
            }
        } else if later.pause == Pause::Limit && !later.is_full() {
            later.pause = Pause::No;
            cx.link.resume();
        }
    }

    /// Sends replies to single messages that are committed, `most` at once, until the output is
    /// full.
    pub(super) fn send_replies(&mut self, most: usize, cx: &mut Cx<'_, Self>) {
        let Classic { form, .. } = self.shared.classic;
        let Some(later) = &mut self.later else {
            return;
        };
        loop {
            let replies = later.sendable(form, most.min(usize::MAX / form.len()));
            if replies.is_empty() || cx.link.full() && most != usize::MAX {
                return;
            }
            cx.link.write(replies);
            let len = replies.len();
            cx.local.tally.add(Count::acks, len / form.len());
            later.has_sent(len);
        }
    }

    /// Goes on: the log may have room.
    pub(super) fn room(&mut self, cx: &mut Cx<'_, Self>) {
        if let Some(later) = &mut self.later
            && later.pause == Pause::Crowded
            && later.ending.is_none()
        {
            later.pause = Pause::No;
            cx.link.resume();
        }
    }

    /// The pending messages will never be committed: none of them is acknowledged.
    pub(super) fn log_failed(&mut self, cx: &mut Cx<'_, Self>) {
        cx.local.tally.add(Count::refused_by_log, 1);
        tracing::warn!(peer = %cx.link.peer().endpoint, "{LOG_FAILED}: closing the connection");
        self.later = None;
        self.flush(cx);
        cx.link.finish_because(LOG_FAILED);
    }
}
