//! Reading the log for a command, on a thread where that may block: records become entries of a reply.
//!
//! The one idea: a read is bounded, and so is a reply. XREAD may return less, because the client asks again from where the
//! reply ended. A reply that would be wrong if it were cut short is an error.

use std::ops::{ControlFlow, Range};

use tidewire_log::{Credit, Log, ReadError, Tenure};
use tidewire_pool::NotDone;

use super::place::id_of;
use super::question::{Ask, Wanted};
use crate::commands::streams::{self, Numbers, named, number};
use crate::reply::{Proto, Reply};
use crate::store::split_frame;
use crate::types::StreamId;

/// Bytes of records that are read at once.
const STEP: usize = 256 << 10;
/// Positions that are looked at together when the last come first.
const BACK: u64 = 4096;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The reply of the command.
    Reply(Vec<u8>),
    /// The streams have no further entries yet. The position at which reading goes on in each
    /// stream, if it is known: lost records are before it.
    Nothing(Vec<Option<u64>>),
    /// The reply is longer than a client's output may be.
    TooMuch,
}

/// The result of a read, and its costs.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) answer: Answer,
    pub(super) entries: u64,
    /// Bytes of payloads.
    pub(super) bytes: u64,
    /// The command was refused because the reply would have been too long.
    pub(super) refused: bool,
}

/// The result of a read for a connection.
#[derive(Debug)]
pub struct WasRead(pub(super) Result<Read, NotDone>);

/// Limits of a reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) proto: Proto,
    /// Bytes of the reply from which on no entry is added. A single entry may be longer.
    pub(super) reply_max: usize,
    /// Bytes that a client's output may have.
    pub(super) output_max: usize,
}

/// Reads the records that a command needs.
pub(super) fn read(log: &dyn Log, ask: &Ask, bounds: Bounds) -> Read {
    let mut reply = Reply::new(bounds.proto);
    reply.set_limit(bounds.output_max);
    let mut reading = Reading {
        log,
        reply,
        reply_max: bounds.reply_max,
        entries: 0,
        bytes: 0,
    };
    let done = match ask {
        Ask::Behind { streams, count } => reading.behind(streams, *count),
        Ask::Span {
            stream,
            positions,
            count,
            back,
        } => {
            let most = count.map_or(u64::MAX, |count| count as u64);
            let span = match back {
                true => reading.back(stream, positions.clone(), most),
                false => reading.forward(stream, positions.clone(), most),
            };
            span.map(|()| None)
        }
        Ask::About { stream, full } => reading.about(stream, *full).map(|()| None),
    };
    let mut refused = false;
    let answer = match done {
        Ok(Some(nothing)) => Answer::Nothing(nothing),
        Ok(None) if reading.reply.is_over() => Answer::TooMuch,
        Ok(None) => Answer::Reply(reading.reply.take()),
        Err(why) => {
            refused = matches!(why, Failed::TooLong);
            let mut reply = Reply::new(bounds.proto);
            reply.error(why.text(bounds.reply_max));
            Answer::Reply(reply.take())
        }
    };
    Read {
        answer,
        entries: reading.entries,
        bytes: reading.bytes,
        refused,
    }
}

/// Why there is no answer.
enum Failed {
    TooLong,
    Log(ReadError),
}

impl Failed {
    fn text(&self, reply_max: usize) -> String {
        match self {
            Failed::TooLong => format!(
                "ERR the entries take more than the {reply_max} bytes that a reply from the log may have \
                 (--kv-log-reply): ask for fewer with COUNT"
            ),
            Failed::Log(error) => format!("ERR reading the log: {error}"),
        }
    }
}

impl From<ReadError> for Failed {
    fn from(error: ReadError) -> Failed {
        Failed::Log(error)
    }
}

/// A record in the form that a command shows.
struct Record<'a> {
    position: u64,
    id: u64,
    timestamp_us: u64,
    /// Empty for an anonymous producer.
    producer: &'a str,
    payload: &'a [u8],
}

impl Record<'_> {
    fn write(&self, reply: &mut Reply) {
        reply.array(2);
        streams::write_id(reply, id_of(self.position));
        reply.array(if self.producer.is_empty() { 6 } else { 8 });
        reply.bulk(b"payload");
        reply.bulk(self.payload);
        // An id and a time are 64 bits without a sign.
        for (name, n) in [("id", self.id), ("timestamp_us", self.timestamp_us)] {
            reply.bulk(name.as_bytes());
            reply.bulk(n.to_string().as_bytes());
        }
        if !self.producer.is_empty() {
            reply.bulk(b"producer");
            reply.bulk(self.producer.as_bytes());
        }
    }
}

/// How many bytes to ask for so that little more is read than is wanted, by what records took so far.
struct Pace {
    most: u64,
    records: u64,
    bytes: u64,
}

impl Pace {
    fn credit(&self) -> Credit {
        let left = self.most.saturating_sub(self.records);
        let typical = match self.records {
            // The reply has at least one record, whatever its length.
            0 => 1,
            records => self.bytes / records,
        };
        let bytes = match self.most {
            u64::MAX => STEP as u64,
            _ => typical.saturating_mul(left).clamp(1, STEP as u64),
        };
        Credit(bytes as usize)
    }
}

/// Shows the records of a stream within these positions in their order, `most` at most, until `each` has enough. Records
/// that were lost in damage, or removed by retention, are skipped. Returns the first position that was not looked at.
fn walk(
    log: &dyn Log,
    stream: &str,
    positions: Range<u64>,
    most: u64,
    each: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
) -> Result<u64, ReadError> {
    let Range { start: mut at, end } = positions;
    let most = most.min(end.saturating_sub(at));
    let mut pace = Pace {
        most,
        records: 0,
        bytes: 0,
    };
    while at < end && pace.records < most {
        let read = match log.read(stream, at, pace.credit()) {
            Ok(read) if read.runs.is_empty() => break,
            Ok(read) => read,
            Err(ReadError::Missing { next, .. }) if next > at => {
                at = next;
                continue;
            }
            Err(ReadError::Gone { first, .. }) if first > at => {
                at = first;
                continue;
            }
            Err(ReadError::Beyond { .. }) => break,
            Err(error) => return Err(error),
        };
        for run in &read.runs {
            let producer = Tenure::split(&run.producer).0;
            let mut rest = &run.bytes[..];
            at = run.first;
            while let Some((id, payload, behind)) = split_frame(rest) {
                if at >= end || pace.records == most {
                    return Ok(at);
                }
                let record = Record {
                    position: at,
                    id,
                    timestamp_us: run.timestamp_us,
                    producer,
                    payload,
                };
                let enough = each(&record).is_break();
                pace.records += 1;
                pace.bytes += (rest.len() - behind.len()) as u64;
                at += 1;
                rest = behind;
                if enough {
                    return Ok(at);
                }
            }
        }
        at = read.next;
    }
    Ok(at)
}

/// Reads for one command.
struct Reading<'l> {
    log: &'l dyn Log,
    reply: Reply,
    reply_max: usize,
    entries: u64,
    bytes: u64,
}

impl Reading<'_> {
    /// Writes entries in their order until there are `most`, or the reply has `end` bytes; at least one
    /// entry if there is any. How many there are, and where reading goes on.
    fn entries(
        &mut self,
        stream: &str,
        positions: Range<u64>,
        most: u64,
        end: usize,
    ) -> Result<(usize, u64), ReadError> {
        let (log, reply) = (self.log, &mut self.reply);
        let (mut n, mut bytes) = (0, 0);
        let next = walk(log, stream, positions, most, &mut |record| {
            record.write(reply);
            n += 1;
            bytes += record.payload.len() as u64;
            match reply.len() >= end || reply.is_over() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        })?;
        self.entries += n as u64;
        self.bytes += bytes;
        Ok((n, next))
    }

    /// XREAD: reads the entries behind the given ids. Each stream has its share of the reply's
    /// limit, and the part that the streams before it have not used. Returns where reading goes on
    /// if there was no entry.
    fn behind(
        &mut self,
        streams: &[Wanted],
        count: usize,
    ) -> Result<Option<Vec<Option<u64>>>, Failed> {
        let most = if count == 0 { u64::MAX } else { count as u64 };
        let (mut found, mut nexts) = (0, Vec::with_capacity(streams.len()));
        for (at, wanted) in streams.iter().enumerate() {
            let (Some(stream), Some(from)) = (&wanted.stream, wanted.from) else {
                nexts.push(wanted.from);
                continue;
            };
            let left = self.reply_max.saturating_sub(self.reply.len());
            if left == 0 || self.reply.is_over() {
                break;
            }
            let share = left / (streams.len() - at);
            let head = self.reply.len();
            streams::write_key(&mut self.reply, &wanted.key);
            let start = self.reply.len();
            let end = start + share;
            let (n, next) = self.entries(stream, from..u64::MAX, most, end)?;
            // A stream that was deleted meanwhile may come again, and goes on where it ended.
            let end = self.log.range(stream).map_or(from, |range| range.next);
            nexts.push(Some(next.min(end).max(from)));
            if n == 0 {
                self.reply.truncate(head);
                continue;
            }
            self.reply.enclose(start, n);
            found += 1;
        }
        if found == 0 {
            return Ok(Some(nexts));
        }
        streams::end(&mut self.reply, 0, found);
        Ok(None)
    }

    /// XRANGE.
    fn forward(&mut self, stream: &str, positions: Range<u64>, most: u64) -> Result<(), Failed> {
        let from = self.reply.len();
        let end = from.saturating_add(self.reply_max);
        let within = self.kept(stream, positions);
        let (n, next) = self.entries(stream, within.clone(), most, end)?;
        let is_cut = next < within.end && (n as u64) < most;
        if is_cut && self.reply.len() >= end {
            return Err(Failed::TooLong);
        }
        self.reply.enclose(from, n);
        Ok(())
    }

    /// XREVRANGE: a stretch at a time from the end, each turned around. A stretch has no more positions than
    /// entries are wanted. Stretches without records are skipped in growing steps; each step costs a look.
    fn back(&mut self, stream: &str, positions: Range<u64>, most: u64) -> Result<(), Failed> {
        let from = self.reply.len();
        let end = from.saturating_add(self.reply_max);
        let mut within = self.kept(stream, positions);
        let (mut n, mut span) = (0, 1);
        while within.start < within.end && n < most && !self.reply.is_over() {
            let wanted = (most - n).min(BACK);
            span = wanted.max(span);
            let first = within.end.saturating_sub(span).max(within.start);
            let stretch = first..within.end;
            if span > wanted && self.has_any(stream, stretch.clone())? {
                span /= 2;
                continue;
            }
            let found = match span > wanted {
                true => 0,
                false => self.turned(stream, stretch, end)?,
            };
            n += found;
            within.end = first;
            // Where little is left, much was lost.
            span = match found {
                0 => span.saturating_mul(2),
                _ => 1,
            };
        }
        self.reply.enclose(from, n as usize);
        Ok(())
    }

    /// Whether there is an entry in a stretch.
    fn has_any(&self, stream: &str, positions: Range<u64>) -> Result<bool, Failed> {
        let mut found = false;
        walk(self.log, stream, positions, 1, &mut |_| {
            found = true;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// Writes the entries of a stretch, the last first; how many there are.
    fn turned(&mut self, stream: &str, positions: Range<u64>, end: usize) -> Result<u64, Failed> {
        let mut stretch = Reply::new(self.reply.proto);
        let mut starts = Vec::new();
        let room = end.saturating_sub(self.reply.len());
        let mut bytes = Vec::new();
        let written = self.entries > 0;
        let mut is_long = false;
        walk(self.log, stream, positions, u64::MAX, &mut |record| {
            // The stream stands in front of others already, or has some in front of it.
            is_long = stretch.len() >= room && (written || !starts.is_empty());
            if is_long {
                return ControlFlow::Break(());
            }
            starts.push(stretch.len());
            bytes.push(record.payload.len() as u64);
            record.write(&mut stretch);
            ControlFlow::Continue(())
        })?;
        if is_long {
            return Err(Failed::TooLong);
        }
        let mut behind = stretch.len();
        let mut n = 0;
        for (&start, &len) in starts.iter().zip(&bytes).rev() {
            self.reply.raw(&stretch.bytes()[start..behind]);
            behind = start;
            self.bytes += len;
            n += 1;
        }
        self.entries += n;
        Ok(n)
    }

    /// The kept part of these positions.
    fn kept(&self, stream: &str, positions: Range<u64>) -> Range<u64> {
        let Some(range) = self.log.range(stream) else {
            return 0..0;
        };
        positions.start.max(range.first)..positions.end.min(range.next)
    }

    /// XINFO STREAM.
    fn about(&mut self, stream: &str, full: Option<usize>) -> Result<(), Failed> {
        let range = self.log.range(stream);
        let (first, next) = range.map_or((0, 0), |range| (range.first, range.next));
        let last = |next: u64| next.checked_sub(1).map_or(StreamId::MIN, id_of);
        let length = self.log.records(stream).unwrap_or(0);
        self.reply.map(if full.is_some() { 9 } else { 10 });
        Numbers {
            length,
            blocks: 0,
            last: last(next),
            max_deleted: last(first),
            added: next,
            first: if first < next {
                id_of(first)
            } else {
                StreamId::MIN
            },
        }
        .write(&mut self.reply);
        if let Some(count) = full {
            let most = if count == 0 { u64::MAX } else { count as u64 };
            named(&mut self.reply, "entries", |_| {});
            self.forward(stream, first..next, most)?;
            named(&mut self.reply, "groups", |reply| reply.array(0));
            return Ok(());
        }
        number(&mut self.reply, "groups", 0);
        named(&mut self.reply, "first-entry", |_| {});
        self.one(|reading| reading.forward(stream, first..next, 1))?;
        named(&mut self.reply, "last-entry", |_| {});
        self.one(|reading| reading.back(stream, first..next, 1))
    }

    /// Writes an array of one entry, or a null.
    fn one(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Failed>) -> Result<(), Failed> {
        let from = self.reply.len();
        write(self)?;
        let array = self.reply.bytes()[from..].to_vec();
        self.reply.truncate(from);
        match array.strip_prefix(b"*1\r\n") {
            Some(entry) => self.reply.raw(entry),
            None => self.reply.null(),
        }
        Ok(())
    }
}
