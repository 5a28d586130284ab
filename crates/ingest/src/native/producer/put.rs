//! Handing messages to the log, and what becomes of messages that it does not take.

use tidewire::{Cx, Input, Next};
use tidewire_log::{Log, Refused, Ticket};

use super::{Pause, Producer};
use crate::classic::{Batch, HEADER};
use crate::native::codec::{Level, Reason};
use crate::native::counters::Count;
use crate::native::ids::{Part, Run, first_of};
use crate::native::local::Native;
use crate::native::local::Owed;
use crate::native::reply::reason_of;
use crate::native::shared::Shared;

/// How a batch ended.
pub(super) enum Put {
    Taken,
    /// The log has no room for the messages now.
    Crowded,
    /// The message was refused, and all that follows it is to be dropped.
    Refused,
    /// The messages do not fit a batch of the log: fewer at once.
    Halve,
    /// The connection ends.
    Over(Next),
}

impl Producer {
    /// Hands over a batch of which some messages are not new.
    pub(super) fn put_parts(
        &mut self,
        batch: &Batch<'_>,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
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
                    // Messages that are not yet committed are acknowledged with their batch.
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

    /// Hands the new messages in `bytes` to the log, and consumes them.
    pub(super) fn put_all(
        &mut self,
        run: Run,
        bytes: &[u8],
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
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
    pub(super) fn put(
        &mut self,
        run: &Run,
        bytes: &[u8],
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
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
        let later = self.level != Level::Received;
        if later {
            cx.local.bell.arm();
        }
        let mut appended = self.append(batch, &*shared.log);
        if appended == Some(Err(Refused::Busy)) && !later {
            // Once more, because there may be room since, which rang no bell.
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
            Some(Err(Refused::StreamFull { retry_after })) => {
                self.refuse(run.first, Reason::StreamFull, retry_after, cx)
            }
            Some(Err(Refused::TooLarge)) if run.count > 1 => Put::Halve,
            Some(Err(
                refused @ (Refused::TooLarge
                | Refused::TooMany
                | Refused::Forgotten
                | Refused::Beyond
                | Refused::NoStream),
            )) => {
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
    pub(super) fn append(
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
    pub(super) fn taken(&mut self, run: &Run, ticket: Ticket, cx: &mut Cx<'_, impl Native>) {
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
        let owed = match (self.level, &self.bound) {
            (Level::Replicated, Some(bound)) => cx.local.owed_by(bound.hold()),
            (Level::Replicated, None) => &mut cx.local.owed_home,
            (Level::Received | Level::Durable, _) => &mut cx.local.owed,
        };
        owed.push_back(Owed {
            ticket,
            to: cx.link.id(),
            id: run.last,
            sent: self.sent,
        });
    }

    /// The log has no room: reading pauses until it has.
    pub(super) fn crowded(&mut self, cx: &mut Cx<'_, impl Native>) {
        self.wait_from_now(cx);
        self.pause = Pause::Crowded;
        cx.local.tally.add(Count::paused_by_log, 1);
        cx.local.crowded.push(cx.link.id());
    }
}
