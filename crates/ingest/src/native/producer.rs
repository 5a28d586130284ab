//! A producer's connection: messages in, acknowledgements out.
//!
//! A chunk becomes one batch of the log where it can, and that is one look at the session, one call
//! of the log and one entry in the loop's queue of what is owed, however many messages it has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidewire::{Cx, Input, Instant, Next};
use tidewire_log::{Log, Policy, ProducerId, Progress, Refused, StreamId, Ticket};

use super::codec::{self, Level, Produce, Reason, ServerFrame, Welcome};
use super::conn::{IngestConn, reason_of, refuse, send};
use super::counters::Count;
use super::ids::{Ids, Part, Run, first_of};
use super::quota::Meter;
use super::service::{Owed, Shared};
use super::session::Session;
use crate::classic::{Batch, HEADER, Parser, Then};

/// Batches that one connection may have uncommitted; bounds what a loop keeps of them. Reading
/// pauses there as at the window.
const BATCHES_MAX: u64 = 4096;

/// What a connection has appended, or has had committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sent {
    batches: u64,
    messages: u64,
    bytes: u64,
}

/// A producer's connection.
pub(super) struct Producer {
    stream: StreamId,
    id: ProducerId,
    /// `None` for anonymous messages.
    session: Option<Arc<Session>>,
    level: Level,
    parser: Parser,
    ids: Ids,
    /// The gap before its first id is to be adopted.
    adopt: bool,
    window_messages: u64,
    window_bytes: u64,
    keepalive: Duration,
    meter: Option<Box<Meter>>,
    sent: Sent,
    committed: Sent,
    /// The highest id acknowledged on this connection.
    acked: Option<u64>,
    /// To be acknowledged at the end of this call.
    due: Option<u64>,
    /// `acked` could not be sent because the output was full.
    unsent: bool,
    /// When it was last told something, or began to wait for it.
    told_at: Instant,
    /// Everything is dropped until this id comes again.
    refused: Option<u64>,
    pause: Pause,
    ending: Ending,
}

/// Why nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    No,
    /// The queue of the log is full.
    Crowded,
    /// More is unacknowledged than the window allows.
    Window,
}

/// What is to happen once all is acknowledged.
enum Ending {
    No,
    /// The client has finished sending: so does this side.
    Finished,
    /// Nothing more is taken: this is said.
    Refused {
        id: u64,
        reason: Reason,
        text: String,
    },
}

/// What became of a batch.
enum Put {
    Taken,
    /// There is no room for it now.
    Crowded,
    /// It was refused, and all that follows it is to be dropped.
    Refused,
    /// It does not fit a batch of the log: fewer at once.
    Halve,
    /// The connection ends.
    Over(Next),
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}, {:?}", self.id, self.level, self.ids)
    }
}

impl Producer {
    /// Begins a session. It is welcomed when it is [settled](Producer::settle).
    pub(super) fn begin(
        shared: &Shared,
        stream: &str,
        hello: &Produce<'_>,
        cx: &Cx<'_, IngestConn>,
    ) -> Result<Producer, Refused> {
        let log = &shared.log;
        let stream = log.stream(stream)?;
        let (id, session) = if hello.producer.is_empty() {
            (ProducerId::ANONYMOUS, None)
        } else {
            let id = log.producer(stream, hello.producer)?;
            (id, Some(shared.sessions.begin(id, cx.handle())))
        };
        let settings = &shared.settings;
        let at_most = |wanted: u64, most: u64| if wanted == 0 { most } else { wanted.min(most) };
        Ok(Producer {
            stream,
            id,
            session,
            level: match log.policy() {
                Policy::Os => Level::Received,
                Policy::Sync | Policy::Interval(_) => hello.level,
            },
            parser: codec::parser(shared.payload_max),
            ids: Ids {
                mark: None,
                first: hello.first_id,
                sparse: hello.sparse,
            },
            adopt: hello.adopt,
            window_messages: at_most(
                hello.window_messages.into(),
                settings.window_messages.max(1).into(),
            ),
            window_bytes: at_most(hello.window_bytes, settings.window_bytes.max(1)),
            keepalive: settings.keepalive.max(Duration::from_millis(1)),
            meter: settings.quota.meter(),
            sent: Sent::default(),
            committed: Sent::default(),
            acked: None,
            due: None,
            unsent: false,
            told_at: Instant::default(),
            refused: None,
            pause: Pause::No,
            ending: Ending::No,
        })
    }

    /// Welcomes it, if all that was handed over for this producer before is committed. If that will
    /// never be, it is refused. False: it has to wait, or has been refused.
    pub(super) fn settle(
        &mut self,
        progress: &Progress,
        shared: &Shared,
        cx: &mut Cx<'_, IngestConn>,
    ) -> bool {
        let mark = if self.session.is_some() {
            shared.log.mark(self.id)
        } else {
            tidewire_log::Mark::default()
        };
        if let Some(failure) = &progress.failure {
            refuse(cx, 0, Reason::LogFailed, 0, &failure.0);
            return false;
        }
        if mark.ticket > progress.committed {
            cx.link.pause();
            return false;
        }
        self.ids.mark = mark.appended;
        cx.local.tally.add(Count::producers, 1);
        send(
            cx,
            &ServerFrame::Welcome(Welcome {
                level: self.level,
                payload_max: shared.payload_max,
                window_messages: u32::try_from(self.window_messages).unwrap_or(u32::MAX),
                keepalive_ms: millis(self.keepalive),
                window_bytes: self.window_bytes,
                last_id: mark.appended,
            }),
        );
        self.adopt_gap(cx);
        cx.link.resume();
        true
    }

    /// At level received, what lies between the mark and the first id was lost in a crash.
    fn adopt_gap(&mut self, cx: &mut Cx<'_, IngestConn>) {
        if let Some(next) = self.ids.next().filter(|_| self.adopt)
            && let Some(gap) = self.ids.first.checked_sub(next).filter(|&gap| gap > 0)
        {
            tracing::warn!(
                peer = %cx.link.peer().addr, producer = self.id.0, next, gap,
                "messages acknowledged as received were lost: going on behind them",
            );
            cx.local.tally.add(Count::adopted, 1);
            let gap = usize::try_from(gap).unwrap_or(usize::MAX);
            cx.local.tally.add(Count::adopted_ids, gap);
            self.ids.mark = Some(self.ids.first - 1);
        }
    }

    // ---- Messages ----

    pub(super) fn received(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, IngestConn>,
    ) -> Next {
        let next = self.take(input, shared, cx);
        if let Some(id) = self.due.take()
            && !cx.link.is_closing()
        {
            self.acknowledge(id, cx);
        }
        next
    }

    fn take(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, IngestConn>,
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

    /// Drops messages until the one that was refused comes again; if it does not, what to wait for.
    fn drop_until(
        &mut self,
        id: u64,
        input: &mut Input<'_>,
        cx: &mut Cx<'_, IngestConn>,
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

    /// What to wait for after the messages of a batch.
    fn proceed(&mut self, then: Then, input: &Input<'_>, cx: &mut Cx<'_, IngestConn>) -> Next {
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
    fn unless_full(&mut self, next: Next, cx: &mut Cx<'_, IngestConn>) -> Next {
        if !self.over_window() {
            return next;
        }
        self.pause = Pause::Window;
        cx.local.tally.add(Count::paused_by_window, 1);
        Next::Paused
    }

    fn over_window(&self) -> bool {
        let (sent, committed) = (&self.sent, &self.committed);
        sent.batches - committed.batches >= BATCHES_MAX
            || sent.messages - committed.messages > self.window_messages
            || sent.bytes - committed.bytes > self.window_bytes
    }

    /// Hands over a batch in which something is not new.
    fn put_parts(
        &mut self,
        batch: &Batch<'_>,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, IngestConn>,
    ) -> Result<(), Next> {
        let mut rest = batch.bytes();
        while !rest.is_empty() {
            match self.ids.part(rest) {
                Part::New(run) => {
                    let (part, behind) = rest.split_at(run.len);
                    self.put_all(run, part, input, shared, cx)?;
                    if self.refused.is_some() {
                        input.consume(behind.len());
                        return Ok(());
                    }
                    rest = behind;
                }
                Part::Duplicates(run) => {
                    cx.local.tally.add(Count::duplicates, run.count);
                    // What is not yet committed of them is acknowledged with its batch.
                    if self.level == Level::Received || !self.owes() {
                        self.due = self.due.max(Some(run.last)).max(self.acked);
                    }
                    input.consume(run.len);
                    rest = &rest[run.len..];
                }
                Part::Unexpected => {
                    let next = self.ids.next().unwrap_or(u64::MAX);
                    let text = format!("{} came where {next} was next", first_of(rest, 1).1);
                    return Err(self.end_after(next, Reason::OutOfOrder, text, cx));
                }
            }
        }
        Ok(())
    }

    /// Hands over new messages, `bytes`, and consumes them.
    fn put_all(
        &mut self,
        run: Run,
        bytes: &[u8],
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, IngestConn>,
    ) -> Result<(), Next> {
        let (mut rest, mut left, mut first) = (bytes, run.count, run.first);
        let mut now = Run { ..run };
        while left > 0 {
            match self.put(&now, rest, shared, cx) {
                Put::Taken => {
                    input.consume(now.len);
                    rest = &rest[now.len..];
                    left -= now.count;
                    first = now.last.wrapping_add(1);
                    now = Run {
                        len: rest.len(),
                        count: left,
                        first,
                        last: run.last,
                    };
                }
                Put::Halve => {
                    let count = now.count / 2;
                    let (len, last) = first_of(rest, count);
                    now = Run {
                        len,
                        count,
                        first,
                        last,
                    };
                }
                Put::Crowded => return Err(Next::Paused),
                Put::Refused => {
                    cx.local.tally.add(Count::dropped, left);
                    input.consume(rest.len());
                    return Ok(());
                }
                Put::Over(next) => return Err(next),
            }
        }
        Ok(())
    }

    /// Hands over the messages of `run`, with which `bytes` begin.
    fn put(
        &mut self,
        run: &Run,
        bytes: &[u8],
        shared: &Shared,
        cx: &mut Cx<'_, IngestConn>,
    ) -> Put {
        let now = cx.link.now();
        if let Some(wait) = self.meter.as_ref().and_then(|meter| meter.wait(now)) {
            return self.refuse(run.first, Reason::OverQuota, wait, cx);
        }
        let batch = tidewire_log::Run {
            stream: self.stream,
            producer: self.id,
            frames: &bytes[..run.len],
            count: run.count as u32,
            last_id: run.last,
            timestamp_us: u64::try_from(cx.link.wall().as_micros()).unwrap_or(u64::MAX),
        };
        let durable = self.level == Level::Durable;
        if durable {
            cx.local.bell.arm();
        }
        let mut appended = self.append(batch, &*shared.log);
        if appended == Some(Err(Refused::Busy)) && !durable {
            // Once more, because there may be room since, and nobody has been told to ring for it.
            cx.local.bell.arm();
            appended = self.append(batch, &*shared.log);
        }
        match appended {
            Some(Ok(ticket)) => {
                self.taken(run, ticket, cx);
                Put::Taken
            }
            Some(Err(Refused::Busy)) => {
                self.crowded(cx);
                Put::Crowded
            }
            Some(Err(Refused::DiskFull { retry_after })) => {
                self.refuse(run.first, Reason::DiskFull, retry_after, cx)
            }
            Some(Err(Refused::TooLarge)) if run.count > 1 => Put::Halve,
            Some(Err(refused @ (Refused::TooLarge | Refused::TooMany))) => {
                let text = refused.to_string();
                Put::Over(self.end_after(run.first, reason_of(refused), text, cx))
            }
            Some(Err(Refused::Failed)) => {
                self.log_failed(&shared.log.progress(), cx);
                Put::Over(Next::More)
            }
            None => {
                self.fenced(cx);
                Put::Over(Next::More)
            }
        }
    }

    #[inline]
    fn append(
        &self,
        batch: tidewire_log::Run<'_>,
        log: &dyn Log,
    ) -> Option<Result<Ticket, Refused>> {
        match &self.session {
            Some(session) => session.unless_fenced(|| log.append(batch)),
            None => Some(log.append(batch)),
        }
    }

    /// The log has taken a batch.
    fn taken(&mut self, run: &Run, ticket: Ticket, cx: &mut Cx<'_, IngestConn>) {
        let tally = &mut cx.local.tally;
        tally.add(Count::batches, 1);
        tally.add(Count::messages, run.count);
        tally.add(Count::payload_bytes, run.len - run.count * HEADER);
        if let Some(meter) = &mut self.meter {
            meter.take(run.count as u64, run.len as u64, cx.link.now());
        }
        self.ids.mark = Some(run.last);
        if self.level == Level::Received {
            self.due = Some(run.last);
            return;
        }
        self.wait_from_now(cx);
        self.sent.batches += 1;
        self.sent.messages += run.count as u64;
        self.sent.bytes += run.len as u64;
        cx.local.owed.push_back(Owed {
            ticket,
            to: cx.link.id(),
            id: run.last,
            sent: self.sent,
        });
    }

    /// The log has no room: reading pauses until it has.
    fn crowded(&mut self, cx: &mut Cx<'_, IngestConn>) {
        self.wait_from_now(cx);
        self.pause = Pause::Crowded;
        cx.local.tally.add(Count::paused_by_log, 1);
        cx.local.crowded.push(cx.link.id());
    }

    // ---- Acknowledgements ----

    /// A batch is committed, and all before it.
    pub(super) fn committed(&mut self, owed: &Owed, cx: &mut Cx<'_, IngestConn>) {
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

    fn acknowledge(&mut self, id: u64, cx: &mut Cx<'_, IngestConn>) {
        self.acked = Some(id);
        if cx.link.full() {
            self.unsent = true;
        } else {
            self.write_ack(cx);
        }
    }

    fn write_ack(&mut self, cx: &mut Cx<'_, IngestConn>) {
        self.unsent = false;
        if let Some(id) = self.acked {
            self.told_at = cx.link.now();
            cx.local.tally.add(Count::acks, 1);
            let keep_alive = false;
            send(cx, &ServerFrame::Ack { id, keep_alive });
        }
    }

    pub(super) fn writable(&mut self, cx: &mut Cx<'_, IngestConn>) {
        if self.unsent {
            self.write_ack(cx);
        }
    }

    /// Whether an acknowledgement waits for a commit.
    fn owes(&self) -> bool {
        self.sent.batches > self.committed.batches
    }

    /// From now on, something waits for the log.
    fn wait_from_now(&mut self, cx: &mut Cx<'_, IngestConn>) {
        if !self.owes() && self.pause != Pause::Crowded {
            self.told_at = cx.link.now();
        }
        if cx.link.timer().is_none() {
            cx.link.set_timer(self.told_at + self.keepalive);
        }
    }

    /// Repeats itself if nothing was said for long while something waits.
    pub(super) fn expired(&mut self, cx: &mut Cx<'_, IngestConn>) {
        if !self.owes() && self.pause != Pause::Crowded {
            return;
        }
        if cx.link.now() >= self.told_at + self.keepalive {
            self.told_at = cx.link.now();
            if !cx.link.full() {
                let id = self.acked.unwrap_or(self.ids.first.wrapping_sub(1));
                cx.local.tally.add(Count::keepalives, 1);
                let keep_alive = true;
                send(cx, &ServerFrame::Ack { id, keep_alive });
            }
        }
        cx.link.set_timer(self.told_at + self.keepalive);
    }

    /// There may be room in the queue of the log.
    pub(super) fn room(&mut self, cx: &mut Cx<'_, IngestConn>) {
        if self.pause == Pause::Crowded && !self.has_refused() {
            cx.link.resume();
        }
    }

    // ---- Refusals and the end ----

    /// Refuses a message, and all behind it until it comes again.
    fn refuse(
        &mut self,
        id: u64,
        reason: Reason,
        retry_after: Duration,
        cx: &mut Cx<'_, IngestConn>,
    ) -> Put {
        self.refused = Some(id);
        refuse(cx, id, reason, millis(retry_after), reason.name());
        Put::Refused
    }

    /// Refuses for good, once all that was taken is acknowledged.
    fn end_after(
        &mut self,
        id: u64,
        reason: Reason,
        text: String,
        cx: &mut Cx<'_, IngestConn>,
    ) -> Next {
        self.ending = Ending::Refused { id, reason, text };
        self.finish_if_settled(cx);
        Next::Paused
    }

    fn has_refused(&self) -> bool {
        matches!(self.ending, Ending::Refused { .. })
    }

    /// Refuses for good, now, with what can be acknowledged.
    fn end(&mut self, id: u64, reason: Reason, text: &str, cx: &mut Cx<'_, IngestConn>) {
        if let Some(id) = self.due.take() {
            self.acked = Some(id);
            self.unsent = true;
        }
        if self.unsent {
            self.write_ack(cx);
        }
        refuse(cx, id, reason, 0, text);
    }

    pub(super) fn fenced(&mut self, cx: &mut Cx<'_, IngestConn>) {
        let next = self.ids.next().unwrap_or(u64::MAX);
        self.end(next, Reason::Fenced, Reason::Fenced.name(), cx);
    }

    pub(super) fn log_failed(&mut self, progress: &Progress, cx: &mut Cx<'_, IngestConn>) {
        let text = match &progress.failure {
            Some(failure) => &failure.0,
            None => Reason::LogFailed.name(),
        };
        let unacked = self
            .acked
            .map_or(self.ids.first, |acked| acked.saturating_add(1));
        self.end(unacked, Reason::LogFailed, text, cx);
    }

    pub(super) fn peer_finished(&mut self, cx: &mut Cx<'_, IngestConn>) {
        self.ending = Ending::Finished;
        self.finish_if_settled(cx);
    }

    pub(super) fn draining(&mut self, cx: &mut Cx<'_, IngestConn>) {
        if self.has_refused() {
            return;
        }
        cx.link.pause();
        let next = self.ids.next().unwrap_or(u64::MAX);
        let text = Reason::Stopping.name().to_owned();
        self.end_after(next, Reason::Stopping, text, cx);
    }

    /// Ends the connection once everything is acknowledged.
    fn finish_if_settled(&mut self, cx: &mut Cx<'_, IngestConn>) {
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

    pub(super) fn closed(self, shared: &Shared) {
        if let Some(session) = &self.session {
            shared.sessions.end(session);
        }
    }
}

/// Milliseconds, rounded up, as many as a frame can say.
fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
