//! An administrator's connection: requests in, answers out, one at a time.
//!
//! The one idea: a request that changes something is answered when the change is durable, and no later
//! request is looked at before. So a client that has an answer knows what the log will hold after any
//! crash.

use std::fmt;

use tidewire::{Cx, Input, Next};
use tidewire_log::{Change, ChangeRefused, Progress, Refused, StreamStatus, Ticket};

use super::codec::{
    AdminFrame, Malformed, PlaceFrame, Read, Reason, ServerFrame, StreamFrame, Wanted,
};
use super::counters::Count;
use super::local::Native;
use super::reply::{
    CUT_SHORT, DEFAULT_STREAM, RESERVED, is_reserved, millis, reason_of, refuse, send, tell,
};
use super::shared::Shared;
use super::tokens::{Pass, Right};

/// Most entries that one answer lists; the next request gets the rest.
const PAGE: usize = 64;

/// An administrator's connection.
pub(super) struct Admin {
    pass: Pass,
    /// Requests that were answered.
    answered: u64,
    /// The request under way is answered when this is committed.
    waits: Option<Ticket>,
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "administrator, {} answered", self.answered)
    }
}

/// How a request ended.
enum Done {
    Answered,
    /// The request is answered when this is committed.
    When(Ticket),
    /// The request has to wait until the log has room.
    Busy,
    Refused(Reason, u32, String),
}

impl Admin {
    pub(super) fn begin(pass: Pass, cx: &mut Cx<'_, impl Native>) -> Admin {
        cx.local.tally.add(Count::administrators, 1);
        send(cx, &ServerFrame::AdminWelcome);
        Admin {
            pass,
            answered: 0,
            waits: None,
        }
    }

    pub(super) fn received(
        &mut self,
        input: &mut Input<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Next {
        loop {
            if self.waits.is_some() {
                return Next::Paused;
            }
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let (request, len) = match AdminFrame::decode(input.bytes()) {
                Ok(Read::Whole(request, len)) => (request, len),
                Ok(Read::Partial(needed)) => return Next::AtLeast(needed),
                Err(Malformed(why)) => {
                    refuse(cx, self.answered + 1, Reason::Malformed, 0, why);
                    return Next::More;
                }
            };
            match self.request(&request, shared, cx) {
                Done::Answered => self.answered += 1,
                Done::Refused(reason, retry_after_ms, text) => {
                    self.answered += 1;
                    tell(cx, self.answered, reason, retry_after_ms, &text);
                }
                Done::Busy => {
                    cx.local.crowded.push(cx.link.id());
                    cx.local.tally.add(Count::paused_by_log, 1);
                    return Next::Paused;
                }
                Done::When(ticket) => {
                    cx.local.tally.add(Count::stream_changes, 1);
                    self.waits = Some(ticket);
                    self.settle(&shared.log.progress(), cx);
                }
            }
            input.consume(len);
            if cx.link.is_closing() {
                return Next::More;
            }
        }
    }

    fn request(
        &self,
        request: &AdminFrame<'_>,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Done {
        match *request {
            AdminFrame::Create { wanted, .. } | AdminFrame::Set { wanted, .. }
                if wanted.is_unknown =>
            {
                let text =
                    "this server's version does not know the requested setting or compression"
                        .to_owned();
                Done::Refused(Reason::Unsupported, 0, text)
            }
            AdminFrame::List { after } => self.list(after, shared, cx),
            AdminFrame::Create { stream, wanted } => {
                let stream = meant(stream);
                self.change(stream, shared, cx, |_| {
                    let settings = wanted.over(Default::default());
                    Some(Change::Create { stream, settings })
                })
            }
            AdminFrame::Set { stream, wanted } => self.set(meant(stream), &wanted, shared, cx),
            AdminFrame::Delete { stream } => {
                let stream = meant(stream);
                self.change(stream, shared, cx, |_| Some(Change::Delete { stream }))
            }
            AdminFrame::Trim { stream, before } => {
                let stream = meant(stream);
                let change = Change::Trim { stream, before };
                self.change(stream, shared, cx, |_| Some(change))
            }
            AdminFrame::Cursors { stream, after } => self.cursors(meant(stream), after, shared, cx),
            AdminFrame::Readers { stream } => self.readers(meant(stream), shared, cx),
            AdminFrame::DeleteCursor { stream, cursor } => {
                if is_reserved(cursor) && shared.settings.replicated {
                    return Done::Refused(Reason::Unsupported, 0, RESERVED.to_owned());
                }
                let stream = meant(stream);
                let change = Change::DeleteCursor { stream, cursor };
                self.change(stream, shared, cx, |_| Some(change))
            }
            AdminFrame::Unknown(_) => {
                let text = "this server's version does not know the request".to_owned();
                Done::Refused(Reason::Unsupported, 0, text)
            }
        }
    }

    fn may(&self, stream: &str, shared: &Shared) -> bool {
        shared.tokens.allow(&self.pass, Right::Admin, Some(stream))
    }

    fn set(
        &self,
        stream: &str,
        wanted: &Wanted,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Done {
        self.change(stream, shared, cx, |shared| {
            let Some(before) = shared.log.stream_status(stream) else {
                // The default stream, for messages that name none: it counts as there before the
                // first message comes.
                let settings = wanted.over(Default::default());
                let made = Change::Create { stream, settings };
                return Some(made).filter(|_| stream == DEFAULT_STREAM);
            };
            let settings = wanted.over(before.settings);
            Some(Change::Set { stream, settings })
        })
    }

    /// Has a stream changed; `change` says how, if there is such a stream.
    fn change<'a>(
        &self,
        stream: &'a str,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
        change: impl FnOnce(&Shared) -> Option<Change<'a>>,
    ) -> Done {
        if !self.may(stream, shared) {
            return unauthorised();
        }
        // First armed, so that neither the commit is missed nor room that is made.
        cx.local.bell.arm();
        // Changes come one after the other, because a setting is changed from its present value.
        let one = shared.administering.lock();
        let Some(change) = change(shared) else {
            return no_stream(stream);
        };
        let done = shared.log.administer(change);
        drop(one);
        match done {
            Ok(ticket) => {
                tracing::info!(peer = %cx.link.peer().endpoint, ?change, "a stream is changed");
                Done::When(ticket)
            }
            Err(ChangeRefused::NoStream) => no_stream(stream),
            Err(ChangeRefused::NoCursor) => {
                let text = ChangeRefused::NoCursor.to_string();
                Done::Refused(Reason::NoCursor, 0, text)
            }
            Err(ChangeRefused::Exists) => {
                Done::Refused(Reason::Exists, 0, ChangeRefused::Exists.to_string())
            }
            Err(ChangeRefused::Log(Refused::Busy)) => Done::Busy,
            Err(ChangeRefused::Log(refused)) => {
                let retry_after = match refused {
                    Refused::DiskFull { retry_after } => millis(retry_after),
                    _ => 0,
                };
                Done::Refused(reason_of(refused), retry_after, refused.to_string())
            }
            Err(
                refused @ (ChangeRefused::Setting(_)
                | ChangeRefused::Beyond(_)
                | ChangeRefused::NotHome
                | ChangeRefused::Unsupported),
            ) => Done::Refused(Reason::Unsupported, 0, refused.to_string()),
        }
    }

    fn list(&self, after: &str, shared: &Shared, cx: &mut Cx<'_, impl Native>) -> Done {
        let (mut shown, mut after) = (0, after.to_owned());
        let readers = shared.reading.of(None);
        loop {
            let page = shared.log.streams(&after, PAGE);
            let is_last = page.len() < PAGE;
            for status in &page {
                if shown == PAGE {
                    return self.done(true, cx);
                }
                if self.may(&status.name, shared) {
                    let readers = readers.iter().filter(|reader| reader.stream == status.name);
                    let places = readers.map(|reader| reader.position);
                    show(status, places, cx);
                    shown += 1;
                }
            }
            match page.last() {
                Some(last) if !is_last => after = last.name.to_string(),
                _ => return self.done(false, cx),
            }
        }
    }

    fn cursors(
        &self,
        stream: &str,
        after: &str,
        shared: &Shared,
        cx: &mut Cx<'_, impl Native>,
    ) -> Done {
        if !self.may(stream, shared) {
            return unauthorised();
        }
        if shared.log.range(stream).is_none() {
            return no_stream(stream);
        }
        let cursors = shared.log.cursors(stream, after, PAGE);
        for cursor in &cursors {
            let place = PlaceFrame {
                position: cursor.position,
                lag: cursor.lag,
                cursor: &cursor.name,
                peer: "",
            };
            send(cx, &ServerFrame::Place(place));
        }
        self.done(cursors.len() == PAGE, cx)
    }

    fn readers(&self, stream: &str, shared: &Shared, cx: &mut Cx<'_, impl Native>) -> Done {
        if !self.may(stream, shared) {
            return unauthorised();
        }
        let Some(range) = shared.log.range(stream) else {
            return no_stream(stream);
        };
        // No more than there may be connected.
        for reader in shared.reading.of(Some(stream)) {
            let place = PlaceFrame {
                position: reader.position,
                lag: range.next.saturating_sub(reader.position),
                cursor: reader.cursor.as_deref().unwrap_or_default(),
                peer: &reader.peer,
            };
            send(cx, &ServerFrame::Place(place));
        }
        self.done(false, cx)
    }

    fn done(&self, more: bool, cx: &mut Cx<'_, impl Native>) -> Done {
        let id = self.answered + 1;
        send(cx, &ServerFrame::Done { id, more });
        Done::Answered
    }

    /// The log has moved: answers what waits for that.
    pub(super) fn settle(&mut self, progress: &Progress, cx: &mut Cx<'_, impl Native>) {
        let Some(ticket) = self.waits else {
            return;
        };
        let id = self.answered + 1;
        if let Some(failure) = &progress.failure {
            return refuse(cx, id, Reason::LogFailed, 0, &failure.0);
        }
        if progress.committed < ticket {
            cx.link.pause();
            return cx.local.settling.push(cx.link.id());
        }
        self.waits = None;
        self.answered = id;
        send(cx, &ServerFrame::Done { id, more: false });
        cx.link.resume();
    }

    pub(super) fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, impl Native>) {
        if unread > 0 {
            return refuse(cx, self.answered + 1, Reason::Malformed, 0, CUT_SHORT);
        }
        cx.link.finish();
    }

    /// The client's token is not accepted any more.
    pub(super) fn shut_out(&mut self, cx: &mut Cx<'_, impl Native>) {
        let text = "the token is not accepted any more";
        refuse(cx, self.answered + 1, Reason::Unauthorised, 0, text);
    }

    pub(super) fn draining(&mut self, cx: &mut Cx<'_, impl Native>) {
        let reason = Reason::Stopping;
        refuse(cx, self.answered + 1, reason, 0, reason.name());
    }
}

/// Sends the state of a stream; `readers` are the positions of connected readers.
fn show(status: &StreamStatus, readers: impl Iterator<Item = u64>, cx: &mut Cx<'_, impl Native>) {
    let next = status.range.next;
    let (count, farthest) = readers.fold((0, next), |(count, least), position| {
        (count + 1, least.min(position))
    });
    let age = status.settings.retain_age.map(|age| age.as_micros() as u64);
    let frame = StreamFrame {
        first: status.range.first,
        next,
        bytes: status.bytes,
        newest_us: status.newest_us,
        retain_bytes: status.settings.retain_bytes.unwrap_or(0),
        retain_age_us: age.unwrap_or(0),
        limit_bytes: status.settings.limit_bytes.unwrap_or(0),
        lag: (next - farthest).max(status.lag),
        producers: u32::try_from(status.producers).unwrap_or(u32::MAX),
        cursors: u32::try_from(status.cursors).unwrap_or(u32::MAX),
        readers: count,
        compression: status.settings.compression.code(),
        name: &status.name,
        pins: Some(status.pins),
    };
    send(cx, &ServerFrame::Stream(frame));
}

fn meant(stream: &str) -> &str {
    match stream {
        "" => DEFAULT_STREAM,
        named => named,
    }
}

fn no_stream(stream: &str) -> Done {
    let text = format!("there is no such stream: {stream:?}");
    Done::Refused(Reason::NoStream, 0, text)
}

fn unauthorised() -> Done {
    let reason = Reason::Unauthorised;
    Done::Refused(reason, 0, reason.name().to_owned())
}
