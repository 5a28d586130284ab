//! The server: parses what comes, hands it to the sink, acknowledges by the policy.
//!
//! Acknowledgements wait in a [`Pending`], which is a count and an id however many they are. When
//! one is written it is one write of its whole length, which reaches the kernel in one piece.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{Cx, Input, Instant, LoopHandle, Next, Peer, Protocol, Refusal, Service};

use crate::classic::ack::{Ack, Pending};
use crate::classic::codec::{Batch, HEADER, ID, Then};
use crate::classic::counters::{Count, Counters, LoopTally, Tally};
use crate::classic::policy::{AckPolicy, Classic};
use crate::sink::{Accepted, Sink};

/// The reason recorded for a connection that announced a payload above the limit.
const TOO_LARGE: &str = "payload too large";

/// Acknowledgements that a policy of one for each message writes before it asks again whether the
/// output is full.
const REPLIES: usize = 256;

/// Serves one dialect of the protocol; messages go to a [`Sink`].
///
/// Use it with [`Classic::limits`]. Wrapped in an [`Arc`] it can be added to a builder and kept, to
/// look at its counters.
pub struct ClassicService<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    classic: Classic,
    sink: S,
    tally: Tally,
}

impl<S: Sink> ClassicService<S> {
    /// Serves `classic` and gives the messages to `sink`.
    #[must_use]
    pub fn new(classic: Classic, sink: S) -> ClassicService<S> {
        ClassicService {
            shared: Arc::new(Shared {
                classic,
                sink,
                tally: Tally::default(),
            }),
        }
    }

    /// What happened so far, on all loops.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::from(&self.shared.tally)
    }

    /// Where the messages go.
    #[must_use]
    pub fn sink(&self) -> &S {
        &self.shared.sink
    }
}

impl<S> fmt::Debug for ClassicService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClassicService({:?})", self.shared.classic)
    }
}

impl<S: Sink> Service for ClassicService<S> {
    type Conn = ClassicConn<S>;

    fn on_loop(&self, _: LoopHandle<()>) -> ClassicLocal<S> {
        ClassicLocal {
            sink: self.shared.sink.on_loop(),
            tally: self.shared.tally.on_loop(),
            replies: Vec::new(),
        }
    }

    fn accept(&self, _: &Peer, _: &mut ClassicLocal<S>) -> Result<ClassicConn<S>, Refusal> {
        Ok(ClassicConn {
            shared: self.shared.clone(),
            opened: Instant::default(),
            pending: Pending::default(),
            chunks: 0,
            overdue: false,
        })
    }
}

/// What the connections of one loop share.
pub struct ClassicLocal<S: Sink> {
    sink: S::Local,
    tally: LoopTally,
    /// Where replies to single messages are put together; empty between calls.
    replies: Vec<u8>,
}

impl<S: Sink> fmt::Debug for ClassicLocal<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClassicLocal({:?})", self.tally)
    }
}

/// One connection of a [`ClassicService`].
pub struct ClassicConn<S> {
    shared: Arc<Shared<S>>,
    opened: Instant,
    pending: Pending,
    /// Chunks that `pending` is from.
    chunks: u32,
    /// `pending` would have been acknowledged if the output had not been full.
    overdue: bool,
}

impl<S> fmt::Debug for ClassicConn<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClassicConn({:?})", self.pending)
    }
}

impl<S: Sink> Protocol for ClassicConn<S> {
    type Local = ClassicLocal<S>;
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.opened = cx.link.now();
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        match self.shared.classic.policy {
            AckPolicy::EachMessage => self.reply(input, cx),
            _ => self.gather(input, cx),
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        if self.overdue {
            self.flush(cx);
        }
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        self.acknowledge(cx);
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        if unread > 0 {
            cx.local.tally.add(Count::truncated, 1);
            tracing::debug!(peer = %cx.link.peer().addr, unread, "the client stopped within a message");
        }
        self.finish(cx);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        self.finish(cx);
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        self.finish(cx);
    }
}

impl<S: Sink> ClassicConn<S> {
    /// Answers each message; stops where the output is full.
    fn reply(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let Classic { form, .. } = self.shared.classic;
        let parser = self.shared.classic.parser();
        loop {
            if input.len() < HEADER {
                return Next::AtLeast(HEADER);
            }
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let mut replies = std::mem::take(&mut cx.local.replies);
            let batch = parser.parse_with(input.bytes(), REPLIES, |frame| {
                let mut id = [0; ID];
                id.copy_from_slice(&frame[..ID]);
                Ack { id, skipped: 0 }.encode(form, |bytes| replies.extend_from_slice(bytes));
            });
            if batch.messages() > 0 {
                match self.store(&batch, cx) {
                    Accepted::Now => cx.link.write(&replies),
                }
                cx.local.tally.add(Count::acks, batch.messages());
            }
            replies.clear();
            cx.local.replies = replies;
            input.consume(batch.bytes().len());
            if batch.then() != Then::Limit {
                return self.proceed(batch.then(), cx);
            }
        }
    }

    /// Takes all there is; acknowledges it together, now or later.
    fn gather(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let batch = self.shared.classic.parser().parse(input.bytes());
        input.consume(batch.bytes().len());
        if let Some(last_id) = batch.last_id() {
            match self.store(&batch, cx) {
                Accepted::Now => {
                    if let Some(ack) = self.pending.add(batch.messages(), last_id) {
                        self.write(ack, cx);
                    }
                    self.schedule(cx);
                }
            }
        }
        self.proceed(batch.then(), cx)
    }

    fn store(&self, batch: &Batch<'_>, cx: &mut Cx<'_, Self>) -> Accepted {
        cx.local.tally.add(Count::messages, batch.messages());
        cx.local
            .tally
            .add(Count::payload_bytes, batch.payload_bytes());
        self.shared.sink.append(batch, &mut cx.local.sink)
    }

    /// What to wait for after the messages of a batch.
    fn proceed(&mut self, then: Then, cx: &mut Cx<'_, Self>) -> Next {
        match then {
            Then::Partial { needed } => Next::AtLeast(needed),
            Then::Limit => Next::More,
            Then::Oversized { size } => {
                cx.local.tally.add(Count::oversized, 1);
                tracing::warn!(
                    peer = %cx.link.peer().addr, size, limit = self.shared.classic.payload_max,
                    "{TOO_LARGE}: closing the connection; raise the limit if such messages are meant to be",
                );
                self.flush(cx);
                cx.link.finish_because(TOO_LARGE);
                Next::More
            }
        }
    }

    /// A chunk has added to what is pending: acknowledges it, or sees to it that it will be.
    fn schedule(&mut self, cx: &mut Cx<'_, Self>) {
        match self.shared.classic.policy {
            AckPolicy::EachMessage | AckPolicy::EachChunk => self.acknowledge(cx),
            AckPolicy::EveryChunks { n, or_idle } => {
                self.chunks = self.chunks.saturating_add(1);
                if self.chunks >= n {
                    self.acknowledge(cx);
                } else {
                    cx.link.set_timer_after(or_idle);
                }
            }
            AckPolicy::Every { interval } => {
                if cx.link.timer().is_none() {
                    cx.link
                        .set_timer(next_tick(self.opened, cx.link.now(), interval));
                }
            }
        }
    }

    /// Acknowledges what is pending unless the output is full; then it goes with what follows.
    fn acknowledge(&mut self, cx: &mut Cx<'_, Self>) {
        if cx.link.full() {
            self.overdue = true;
        } else {
            self.flush(cx);
        }
    }

    /// Acknowledges what is pending.
    fn flush(&mut self, cx: &mut Cx<'_, Self>) {
        self.overdue = false;
        self.chunks = 0;
        cx.link.clear_timer();
        if let Some(ack) = self.pending.take() {
            self.write(ack, cx);
        }
    }

    fn write(&self, ack: Ack, cx: &mut Cx<'_, Self>) {
        ack.encode(self.shared.classic.form, |bytes| cx.link.write(bytes));
        cx.local.tally.add(Count::acks, 1);
    }

    fn finish(&mut self, cx: &mut Cx<'_, Self>) {
        self.flush(cx);
        cx.link.finish();
    }
}

/// The first tick after `now` of a clock that has ticked every `interval` since `start`.
fn next_tick(start: Instant, now: Instant, interval: Duration) -> Instant {
    let interval = interval.max(Duration::from_micros(1));
    let ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    let ticks = (now.as_nanos() - start.as_nanos()) / ns + 1;
    Instant::from_nanos(start.as_nanos().saturating_add(ticks.saturating_mul(ns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_keep_to_the_clock_of_the_connection() {
        let at = Instant::from_nanos;
        let ms = Duration::from_millis;
        let start = at(1_000);
        for (now, tick) in [
            (1_000, 5_001_000),
            (5_000_999, 5_001_000),
            (5_001_000, 10_001_000),
        ] {
            assert_eq!(next_tick(start, at(now), ms(5)), at(tick));
        }
        assert_eq!(next_tick(start, at(1_500), Duration::ZERO), at(2_000));
        assert_eq!(next_tick(start, at(1_500), Duration::MAX), at(u64::MAX));
    }
}
