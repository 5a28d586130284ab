//! How a producer's bytes are taken, and when reading stops.

use tidewire::{Cx, Input, Next};

use super::{Pause, Producer};
use crate::classic::{HEADER, Then};
use crate::native::codec::Reason;
use crate::native::counters::Count;
use crate::native::local::Native;
use crate::native::shared::Shared;

/// Batches of one connection that may be uncommitted; this bounds the memory of a loop. Reading
/// pauses at this limit as at the window.
const BATCHES_MAX: u64 = 4096;

impl Producer {
    pub(in crate::native) fn received(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Next {
        let next = self.take(input, shared, cx);
        if let Some(id) = self.due.take()
            && !cx.link.is_closing()
        {
            self.acknowledge(id, cx);
        }
        next
    }

    pub(super) fn take(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Next {
        if self.has_refused() {
            return Next::Paused;
        }
        self.pause = Pause::No;
        if let Some(id) = self.refused
            && let Some(next) = self.drop_until(id, input, cx)
        {
            return next;
        }
        let (batch, run) = self.ids.parse(&self.parser, input.bytes());
        let gone_on = match run {
            Some(run) => self.put_all(run, batch.bytes(), input, shared, cx),
            None => self.put_parts(&batch, input, shared, cx),
        };
        match gone_on {
            Ok(()) => self.proceed(batch.then(), input, cx),
            Err(next) => next,
        }
    }

    /// Drops messages until the refused one comes again; if it has not come, returns what to wait
    /// for.
    pub(super) fn drop_until(
        &mut self,
        id: u64,
        input: &mut Input<'_>,
        cx: &mut Cx<'_, impl Native>,
    ) -> Option<Next> {
        let batch = self.parser.parse(input.bytes());
        let (mut len, mut count) = (0, 0);
        for frame in batch.frames() {
            if u64::from_le_bytes(frame.id) == id {
                self.refused = None;
                break;
            }
            len += HEADER + frame.payload.len();
            count += 1;
        }
        input.consume(len);
        cx.local.tally.add(Count::dropped, count);
        self.refused?;
        Some(self.proceed(batch.then(), input, cx))
    }

    /// What the connection waits for after the messages of a batch.
    pub(super) fn proceed(
        &mut self,
        then: Then,
        input: &Input<'_>,
        cx: &mut Cx<'_, impl Native>,
    ) -> Next {
        match then {
            Then::Oversized { size } => {
                let id = input.bytes().first_chunk().copied();
                let limit = self.parser.payload_max;
                let text = format!("a payload of {size} bytes; at most {limit} are taken");
                let id = id.map_or(0, u64::from_le_bytes);
                self.end_after(id, Reason::TooLarge, text, cx)
            }
            Then::Partial { needed } => self.unless_full(Next::AtLeast(needed), cx),
            Then::Limit => self.unless_full(Next::More, cx),
        }
    }

    /// Pauses if more is unacknowledged than the window allows.
    pub(super) fn unless_full(&mut self, next: Next, cx: &mut Cx<'_, impl Native>) -> Next {
        if !self.over_window() {
            return next;
        }
        self.pause = Pause::Window;
        cx.local.tally.add(Count::paused_by_window, 1);
        Next::Paused
    }

    pub(super) fn over_window(&self) -> bool {
        let (sent, committed) = (&self.sent, &self.committed);
        sent.batches - committed.batches >= BATCHES_MAX
            || sent.messages - committed.messages > self.window_messages
            || sent.bytes - committed.bytes > self.window_bytes
    }
}
