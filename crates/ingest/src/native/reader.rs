//! A reader's connection: credit in, records out.
//!
//! A reader has at most one outstanding read, and asks for the next only when it has credit and the
//! output is not full; so a slow or dead reader costs a few reads of memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tidewire::{Cx, Input, Instant, Next};
use tidewire_log::{Begin, Committed, Credit, GROUP_MAX, Range, ReadError, Refused, Tenure};

use super::codec::{
    self, Malformed, Read, ReaderFrame, ReaderWelcome, Reason, ServerFrame, Subscribe,
    batch_overhead, encode_batch_head,
};
use super::counters::Count;
use super::local::Native;
use super::message::Answer;
use super::pool::{Job, Want};
use super::reading::Place;
use super::reply::{CUT_SHORT, DEFAULT_STREAM, reason_of, refuse, send};
use super::shared::Shared;

/// Records in runs shorter than this are copied behind each other; longer ones are sent from where
/// they were read to.
const COPIED: usize = 4096;
/// How often a reader that holds something, or waits for memory, is looked after.
const LOOK: Duration = Duration::from_millis(250);
/// A reader that has taken nothing for so long makes room for others that wait for memory.
const STALLED: Duration = Duration::from_secs(10);

/// A reader's connection.
pub(super) struct Reader {
    stream: Arc<str>,
    cursor: Option<Arc<str>>,
    follow: bool,
    /// Bytes that may be sent; below zero once overdrawn.
    credit: i64,
    /// The position at which reading goes on.
    position: u64,
    state: State,
    /// The client has finished sending.
    finished: bool,
    /// The reader's stream was there.
    has_been: bool,
    /// The position asked for by number or by a cursor, if that is not just the oldest.
    asked: Option<u64>,
    /// Where the cursor is to stand as soon as the queue of the log has room.
    uncommitted: Option<u64>,
    /// The reader ends when that is done; whether short of the tail.
    ends: Option<bool>,
    /// Bytes that are asked for.
    reading: usize,
    /// Bytes that this reader holds of the readers' memory.
    held: usize,
    /// Bytes queued when that changed last, and when it did.
    queued: usize,
    moved_at: Instant,
    /// The reader's place in the list of readers, for administrators.
    place: Option<Arc<Place>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A read is outstanding.
    Reading,
    /// The reader waits for records to come.
    AtTail,
    /// The reader waits for credit, or for its output to drain.
    Held,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reader of {:?} at {}", self.stream, self.position)
    }
}

fn signed(credit: u64) -> i64 {
    i64::try_from(credit).unwrap_or(i64::MAX)
}

impl Reader {
    pub(super) fn new(stream: &str, hello: &Subscribe<'_>) -> Reader {
        Reader {
            stream: stream.into(),
            cursor: Some(hello.cursor)
                .filter(|name| !name.is_empty())
                .map(Arc::from),
            follow: hello.follow,
            credit: signed(hello.credit),
            position: 0,
            state: State::Held,
            finished: false,
            has_been: false,
            asked: None,
            uncommitted: None,
            ends: None,
            reading: 0,
            held: 0,
            queued: 0,
            moved_at: Instant::default(),
            place: None,
        }
    }

    /// Finds out where to begin.
    pub(super) fn begin(
        &mut self,
        hello: &Subscribe<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) {
        self.has_been = shared.log.range(&self.stream).is_some();
        let exists = self.has_been || *self.stream == *DEFAULT_STREAM;
        if !exists && !hello.may_be_absent {
            let text = format!("there is no such stream: {:?}", self.stream);
            return refuse(cx, 0, Reason::NoStream, 0, &text);
        }
        let begin = match hello.begin {
            codec::Begin::Position(at) => {
                self.asked = Some(at).filter(|&at| at > 0);
                Begin::Position(at)
            }
            codec::Begin::Tail => Begin::Tail,
            codec::Begin::Timestamp(at) => Begin::Timestamp(at),
            codec::Begin::Cursor => {
                let name = self.cursor.as_deref().unwrap_or_default();
                self.asked = shared.log.cursor(&self.stream, name);
                Begin::Position(self.asked.unwrap_or(0))
            }
        };
        // Bytes that the reader sends before it is welcomed have to wait.
        cx.link.pause();
        self.ask(Want::Place(begin), shared, cx);
    }

    /// Asks the pool to read.
    fn ask(&mut self, what: Want, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        let Ok(permit) = cx.handle().reserve() else {
            let text = "too many reads at once";
            return refuse(cx, self.position, Reason::TooMany, 0, text);
        };
        self.state = State::Reading;
        if let Some(place) = &self.place {
            place.at(self.position);
        }
        shared.pool.submit(Job {
            stream: self.stream.clone(),
            what,
            permit,
        });
    }

    pub(super) fn answered(
        &mut self,
        answer: Answer,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) {
        self.state = State::Held;
        self.reading = 0;
        let has_records = matches!(&answer, Answer::Records(Ok(read)) if !read.runs.is_empty());
        if !has_records && self.is_deleted(shared) {
            return self.deleted(cx);
        }
        match answer {
            Answer::Place(Ok((range, start))) => self.welcome(range, start, shared, cx),
            Answer::Records(Ok(read)) if read.runs.is_empty() => self.at_tail(shared, cx),
            Answer::Records(Ok(read)) => {
                self.write(read, cx);
                self.account(shared, cx);
                self.go_on(shared, cx);
            }
            // The following records state their position, so the reader notices the gap.
            Answer::Records(Err(ReadError::Missing { asked, next })) => {
                tracing::warn!(
                    stream = %self.stream, from = asked, next,
                    "a gap where records were lost is skipped"
                );
                self.position = next;
                self.go_on(shared, cx);
            }
            Answer::Place(Err(ReadError::Beyond { asked, next }))
            | Answer::Records(Err(ReadError::Beyond { asked, next })) => {
                self.beyond_end(asked, next, cx);
            }
            Answer::Place(Err(error)) | Answer::Records(Err(error)) => {
                let reason = match &error {
                    ReadError::Gone { .. } => Reason::Gone,
                    ReadError::Beyond { .. } => Reason::BeyondEnd,
                    ReadError::Missing { .. } | ReadError::Damaged(_) | ReadError::Failed(_) => {
                        Reason::Damaged
                    }
                };
                refuse(cx, self.position, reason, 0, &error.to_string());
            }
        }
    }

    fn welcome(&mut self, range: Range, start: u64, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        if let Some(asked) = self.asked.filter(|&asked| asked > range.next) {
            return self.beyond_end(asked, range.next, cx);
        }
        cx.link.resume();
        self.position = start;
        let peer = cx.link.peer().endpoint.to_string().into();
        let place = Place::new(self.stream.clone(), self.cursor.clone(), peer);
        shared.reading.add(&place);
        self.place = Some(place);
        let read_max = shared.settings.read_max.clamp(1, 1 << 30);
        cx.local.tally.add(Count::readers, 1);
        // The present limit does not apply: the log may have been written with a higher limit.
        let messages = read_max.max(GROUP_MAX);
        let body = messages + batch_overhead("") - codec::FRAME_HEADER + usize::from(u8::MAX);
        send(
            cx,
            &ServerFrame::ReaderWelcome(ReaderWelcome {
                first: range.first,
                next: range.next,
                start,
                body_max: u32::try_from(body).unwrap_or(u32::MAX),
                skipped: self.asked.is_some_and(|asked| asked < start),
            }),
        );
        self.go_on(shared, cx);
    }

    /// Refuses a position that no record has had yet.
    fn beyond_end(&self, asked: u64, next: u64, cx: &mut Cx<'_, impl Native>) {
        let text =
            format!("position {asked} was requested, and the stream's next position is {next}");
        refuse(cx, next, Reason::BeyondEnd, 0, &text);
    }

    /// Asks for the next records, if they may be sent.
    pub(super) fn go_on(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        if self.state != State::Held || cx.link.full() || cx.link.is_closing() {
            return;
        }
        match usize::try_from(self.credit) {
            Ok(credit) if credit > 0 => {
                self.account(shared, cx);
                let Some(share) = shared.memory.share(shared.readers.load(Relaxed)) else {
                    return self.wait_for_memory(shared, cx);
                };
                let most = credit
                    .min(shared.settings.read_max.clamp(1, 1 << 30))
                    .min(share);
                cx.link.set_marks(most as u32, 2 * most as u32);
                self.reading = most;
                self.account(shared, cx);
                self.ask(Want::Records(self.position, Credit(most)), shared, cx);
            }
            // No more will be given.
            _ if self.finished => {
                let range = shared.log.range(&self.stream);
                let short = range.is_some_and(|range| range.next > self.position);
                self.end(short, cx);
            }
            _ => {}
        }
    }

    /// The memory of all readers is used up: looks again in a while.
    fn wait_for_memory(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        cx.local.tally.add(Count::paused_by_memory, 1);
        shared.memory.tell(cx.link.now());
        cx.link.set_timer_after(LOOK);
    }

    /// Accounts for the memory of this reader: the read under way, and sent bytes that the client
    /// has not taken.
    fn account(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        let queued = cx.link.queued_len();
        if queued != self.queued || queued == 0 {
            (self.queued, self.moved_at) = (queued, cx.link.now());
        }
        let held = queued + self.reading;
        shared.memory.changed(self.held, held);
        self.held = held;
        // No other event tells that the socket has taken the output.
        if queued > 0 && cx.link.timer().is_none() {
            cx.link.set_timer_after(LOOK);
        }
    }

    /// The timer has expired: checks how much output the client has taken.
    pub(super) fn expired(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        self.account(shared, cx);
        let stalled = self.queued > 0 && cx.link.now().since(self.moved_at) >= STALLED;
        if stalled && shared.memory.share(1).is_none() {
            let text = format!(
                "the reader took no records for {STALLED:?}, and other readers wait for the memory"
            );
            return refuse(cx, self.position, Reason::Gone, 0, &text);
        }
        self.go_on(shared, cx);
    }

    /// The connection has closed: gives the reader's memory back.
    pub(super) fn closed(&self, shared: &Shared) {
        shared.memory.changed(self.held, 0);
        if let Some(place) = &self.place {
            shared.reading.remove(place);
        }
    }

    /// The reader's token is not accepted any more.
    pub(super) fn shut_out(&mut self, cx: &mut Cx<'_, impl Native>) {
        let text = "the token is not accepted any more";
        refuse(cx, self.position, Reason::Unauthorised, 0, text);
    }

    fn at_tail(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        if self.follow && !self.finished {
            // The bell is armed first, and then the log is looked at: a commit in between is not
            // missed.
            cx.local.bell.arm();
            self.state = State::AtTail;
            self.follow(shared, cx);
        } else {
            self.end(false, cx);
        }
    }

    /// Ends reading: at the stream's tail, or before it.
    fn end(&mut self, short: bool, cx: &mut Cx<'_, impl Native>) {
        if self.uncommitted.is_some() {
            self.ends = Some(short);
            return;
        }
        let next = self.position;
        send(cx, &ServerFrame::End { next, short });
        cx.link.finish();
    }

    /// The log has moved: sends new records, if any.
    pub(super) fn follow(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        if self.state != State::AtTail {
            return;
        }
        if let Some(place) = &self.place {
            place.at(self.position);
        }
        if self.is_deleted(shared) {
            return self.deleted(cx);
        }
        let range = shared.log.range(&self.stream);
        self.has_been |= range.is_some();
        if range.is_some_and(|range| range.next > self.position) {
            self.state = State::Held;
            self.go_on(shared, cx);
        } else {
            cx.local.followers.push(cx.link.id());
        }
    }

    fn is_deleted(&self, shared: &Shared) -> bool {
        self.has_been && shared.log.range(&self.stream).is_none()
    }

    fn deleted(&mut self, cx: &mut Cx<'_, impl Native>) {
        let reason = Reason::NoStream;
        refuse(cx, self.position, reason, 0, "the stream was deleted");
    }

    /// Sends the records that were read, as far as the client has given credit.
    fn write(&mut self, read: Committed, cx: &mut Cx<'_, impl Native>) {
        cx.local.tally.add(Count::reads, 1);
        let mut head = std::mem::take(&mut cx.local.scratch);
        for run in read.runs {
            if self.credit <= 0 {
                break;
            }
            let len = run.bytes.len();
            encode_batch_head(
                run.first,
                run.timestamp_us,
                run.count,
                Tenure::split(&run.producer).0,
                len,
                &mut head,
            );
            self.credit -= signed((head.len() + len) as u64);
            cx.link.write(&head);
            head.clear();
            if len < COPIED {
                cx.link.write(&run.bytes);
            } else {
                cx.link.write_shared(Bytes::from(run.bytes));
            }
            self.position = run.first + u64::from(run.count);
            let tally = &mut cx.local.tally;
            tally.add(Count::read_batches, 1);
            tally.add(Count::read_messages, run.count as usize);
            tally.add(Count::read_bytes, len);
        }
        cx.local.scratch = head;
    }

    // ---- What the reader says ----

    pub(super) fn received(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Next {
        loop {
            let (frame, len) = match ReaderFrame::decode(input.bytes()) {
                Ok(Read::Whole(frame, len)) => (frame, len),
                Ok(Read::Partial(needed)) => {
                    self.go_on(shared, cx);
                    return Next::AtLeast(needed);
                }
                Err(Malformed(why)) => {
                    refuse(cx, self.position, Reason::Malformed, 0, why);
                    return Next::More;
                }
            };
            input.consume(len);
            match frame {
                ReaderFrame::Credit(bytes) => {
                    self.credit = self.credit.saturating_add(signed(bytes));
                }
                ReaderFrame::CommitCursor(position) => {
                    if !self.commit(position, shared, cx) {
                        return Next::More;
                    }
                }
                ReaderFrame::Unknown(_) => {}
            }
        }
    }

    /// Moves the cursor; false if the connection ends over it.
    fn commit(&mut self, position: u64, shared: &Shared, cx: &mut Cx<'_, impl Native>) -> bool {
        let Some(cursor) = &self.cursor else {
            let text = "the hello named no cursor";
            refuse(cx, self.position, Reason::Malformed, 0, text);
            return false;
        };
        let next = shared.log.range(&self.stream).map_or(0, |range| range.next);
        if position > next {
            self.beyond_end(position, next, cx);
            return false;
        }
        // First armed, so that room that is made meanwhile is not missed.
        cx.local.bell.arm();
        self.uncommitted = None;
        match shared.log.set_cursor(&self.stream, cursor, position) {
            Ok(()) => {
                cx.local.tally.add(Count::cursors, 1);
                true
            }
            Err(Refused::Busy) => {
                self.uncommitted = Some(position);
                cx.local.crowded.push(cx.link.id());
                true
            }
            Err(refused) => {
                let (reason, text) = (reason_of(refused), refused.to_string());
                refuse(cx, self.position, reason, 0, &text);
                !reason.closes()
            }
        }
    }

    /// The queue of the log may have room for where the cursor is to stand.
    pub(super) fn commit_again(&mut self, shared: &Shared, cx: &mut Cx<'_, impl Native>) {
        if let Some(position) = self.uncommitted {
            self.commit(position, shared, cx);
        }
        if self.uncommitted.is_none()
            && let Some(short) = self.ends.take()
        {
            self.end(short, cx);
        }
    }

    pub(super) fn peer_finished(
        &mut self,
        unread: usize,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) {
        if unread > 0 {
            return refuse(cx, self.position, Reason::Malformed, 0, CUT_SHORT);
        }
        self.finished = true;
        match self.state {
            State::AtTail => {
                self.state = State::Held;
                self.go_on(shared, cx);
            }
            State::Held => self.go_on(shared, cx),
            State::Reading => {}
        }
    }

    pub(super) fn draining(&mut self, cx: &mut Cx<'_, impl Native>) {
        let reason = Reason::Stopping;
        refuse(cx, self.position, reason, 0, reason.name());
    }
}
