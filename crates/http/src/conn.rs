//! One HTTP connection: requests in, replies out, in order, one at a time.
//!
//! A request that waits, for its body, for an answer from elsewhere, or for the client to take its
//! reply, keeps what is behind it in the input. So the replies of pipelined requests are in order
//! without a queue.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use tidewire::{Closed, Cx, Input, Link, Next, Protocol, Turn};
use tidewire_pool::{Lane, Pool};

use crate::body::{self, Body, Piece};
use crate::data::Data;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::framing::Length;
use crate::handler::{self, Handler};
use crate::head::{self, Head, Parsed};
use crate::headers::Headers;
use crate::kind;
use crate::later::{Later, Message};
use crate::local::HttpLocal;
use crate::pace::Pace;
use crate::reply::{Progress, Reply};
use crate::request::Request;
use crate::response::{Outcome, Response, Work};
use crate::share::Share;
use crate::wire::Asked;

/// Bytes of a body on a request that takes none which are read so that the connection can go on.
const UNWANTED_MAX: u64 = 64 << 10;
/// Bytes of all replies of a connection up to which it is closed at once behind the last: the kernel sends so much without
/// waiting. A client's late bytes are answered by a reset, which would destroy what the kernel still holds of longer ones.
const UNLINGERED_MAX: u32 = 16 << 10;
/// The interim reply to a client that sent `Expect: 100-continue`.
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// One connection of [`Http`](crate::Http).
pub struct HttpConn<H> {
    stage: Stage,
    /// Number of the request that waits for its answer, so that a late answer to an earlier request
    /// is recognised.
    number: u32,
    /// An empty line in front of a request was passed over.
    blank: bool,
    /// Bytes of a head that is not whole which were looked at.
    looked: u32,
    /// The request is a HEAD, whose reply has no body, also if it is an error.
    by_head: bool,
    /// The server stops, or the connection has lived for as long as it may: what was there is answered.
    stop: Option<Stop>,
    /// Whether other connections have their turn before the pipelined requests go on.
    gives_way: bool,
    /// Bytes of replies so far, at least those of which the kernel may still hold some; counting stops at the maximum of a
    /// u32.
    replied: u32,
    handler: PhantomData<fn() -> H>,
}

/// Input that had come before the connection was told of a stop.
#[derive(Clone, Copy)]
struct Stop {
    /// Bytes of it that are not consumed.
    left: usize,
    /// Bytes behind it in the input at hand.
    newer: usize,
}

/// The connection's present task.
enum Stage {
    /// The next request's head.
    Head,
    /// A body, to be gathered.
    Gather(Box<Gather>),
    /// A body, or a reply, in pieces.
    Exchange(Box<Exchanging>),
    /// An answer that comes from elsewhere.
    Later(Box<Owed>),
    /// The rest of a body on a request that takes none.
    Discard(Box<Unwanted>),
}

struct Gather {
    /// The bytes of the head, to be parsed again.
    head: Vec<u8>,
    content: Vec<u8>,
    body: Body,
    pace: Pace,
}

struct Exchanging {
    exchange: Box<dyn Exchange>,
    asked: Asked,
    progress: Progress,
    body: Option<Body>,
    /// The exchange knows that the body has ended.
    told_end: bool,
    pace: Pace,
}

struct Owed {
    asked: Asked,
    body: Option<Body>,
    /// Lane of an answer that is computed: work for a closed connection is not begun.
    _lane: Option<Lane<()>>,
}

struct Unwanted {
    body: Body,
    left: u64,
    pace: Pace,
}

/// How `received` goes on.
enum Step {
    On,
    Return(Next),
}

impl<H: Handler> HttpConn<H> {
    pub(crate) fn new() -> HttpConn<H> {
        HttpConn {
            stage: Stage::Head,
            number: 0,
            blank: false,
            looked: 0,
            by_head: false,
            stop: None,
            gives_way: false,
            replied: 0,
            handler: PhantomData,
        }
    }

    /// The next request.
    fn head(
        &mut self,
        share: &mut Share,
        input: &mut Input<'_>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<Step, Fault> {
        if cx.link.full() {
            cx.link.clear_timer();
            return Ok(Step::Return(Next::AfterDrain));
        }
        let bytes = input.bytes();
        if bytes.is_empty() {
            return Ok(Step::Return(Next::More));
        }
        self.by_head = bytes.starts_with(b"HEAD ");
        // Old clients send an empty line behind a body (RFC 9112, 2.2).
        if !self.blank && b"\r\n".starts_with(&bytes[..bytes.len().min(2)]) {
            if bytes.len() == 1 {
                return Ok(self.wait_for_head(cx));
            }
            input.consume(2);
            (self.blank, self.looked) = (true, 0);
            return Ok(Step::On);
        }
        let mut places = head::places();
        let settings = &cx.local.shared.settings;
        if !head::has_news(bytes, self.looked as usize, settings) {
            self.looked = bytes.len() as u32;
            return Ok(self.wait_for_head(cx));
        }
        match head::parse(bytes, &mut places, settings)? {
            Parsed::Part => {
                // Not more than a head may be.
                self.looked = bytes.len() as u32;
                Ok(self.wait_for_head(cx))
            }
            Parsed::Whole(head, len) => {
                (self.blank, self.looked) = (false, 0);
                if cx.link.timer().is_some() {
                    cx.link.clear_timer();
                }
                match head.framing.body {
                    Length::Known(0) => Ok(self.alike(&head, len, share, input, cx)),
                    _ => {
                        cx.local.counts.requests.add();
                        self.with_body(head, len, input, cx)
                    }
                }
            }
        }
    }

    /// A request without a body, and the requests behind it that are equal to the byte, as clients
    /// that pipeline send them. One parsed head holds for all of them, so the others are compared
    /// and not parsed.
    fn alike(
        &mut self,
        head: &Head<'_>,
        len: usize,
        share: &mut Share,
        input: &mut Input<'_>,
        cx: &mut Cx<'_, Self>,
    ) -> Step {
        let request = Request::new(*head, b"");
        let bytes = &input.bytes()[..len];
        loop {
            input.consume(len);
            cx.local.counts.requests.add();
            let mut asked = self.asked(head, input.len(), &cx.link);
            asked.last = !head.framing.keep && input.is_empty();
            if let Step::Return(next) = self.answer(&request, asked, None, cx) {
                return Step::Return(next);
            }
            let goes_on = matches!(self.stage, Stage::Head)
                && input.bytes().starts_with(bytes)
                && !cx.link.is_closing()
                && !cx.link.full();
            if !goes_on {
                return Step::On;
            }
            if share.is_over(|| cx.link.clock()) {
                return self.give_way(cx);
            }
        }
    }

    /// Whether requests that are pipelined have taken so long that others should have their turn.
    fn has_had_its_turn(&self, share: &mut Share, input: &Input<'_>, cx: &Cx<'_, Self>) -> bool {
        let another = matches!(self.stage, Stage::Head) && !input.is_empty();
        another && !cx.link.is_closing() && share.is_over(|| cx.link.clock())
    }

    /// Lets other connections have their turn before this one goes on.
    fn give_way(&mut self, cx: &mut Cx<'_, Self>) -> Step {
        self.gives_way = true;
        cx.link.set_timer_after(Duration::ZERO);
        Step::Return(Next::Paused)
    }

    fn wait_for_head(&self, cx: &mut Cx<'_, Self>) -> Step {
        if cx.link.timer().is_none() {
            cx.link
                .set_timer_after(cx.local.shared.settings.head_timeout);
        }
        Step::Return(Next::More)
    }

    /// `behind`: bytes of input behind the request, as far as it is known where it ends.
    fn asked(&self, head: &Head<'_>, behind: usize, link: &Link<'_>) -> Asked {
        Asked {
            http11: head.minor == 1,
            head: self.by_head,
            keep: head.framing.keep && !self.is_last(behind, link),
            last: false,
        }
    }

    /// Whether a stop has nothing more to be answered than a request with so many bytes behind it.
    fn is_last(&self, behind: usize, link: &Link<'_>) -> bool {
        match &self.stop {
            Some(stop) => behind <= stop.newer,
            None => behind == 0 && link.will_drain(),
        }
    }

    /// A request that has a body.
    fn with_body(
        &mut self,
        head: Head<'_>,
        len: usize,
        input: &mut Input<'_>,
        cx: &mut Cx<'_, Self>,
    ) -> Result<Step, Fault> {
        let length = head.framing.body;
        let mut behind = input.len() - len;
        if let Length::Known(n) = length {
            behind = behind.saturating_sub(usize::try_from(n).unwrap_or(usize::MAX));
        }
        let mut asked = self.asked(&head, behind, &cx.link);
        let mut request = Request::new(head, b"");
        let settings = &cx.local.shared.settings;
        let body = |max| Body::new(length, max, settings.trailers);
        let bytes = input.bytes();
        match cx.local.shared.handler.body(&request) {
            handler::Body::Gather => {
                let body = body(settings.body)?;
                go_on(&head, &mut cx.link);
                if let Length::Known(n) = length
                    && let Ok(n) = usize::try_from(n)
                    && let Some(content) = bytes[len..].get(..n)
                {
                    input.consume(len + n);
                    request.body = content;
                    return Ok(self.answer(&request, asked, None, cx));
                }
                input.consume(len);
                self.stage = Stage::Gather(Box::new(Gather {
                    head: bytes[..len].to_vec(),
                    content: Vec::new(),
                    body,
                    pace: Pace::new(&cx.link),
                }));
                Ok(Step::On)
            }
            handler::Body::Stream => {
                let body = body(settings.streamed)?;
                go_on(&head, &mut cx.link);
                input.consume(len);
                Ok(self.answer(&request, asked, Some(body), cx))
            }
            handler::Body::Ignore => {
                let body = body(u64::MAX)?;
                // A client that waits for leave may have sent nothing, or all.
                let is_small = matches!(length, Length::Known(n) if n <= UNWANTED_MAX);
                asked.keep &= is_small && !head.framing.expects_continue;
                input.consume(len);
                Ok(self.answer(&request, asked, Some(body), cx))
            }
        }
    }

    /// Has the handler answer; `body` is what of the request's body is not read yet.
    fn answer(
        &mut self,
        request: &Request<'_>,
        mut asked: Asked,
        body: Option<Body>,
        cx: &mut Cx<'_, Self>,
    ) -> Step {
        let mut outcome = Outcome::Sent;
        let before = cx.link.queued_len();
        let HttpLocal { shared, wire, .. } = &mut *cx.local;
        let response = Response::new(cx.link.reborrow(), wire, &mut asked, &mut outcome);
        let _ = shared.handler.handle(request, response);
        match outcome {
            Outcome::Sent => self.answered(before, asked, body, cx),
            Outcome::Later(start) => self.owe(start, asked, body, cx),
            Outcome::Pooled(pool, work) => self.compute((pool, work), asked, body, cx),
            Outcome::Streamed(exchange, length) => {
                let progress = length.map_or(Progress::Unstarted, Progress::Body);
                let mut exchanging = Box::new(Exchanging {
                    exchange,
                    asked,
                    progress,
                    body,
                    told_end: false,
                    pace: Pace::new(&cx.link),
                });
                exchanging.with(cx, |exchange, reply| exchange.room(reply));
                self.stage = Stage::Exchange(exchanging);
                Step::On
            }
        }
    }

    /// The reply is written; `before`: bytes that were queued in front of it.
    #[inline]
    fn answered(
        &mut self,
        before: usize,
        asked: Asked,
        body: Option<Body>,
        cx: &mut Cx<'_, Self>,
    ) -> Step {
        if !matches!(self.stage, Stage::Head) {
            self.stage = Stage::Head;
        }
        let len = u32::try_from(cx.link.queued_len().saturating_sub(before)).unwrap_or(u32::MAX);
        self.replied = self.replied.saturating_add(len);
        let is_stopped = matches!(self.stop, Some(Stop { left: 0, .. }));
        if asked.last && self.replied <= UNLINGERED_MAX {
            cx.link.finish_without_waiting();
        } else if !asked.keep || is_stopped {
            cx.link.finish();
        } else if let Some(body) = body.filter(|body| !body.is_done()) {
            self.stage = Stage::Discard(Box::new(Unwanted {
                body,
                left: UNWANTED_MAX,
                pace: Pace::new(&cx.link),
            }));
        }
        Step::On
    }

    /// Lets the answer come from elsewhere.
    fn owe(
        &mut self,
        start: Box<dyn FnOnce(Later)>,
        asked: Asked,
        body: Option<Body>,
        cx: &mut Cx<'_, Self>,
    ) -> Step {
        let Ok(permit) = cx.handle().reserve() else {
            let why = Fault::new(503, "too many answers are owed");
            return self.turn_away(why, asked, body, cx);
        };
        let number = self.wait_for_answer(asked, body, None);
        start(Later {
            permit: Some(permit),
            number,
        });
        Step::Return(Next::Paused)
    }

    /// Lets the answer be computed elsewhere.
    fn compute(
        &mut self,
        (pool, work): (Pool, Work),
        asked: Asked,
        body: Option<Body>,
        cx: &mut Cx<'_, Self>,
    ) -> Step {
        let mut lane = Lane::new(1);
        let Ok(place) = lane.reserve(&pool, &cx.handle()) else {
            let why = Fault::new(503, "the workers are busy");
            return self.turn_away(why, asked, body, cx);
        };
        let number = self.number.wrapping_add(1);
        lane.run(place, work, move |_, answer| Message {
            number,
            answer: answer.ok(),
        });
        self.wait_for_answer(asked, body, Some(lane));
        Step::Return(Next::Paused)
    }

    /// The number of the answer that is owed now.
    fn wait_for_answer(&mut self, asked: Asked, body: Option<Body>, lane: Option<Lane<()>>) -> u32 {
        self.stage = Stage::Later(Box::new(Owed {
            asked,
            body,
            _lane: lane,
        }));
        self.number = self.number.wrapping_add(1);
        self.number
    }

    /// Answers a request that is in order, but for which there is no room.
    fn turn_away(
        &mut self,
        why: Fault,
        mut asked: Asked,
        body: Option<Body>,
        cx: &mut Cx<'_, Self>,
    ) -> Step {
        cx.local.counts.refused(why.status);
        log(why, cx);
        let mut outcome = Outcome::Sent;
        let before = cx.link.queued_len();
        let wire = &mut cx.local.wire;
        let response = Response::new(cx.link.reborrow(), wire, &mut asked, &mut outcome);
        let _ = response
            .header("retry-after", "1")
            .error(why.status, why.reason);
        self.answered(before, asked, body, cx)
    }

    /// Gathers more of a request's body.
    fn gather(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Result<Step, Fault> {
        let Stage::Gather(gather) = &mut self.stage else {
            return Ok(Step::On);
        };
        let settings = &cx.local.shared.settings;
        match gather.body.next(input)? {
            Piece::Content(n) => {
                if !cx.local.shared.gather(n) {
                    return Err(Fault::new(
                        503,
                        "too many request bodies are being received",
                    ));
                }
                gather.content.extend_from_slice(&input.bytes()[..n]);
                input.consume(n);
                gather.body.took(n);
                gather.pace.took(n);
                Ok(Step::On)
            }
            Piece::Wait => {
                gather.pace.wait(&mut cx.link, settings);
                Ok(Step::Return(Next::More))
            }
            Piece::End(trailers) => {
                cx.link.clear_timer();
                let Stage::Gather(gather) = std::mem::replace(&mut self.stage, Stage::Head) else {
                    return Ok(Step::On);
                };
                cx.local.shared.gathered_no_more(gather.content.len());
                let mut places = head::places();
                let shared = cx.local.shared.clone();
                // The head was parsed before, when it arrived.
                let Parsed::Whole(head, _) =
                    head::parse(&gather.head, &mut places, &shared.settings)?
                else {
                    return Ok(Step::On);
                };
                let asked = self.asked(&head, input.len(), &cx.link);
                let request = Request::new(head, &gather.content);
                if trailers.is_empty() {
                    return Ok(self.answer(&request, asked, None, cx));
                }
                let mut step = Step::On;
                body::with_fields(trailers, |trailers| {
                    let request = Request {
                        trailers,
                        ..request
                    };
                    step = self.answer(&request, asked, None, cx);
                })?;
                Ok(step)
            }
        }
    }

    /// Gives more of a request's body to the request's exchange.
    fn exchange(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Result<Step, Fault> {
        let Stage::Exchange(it) = &mut self.stage else {
            return Ok(Step::On);
        };
        it.pace.unblock(&cx.link);
        if it.progress == Progress::Ended {
            return Ok(self.exchanged(cx));
        }
        if it.told_end {
            return Ok(Step::Return(Next::Paused));
        }
        let Some(body) = &mut it.body else {
            it.told_end = true;
            it.with(cx, |exchange, reply| exchange.end(Headers::NONE, reply));
            return Ok(Step::On);
        };
        match body.next(input)? {
            Piece::Content(len) => {
                if cx.link.full() {
                    it.pace.block(&mut cx.link);
                    return Ok(Step::Return(Next::AfterDrain));
                }
                let mut data = Data { input, len };
                it.with(cx, |exchange, reply| exchange.data(&mut data, reply));
                let took = len - data.len;
                if let Some(body) = &mut it.body {
                    body.took(took);
                }
                it.pace.took(took);
                if took < len && it.progress != Progress::Ended && !cx.link.full() {
                    cx.link.abort_because("a handler left a body without need");
                }
                Ok(Step::On)
            }
            Piece::Wait => {
                it.pace.wait(&mut cx.link, &cx.local.shared.settings);
                Ok(Step::Return(Next::More))
            }
            Piece::End(trailers) => {
                cx.link.clear_timer();
                it.told_end = true;
                if trailers.is_empty() {
                    it.with(cx, |exchange, reply| exchange.end(Headers::NONE, reply));
                } else {
                    body::with_fields(trailers, |trailers| {
                        it.with(cx, |exchange, reply| exchange.end(trailers, reply));
                    })?;
                }
                Ok(Step::On)
            }
        }
    }

    /// A streamed reply has ended.
    fn exchanged(&mut self, cx: &mut Cx<'_, Self>) -> Step {
        let Stage::Exchange(it) = std::mem::replace(&mut self.stage, Stage::Head) else {
            return Step::On;
        };
        cx.link.clear_timer();
        let Exchanging {
            mut asked, body, ..
        } = *it;
        // The kernel may still have much of the reply.
        asked.last = false;
        self.replied = u32::MAX;
        self.answered(cx.link.queued_len(), asked, body, cx)
    }

    /// Discards more of the body of a request whose handler takes none.
    fn discard(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Result<Step, Fault> {
        let Stage::Discard(it) = &mut self.stage else {
            return Ok(Step::On);
        };
        let there = input.len();
        match it.body.next(input) {
            Ok(Piece::Content(n)) => {
                input.consume(n);
                it.body.took(n);
                it.pace.took(n);
            }
            Ok(Piece::Wait) => {
                it.pace.wait(&mut cx.link, &cx.local.shared.settings);
                return Ok(Step::Return(Next::More));
            }
            Ok(Piece::End(_)) => {
                cx.link.clear_timer();
                self.stage = Stage::Head;
                return Ok(Step::On);
            }
            // The request has its reply already; a second reply would be taken for the reply to the
            // next request.
            Err(fault) => {
                cx.local.counts.refused(fault.status);
                cx.link.finish_because(fault.reason);
                return Ok(Step::On);
            }
        }
        let took = (there - input.len()) as u64;
        match it.left.checked_sub(took) {
            Some(left) => it.left = left,
            None => cx
                .link
                .finish_because("a body on a request that takes none"),
        }
        Ok(Step::On)
    }

    /// Answers what cannot be obeyed, and ends the connection.
    fn refuse(&mut self, fault: Fault, cx: &mut Cx<'_, Self>) {
        // A reader of the counter must find the room free.
        if let Stage::Gather(gather) = &self.stage {
            cx.local.shared.gathered_no_more(gather.content.len());
        }
        cx.local.counts.refused(fault.status);
        log(fault, cx);
        if let Stage::Exchange(it) = &self.stage
            && it.progress != Progress::Unstarted
        {
            // A part of the reply is written.
            return self.end_early(fault.reason, cx);
        }
        self.stage = Stage::Head;
        let mut asked = Asked {
            http11: true,
            head: self.by_head,
            keep: false,
            last: false,
        };
        let mut outcome = Outcome::Sent;
        let wire = &mut cx.local.wire;
        let mut response = Response::new(cx.link.reborrow(), wire, &mut asked, &mut outcome);
        if fault.status == 503 {
            response = response.header("retry-after", "1");
        }
        let _ = response.error(fault.status, fault.reason);
        cx.link.finish_because(fault.reason);
    }

    /// Ends the connection before its reply is complete. The client can see that the rest of the reply is
    /// missing, unless the end of the connection was to mark the end of the reply: then the connection is
    /// reset.
    fn end_early(&self, reason: &'static str, cx: &mut Cx<'_, Self>) {
        match &self.stage {
            Stage::Exchange(it) if it.progress == Progress::Body(kind::Length::Closing) => {
                cx.link.abort_because(reason);
            }
            _ => cx.link.finish_because(reason),
        }
    }

    /// Answers requests, as far as they have come and may be answered now.
    fn go_on(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let mut share = Share::default();
        loop {
            if cx.link.is_closing() {
                return Next::More;
            }
            let step = match self.stage {
                Stage::Head => self.head(&mut share, input, cx),
                Stage::Gather(_) => self.gather(input, cx),
                Stage::Exchange(_) => self.exchange(input, cx),
                Stage::Discard(_) => self.discard(input, cx),
                Stage::Later(_) => return Next::Paused,
            };
            let step = match step {
                Ok(Step::On) if self.has_had_its_turn(&mut share, input, cx) => {
                    Ok(self.give_way(cx))
                }
                step => step,
            };
            match step {
                Ok(Step::On) => {}
                Ok(Step::Return(next)) => {
                    let waits = matches!((&self.stage, next), (Stage::Head, Next::More));
                    if self.stop.is_some() && waits && self.looked == 0 {
                        cx.link.finish();
                    }
                    return next;
                }
                Err(fault) => self.refuse(fault, cx),
            }
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_, Self>) {
        let deadline = match &self.stage {
            Stage::Head => {
                return self.refuse(Fault::new(408, "the head came too slowly"), cx);
            }
            Stage::Later(_) => return,
            Stage::Gather(gather) => &gather.pace,
            Stage::Exchange(it) => &it.pace,
            Stage::Discard(it) => &it.pace,
        }
        .deadline(&cx.local.shared.settings);
        if cx.link.now() < deadline {
            // The body has earned more time since the timer was set.
            return cx.link.set_timer(deadline);
        }
        match self.stage {
            Stage::Discard(_) => cx.link.finish_because("a body came too slowly"),
            _ => self.refuse(Fault::new(408, "the body came too slowly"), cx),
        }
    }
}

impl Exchanging {
    fn with<H: Handler>(
        &mut self,
        cx: &mut Cx<'_, HttpConn<H>>,
        f: impl FnOnce(&mut dyn Exchange, &mut Reply<'_>),
    ) {
        let mut reply = Reply {
            link: cx.link.reborrow(),
            wire: &mut cx.local.wire,
            asked: &mut self.asked,
            progress: &mut self.progress,
        };
        f(&mut *self.exchange, &mut reply);
    }
}

impl<H: Handler> Protocol for HttpConn<H> {
    type Local = HttpLocal<H>;
    type Message = Message;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if let Some(stop) = &mut self.stop {
            stop.newer = input.len().saturating_sub(stop.left);
        }
        let next = self.go_on(input, cx);
        if let Some(stop) = &mut self.stop {
            stop.left = input.len().saturating_sub(stop.newer);
        }
        next
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        if let Stage::Exchange(it) = &mut self.stage
            && it.progress != Progress::Ended
        {
            it.with(cx, |exchange, reply| exchange.room(reply));
            if it.progress == Progress::Ended {
                self.exchanged(cx);
                cx.link.resume();
            }
        }
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        match &self.stage {
            Stage::Head if unread == 0 => cx.link.finish(),
            Stage::Head => cx.link.finish_because("a head that was cut short"),
            // Not told before the reply is whole, because reading is paused.
            Stage::Later(_) => {}
            Stage::Exchange(it) if it.told_end => {}
            Stage::Gather(_) | Stage::Discard(_) | Stage::Exchange(_) => {
                self.end_early("a body that was cut short", cx);
            }
        }
    }

    /// A request names its own end, so that its answer does not depend on bytes that might follow it.
    fn cut_short(&mut self, unread: usize, why: &'static str, cx: &mut Cx<'_, Self>) {
        match &self.stage {
            Stage::Head if unread == 0 => cx.link.finish_because(why),
            _ => self.peer_finished(unread, cx),
        }
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.gives_way) {
            return cx.link.resume();
        }
        self.expire(cx);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        match self.stage {
            // The holder of `Later` decides how long the answer takes.
            Stage::Later(_) => {}
            Stage::Exchange(_) => self.end_early("nothing moved in the middle of an exchange", cx),
            Stage::Head | Stage::Gather(_) | Stage::Discard(_) => cx.link.finish(),
        }
    }

    fn posted(&mut self, message: Message, cx: &mut Cx<'_, Self>) {
        if message.number != self.number {
            return;
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Head);
        let Stage::Later(owed) = stage else {
            self.stage = stage;
            return;
        };
        let Owed {
            mut asked, body, ..
        } = *owed;
        asked.keep &= self.stop.is_none_or(|stop| stop.left > 0);
        let mut outcome = Outcome::Sent;
        let before = cx.link.queued_len();
        let wire = &mut cx.local.wire;
        let mut response = Response::new(cx.link.reborrow(), wire, &mut asked, &mut outcome);
        let _ = match message.answer {
            Some(answer) => {
                response.status = answer.status;
                response.bad = answer.bad;
                response.wire.fields.extend_from_slice(&answer.fields);
                response.shared(answer.body)
            }
            None => response.error(500, "there is no answer"),
        };
        self.answered(before, asked, body, cx);
        cx.link.resume();
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        self.stop = Some(Stop {
            left: cx.link.unread_len(),
            newer: 0,
        });
        // Requests that came before the stop are answered, also behind an answer that is owed, or if the connection
        // gives way to others. A head that has begun may come to its end.
        if matches!(self.stage, Stage::Head) && !self.gives_way && self.looked == 0 {
            cx.link.finish();
        }
    }

    fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
        if let Stage::Gather(gather) = &self.stage {
            turn.local.shared.gathered_no_more(gather.content.len());
        }
    }
}

/// Tells a client to send its body, if it waits for that. Said whether or not the body is there
/// already: what is answered does not depend on how the input was cut.
fn go_on(head: &Head<'_>, link: &mut Link<'_>) {
    if head.framing.expects_continue {
        link.write(CONTINUE);
    }
}

/// A client can have this said as often as it can connect.
fn log<H: Handler>(fault: Fault, cx: &Cx<'_, HttpConn<H>>) {
    if let Some(held_back) = cx.local.shared.refusals.pass(cx.link.now()) {
        let peer = &cx.link.peer().endpoint;
        let Fault { status, reason } = fault;
        tracing::warn!(%peer, status, reason, held_back, "refusing a request");
    }
}

impl<H> fmt::Debug for HttpConn<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.stage {
            Stage::Head => "HttpConn(at a head)",
            Stage::Gather(_) => "HttpConn(gathering a body)",
            Stage::Exchange(_) => "HttpConn(streaming)",
            Stage::Later(_) => "HttpConn(owing an answer)",
            Stage::Discard(_) => "HttpConn(dropping a body)",
        })
    }
}
