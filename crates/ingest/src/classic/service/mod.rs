//! The server: parses what comes, hands it to the sink, acknowledges by the policy.
//!
//! Waiting acknowledgements are a [`Pending`]: a count and an id, whatever their number. An
//! acknowledgement is written with one write of its whole length, so it reaches the kernel in one
//! piece.
//!
//! A sink may promise a batch for later. The policy is then told of the batch when it is committed:
//! see [`later`](super::later). Sinks that never do that cost nothing for it.

mod slow;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{
    Alarm, Conns, Cx, Input, Instant, LoopHandle, Next, Peer, Protocol, Refusal, Service,
};
use tidewire_log::Watch;

use crate::alarm;
use crate::classic::ack::{Ack, Pending};
use crate::classic::codec::{Batch, HEADER, ID, Then};
use crate::classic::counters::{Count, Counters, LoopTally, Tally};
use crate::classic::later::{Ending, Later, Owed, Pause, Waiting};
use crate::classic::policy::{AckPolicy, Classic};
use crate::sink::{Accepted, Sink};

/// The reason recorded for a connection that announced a payload above the limit.
const TOO_LARGE: &str = "payload too large";
/// The reason that is recorded for a connection whose acknowledgements are lost because the log has
/// failed.
const LOG_FAILED: &str = "the log has failed";

/// Acknowledgements that a policy of one for each message writes before it asks again whether the
/// output is full.
const REPLIES: usize = 256;

/// Serves one dialect of the protocol; messages go to a [`Sink`].
///
/// Serve it with the limits of [`Classic::limits`]. Wrapped in an [`Arc`] it can be added to a
/// builder and kept, to look at its counters.
pub struct ClassicService<S> {
    shared: Arc<Shared<S>>,
}

struct Shared<S> {
    classic: Classic,
    sink: S,
    tally: Tally,
    /// The alarm of a sink with a log; the field keeps the alarm alive.
    alarm: Option<(Arc<Alarm<()>>, Watch)>,
}

impl<S: Sink> ClassicService<S> {
    /// Serves `classic` and gives the messages to `sink`.
    #[must_use]
    pub fn new(classic: Classic, sink: S) -> ClassicService<S> {
        ClassicService {
            shared: Arc::new(Shared {
                classic,
                alarm: sink.log().map(|log| alarm::of(&**log)),
                sink,
                tally: Tally::default(),
            }),
        }
    }

    /// The counters of all loops, at this moment.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::from(&self.shared.tally)
    }

    /// The sink to which the messages go.
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

    fn on_loop(&self, at: LoopHandle<()>) -> ClassicLocal<S> {
        let alarm = self.shared.alarm.as_ref();
        ClassicLocal {
            sink: self.shared.sink.on_loop(),
            tally: self.shared.tally.on_loop(),
            replies: Vec::new(),
            waiting: alarm.map(|(alarm, _)| Waiting::new(alarm.bell(at))),
        }
    }

    fn accept(&self, from: &Peer, _: &mut ClassicLocal<S>) -> Result<ClassicConn<S>, Refusal> {
        if self.shared.classic.protected && !from.is_trusted() {
            return Err(Refusal::Protected);
        }
        Ok(ClassicConn {
            shared: self.shared.clone(),
            opened: Instant::default(),
            pending: Pending::default(),
            chunks: 0,
            overdue: false,
            later: None,
        })
    }

    fn woken(&self, local: &mut ClassicLocal<S>, all: &mut Conns<'_, ClassicConn<S>>) {
        let Some((waiting, log)) = local.waiting.as_mut().zip(self.shared.sink.log()) else {
            return;
        };
        if waiting.owed.is_empty() && waiting.crowded.is_empty() {
            return;
        }
        // The bell is armed first, and then the log is looked at: a commit in between is not
        // missed.
        waiting.bell.arm();
        let progress = log.progress();
        let n = waiting
            .owed
            .partition_point(|o| o.ticket <= progress.committed);
        let committed: Vec<Owed> = waiting.owed.drain(..n).collect();
        let crowded = std::mem::take(&mut waiting.crowded);
        let lost = match &progress.failure {
            Some(_) => std::mem::take(&mut waiting.owed),
            None => Default::default(),
        };
        for owed in &committed {
            all.with(owed.to, local, |conn, cx| conn.committed(owed, cx));
        }
        for owed in &committed {
            all.with(owed.to, local, |conn, cx| conn.progressed(cx));
        }
        for owed in lost {
            all.with(owed.to, local, |conn, cx| conn.log_failed(cx));
        }
        for id in crowded {
            all.with(id, local, |conn, cx| conn.room(cx));
        }
    }
}

/// The state that all connections of one loop share.
pub struct ClassicLocal<S: Sink> {
    sink: S::Local,
    tally: LoopTally,
    /// Where replies to single messages are put together; empty between calls.
    replies: Vec<u8>,
    /// Waits of the connections, for sinks with a log.
    waiting: Option<Waiting>,
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
    /// The batches that wait for the log; `None` until the first batch waits.
    later: Option<Box<Later>>,
}

/// Whether to try a batch again that the log did not take.
enum Again {
    /// Try again with fewer messages.
    Fewer,
    /// The batch is not to be tried again now.
    Not(Next),
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
        if S::LATER {
            self.go_on(cx);
        }
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        self.acknowledge(cx);
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        if unread > 0 {
            cx.local.tally.add(Count::truncated, 1);
            tracing::debug!(peer = %cx.link.peer().endpoint, unread, "the client stopped within a message");
        }
        self.finish(cx);
    }

    /// Complete messages are stored and acknowledged, even if the bytes behind them are not
    /// complete.
    fn cut_short(&mut self, unread: usize, _: &'static str, cx: &mut Cx<'_, Self>) {
        self.peer_finished(unread, cx);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        // While the connection waits for a commit, the client is not idle.
        if !self.owes() {
            self.finish(cx);
        }
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
        let mut most = REPLIES;
        loop {
            if input.len() < HEADER {
                return Next::AtLeast(HEADER);
            }
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let mut replies = std::mem::take(&mut cx.local.replies);
            let batch = parser.parse_with(input.bytes(), most, |frame| {
                let mut id = [0; ID];
                id.copy_from_slice(&frame[..ID]);
                Ack { id, skipped: 0 }.encode(form, |bytes| replies.extend_from_slice(bytes));
            });
            let stored = if batch.messages() > 0 {
                self.store(&batch, cx)
            } else {
                Accepted::Now
            };
            match stored {
                Accepted::Now => {
                    cx.link.write(&replies);
                    cx.local.tally.add(Count::acks, batch.messages());
                }
                Accepted::Later(ticket) => self.owe(ticket, &batch, &replies, cx),
                Accepted::Busy | Accepted::Fewer | Accepted::Refused(_) => {}
            }
            replies.clear();
            cx.local.replies = replies;
            match self.not_taken(stored, cx) {
                Some(Again::Fewer) => most = (batch.messages() / 2).max(1),
                Some(Again::Not(next)) => return next,
                None => {
                    input.consume(batch.bytes().len());
                    if let Some(next) = self.proceed(batch.then(), cx) {
                        return next;
                    }
                }
            }
        }
    }

    /// Takes all there is; acknowledges it together, now or later.
    fn gather(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let mut most = usize::MAX;
        loop {
            let parser = self.shared.classic.parser();
            let batch = parser.parse_with(input.bytes(), most, |_| {});
            if let Some(last_id) = batch.last_id() {
                let stored = self.store(&batch, cx);
                match stored {
                    Accepted::Now => self.accepted(batch.messages(), last_id, cx),
                    Accepted::Later(ticket) => self.owe(ticket, &batch, &[], cx),
                    Accepted::Busy | Accepted::Fewer | Accepted::Refused(_) => {}
                }
                match self.not_taken(stored, cx) {
                    Some(Again::Fewer) => {
                        most = (batch.messages() / 2).max(1);
                        continue;
                    }
                    Some(Again::Not(next)) => return next,
                    None => {}
                }
                if stored == Accepted::Now {
                    self.schedule(cx);
                }
            }
            input.consume(batch.bytes().len());
            if let Some(next) = self.proceed(batch.then(), cx) {
                return next;
            }
        }
    }

    fn store(&self, batch: &Batch<'_>, cx: &mut Cx<'_, Self>) -> Accepted {
        if S::LATER
            && let Some(waiting) = &cx.local.waiting
        {
            waiting.bell.arm();
        }
        let link = &cx.link;
        let sink = &self.shared.sink;
        let stored = sink.append(batch, &mut cx.local.sink, || link.wall());
        if matches!(stored, Accepted::Now | Accepted::Later(_)) {
            cx.local.tally.add(Count::messages, batch.messages());
            cx.local
                .tally
                .add(Count::payload_bytes, batch.payload_bytes());
        }
        stored
    }

    /// Messages may be acknowledged from now on.
    fn accepted(&mut self, messages: usize, last_id: [u8; 8], cx: &mut Cx<'_, Self>) {
        if let Some(ack) = self.pending.add(messages, last_id) {
            self.write(ack, cx);
        }
    }

    /// What the connection waits for after the messages of a batch; `None` if the input may have
    /// more messages.
    fn proceed(&mut self, then: Then, cx: &mut Cx<'_, Self>) -> Option<Next> {
        if self.is_full() {
            return Some(self.pause(Pause::Limit, cx));
        }
        match then {
            Then::Partial { needed } => Some(Next::AtLeast(needed)),
            Then::Limit => None,
            Then::Oversized { size } => {
                cx.local.tally.add(Count::oversized, 1);
                tracing::warn!(
                    peer = %cx.link.peer().endpoint, size, limit = self.shared.classic.payload_max,
                    "{TOO_LARGE}: closing the connection; raise the limit if such messages are expected",
                );
                self.end(Ending::Because(TOO_LARGE), cx);
                Some(Next::Paused)
            }
        }
    }

    /// A chunk has added pending messages: acknowledges them now, or sets a timer to acknowledge
    /// them later.
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

    /// Acknowledges pending messages, unless the output is full; then a later acknowledgement
    /// covers them.
    fn acknowledge(&mut self, cx: &mut Cx<'_, Self>) {
        if cx.link.full() {
            self.overdue = true;
        } else {
            self.flush(cx);
        }
    }

    /// Acknowledges the messages whose acknowledgement is pending.
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
        self.end(Ending::Finish, cx);
    }

    /// Ends the connection, once its pending messages are committed and acknowledged.
    fn end(&mut self, how: Ending, cx: &mut Cx<'_, Self>) {
        if S::LATER && self.owes() {
            if let Some(later) = &mut self.later {
                later.ending.get_or_insert(how);
            }
            cx.link.pause();
            return;
        }
        self.send_replies(usize::MAX, cx);
        self.flush(cx);
        match how {
            Ending::Finish => cx.link.finish(),
            Ending::Because(why) => cx.link.finish_because(why),
        }
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
