//! The HTTP load: a request, or several of which one is drawn each time; every reply is checked.
//!
//! The idea: all replies to a request must say the same. The first whole body that comes to any connection is what
//! all others are compared with, unless it has to be the request's own.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::{Value, json};
use tidewire::{Closed, Instant, Link};

use super::client::{Driver, is_lost_by_peer};
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::fault::Wrong;
use super::findings::Moved;
use super::flight::Flight;
use super::generator::Watch;
use super::http_body::Body;
use super::http_reply::{Expected, Replies};
use super::load::{Baseline, Load, Scripted, Workload};
use super::null::{self, Answers};
use super::stage::Desk;
use super::turns::Slot;
use crate::random::SplitMix64;

/// A request of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// The bytes of the request.
    pub bytes: Vec<u8>,
    /// How often the request is sent, relative to other requests; above 0.
    pub weight: f64,
}

/// Requests and their replies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HttpLoad {
    /// The requests, 1 to [`HttpLoad::REQUESTS_MAX`]. Made once for the whole process, so that loads can be copied.
    #[serde(skip)]
    pub requests: &'static [HttpRequest],
    /// Method and targets of the requests, to be shown.
    pub shown: &'static str,
    /// The reply has no body: the method is HEAD.
    pub head: bool,
    /// The status that every reply must have.
    pub status: u16,
    /// Length of every reply's body, if it is to be another than that of the first.
    pub length: Option<u64>,
    /// The body that every reply must have, if it is to be another than that of the first.
    #[serde(skip)]
    pub body: Option<&'static [u8]>,
    /// Requests in flight on each connection, at least 1.
    pub pipeline: u32,
    /// Each request has a connection of its own, and must itself ask the server to close it.
    pub close: bool,
}

impl HttpLoad {
    /// Most requests of a load.
    pub const REQUESTS_MAX: usize = 64;

    /// The number of the request that chance, from 0 to less than 1, has drawn.
    fn draw(&self, chance: f64) -> u8 {
        let sum: f64 = self.requests.iter().map(|request| request.weight).sum();
        let mut left = chance * sum;
        let drawn = self.requests.iter().position(|request| {
            left -= request.weight;
            left < 0.0
        });
        drawn.unwrap_or(self.requests.len() - 1) as u8
    }
}

impl Load for HttpLoad {
    fn name(&self) -> &'static str {
        "http"
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn described(&self) -> String {
        let how = match self.close {
            true => "a connection for each".to_owned(),
            false => format!("{} in flight", self.pipeline),
        };
        format!("http {}, {how}", self.shown)
    }

    fn is_lock_step(&self) -> bool {
        self.pipeline == 1
    }

    fn renews(&self) -> bool {
        true
    }

    fn counted(&self) -> Option<Scripted> {
        let own = Workload::of(*self);
        if self.close {
            return Some(Scripted::connections(own));
        }
        let sizes = self.requests.iter().map(|request| request.bytes.len());
        Some(Scripted::rounds(
            own,
            self.pipeline,
            sizes.max().unwrap_or(0),
        ))
    }

    fn baseline(&self) -> Baseline {
        match self.requests {
            [request] => Baseline::Null(null::Replies::Made(Box::new(OneReply {
                request: request.bytes.len(),
                reply: one_reply(self),
                close: self.close,
            }))),
            _ => Baseline::Unknown("with one --path"),
        }
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let (load, dealt) = (*self, execution.dealt());
        let connections = dealt.connections;
        // With a connection for each request, what follows has the times.
        let pace = move |connection, is_wanted: bool| {
            is_wanted
                .then(|| dealt.pace(connection, connections))
                .flatten()
        };
        let slot = |connection| Slot::new(dealt.count(connection), pace(connection, load.close));
        let slots = (0..connections as u64).map(slot).collect();
        let all = Arc::new(Https::new(load, slots));
        let bodies = all.bodies.clone();
        let mut made = execution.go(false, watch, move |connection| {
            all.connection(connection, Flight::new(pace(connection, !load.close)))
        })?;
        let lengths = bodies.iter().map(|body| Some(body.get()?.len));
        made.share.body_bytes = lengths.sum::<Option<u64>>().filter(|_| !load.head);
        Ok(made)
    }
}

/// One reply to every request, of a known length.
struct OneReply {
    request: usize,
    reply: Vec<u8>,
    close: bool,
}

impl Answers for OneReply {
    fn answer(&self, input: &[u8], out: &mut Vec<u8>) -> usize {
        let requests = input.len() / self.request;
        for _ in 0..requests {
            out.extend_from_slice(&self.reply);
        }
        requests * self.request
    }

    fn closes(&self) -> bool {
        self.close
    }
}

fn one_reply(load: &HttpLoad) -> Vec<u8> {
    let length = load.length.map_or(2, |length| length as usize);
    let body = load.body.map_or_else(|| vec![b'x'; length], <[u8]>::to_vec);
    let mut reply = format!("HTTP/1.1 {} Null\r\n", load.status).into_bytes();
    // Statuses that have no body, and no length of one.
    if matches!(load.status, 204 | 304) {
        reply.extend_from_slice(b"\r\n");
        return reply;
    }
    reply.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
    if !load.head {
        reply.extend_from_slice(&body);
    }
    reply
}

/// The TLS settings of the connections.
pub(super) struct Https {
    load: HttpLoad,
    slots: Arc<[Slot]>,
    bodies: Arc<[OnceLock<Body>]>,
    /// Whether requests may be sent again when it is unknown whether the server has seen them (RFC
    /// 9110, section 9.2.2).
    idempotent: bool,
}

/// Methods of requests that may be sent again.
const IDEMPOTENT: [&[u8]; 6] = [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE"];
/// Connections in a row that the server may close without a reply to anything, if it owes nothing.
const BARREN_MAX: u32 = 8;

impl Https {
    pub(super) fn new(load: HttpLoad, slots: Arc<[Slot]>) -> Https {
        let body = || match load.body {
            Some(body) => OnceLock::from(Body::of(body)),
            None => OnceLock::new(),
        };
        let is_idempotent = |request: &HttpRequest| {
            let method = request.bytes.split(|&b| b == b' ').next();
            method.is_some_and(|method| IDEMPOTENT.contains(&method))
        };
        Https {
            idempotent: load.requests.iter().all(is_idempotent),
            load,
            slots,
            bodies: load.requests.iter().map(|_| body()).collect(),
        }
    }

    /// `flight` has the times, unless each request has a connection: then the slot has them.
    pub(super) fn connection(self: &Arc<Https>, connection: u64, flight: Flight) -> Http {
        let expected = Expected {
            head: self.load.head,
            status: self.load.status,
            length: self.load.length,
            bodies: self.bodies.clone(),
        };
        Http {
            all: self.clone(),
            connection,
            asked: VecDeque::new(),
            random: SplitMix64::new(connection),
            in_flight: 0,
            again: 0,
            replied: false,
            barren: 0,
            replies: Replies::new(expected),
            flight,
            spent: false,
        }
    }
}

/// One connection of the load.
pub(super) struct Http {
    all: Arc<Https>,
    connection: u64,
    /// The numbers of the requests in flight, if there are several to draw from.
    asked: VecDeque<u8>,
    random: SplitMix64,
    in_flight: u32,
    /// Requests that were in flight on the connection before, and go out first.
    again: u32,
    /// A reply has come on this connection.
    replied: bool,
    /// Connections in a row on which none did.
    barren: u32,
    replies: Replies,
    flight: Flight,
    /// The connection's one request is sent.
    spent: bool,
}

impl Http {
    fn slot(&self) -> &Slot {
        &self.all.slots[self.connection as usize]
    }

    /// How many requests go out now.
    fn take(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> u64 {
        let left = self.slot().left();
        if !self.all.load.close {
            let room = u64::from(self.all.load.pipeline - self.in_flight);
            return self.flight.take(room.min(left), link, desk);
        }
        if self.spent || left == 0 {
            return 0;
        }
        let all = self.all.clone();
        u64::from(all.slots[self.connection as usize].begin(&mut self.flight, link))
    }
}

impl Http {
    /// Sends what the connection before still owed.
    fn send_again(&mut self, link: &mut Link<'_>) {
        let again = std::mem::take(&mut self.again);
        self.in_flight += again;
        let requests = self.all.load.requests;
        match requests.len() {
            1 => (0..again).for_each(|_| link.write(&requests[0].bytes)),
            _ => {
                let numbers = self.asked.iter().take(again as usize);
                numbers.for_each(|number| link.write(&requests[usize::from(*number)].bytes));
            }
        }
    }

    fn answered(&mut self, replies: u32, link: &mut Link<'_>, desk: &mut Desk) {
        self.replied = true;
        self.in_flight -= replies;
        self.flight.answered(replies.into(), link, desk);
    }

    /// Begins on another connection, with so many requests to be sent again.
    fn restart(&mut self, again: u32) {
        self.replies.restart();
        (self.in_flight, self.again, self.replied) = (0, again, false);
    }
}

impl Driver for Http {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        if self.replies.is_last() {
            return;
        }
        self.send_again(link);
        let requests = self.take(link, desk);
        if requests == 0 {
            return;
        }
        self.slot().spend(requests);
        // At most the pipeline, which is a u32.
        self.in_flight += requests as u32;
        self.spent = true;
        let load = &self.all.load;
        for _ in 0..requests {
            let number = match load.requests.len() {
                1 => 0,
                _ => {
                    let number = load.draw(self.random.uniform());
                    self.asked.push_back(number);
                    number
                }
            };
            link.write(&load.requests[usize::from(number)].bytes);
        }
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        let (used, replies) = self.replies.take(bytes, self.in_flight, &mut self.asked)?;
        // A reply may come in many pieces: its bytes count as they come.
        desk.count(replies.into(), used as u64);
        if replies > 0 {
            self.answered(replies, link, desk);
            if self.all.load.close {
                return Ok(used);
            }
            self.send(link, desk);
            if self.replies.was_last() {
                link.finish();
            }
        }
        Ok(used)
    }

    fn finished(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        if self.replies.finished(&mut self.asked)? {
            desk.count(1, 0);
            self.answered(1, link, desk);
        }
        Ok(())
    }

    /// A server may close a connection after a reply that announces it. According to RFC 9112, section 9.5, it may also
    /// close any connection on which it has answered: at a limit of requests, after an idle time, on a reload. A server
    /// may not close a connection in the middle of a reply, nor before its first reply.
    fn moves(&mut self, why: Closed) -> Option<Moved> {
        if self.all.load.close || self.replies.is_in_one() || !is_lost_by_peer(why) {
            return None;
        }
        let announced = self.replies.was_last();
        self.barren = match self.replied {
            true => 0,
            false => self.barren + 1,
        };
        let owed = self.in_flight + self.again;
        let may = match (announced, self.replied, owed) {
            (true, ..) => true,
            (false, true, 0) => true,
            (false, true, _) => self.all.idempotent,
            (false, false, 0) => self.barren <= BARREN_MAX,
            (false, false, _) => false,
        };
        may.then(|| {
            self.restart(owed);
            Moved {
                resent: owed.into(),
                announced,
                barren: self.barren,
            }
        })
    }

    fn abandon(&mut self, _: &mut Desk) -> Option<u64> {
        let owed = self.in_flight + self.again;
        self.flight.forget();
        self.asked.clear();
        self.restart(0);
        Some(owed.into())
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        self.send(link, desk);
        Ok(())
    }

    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.flight.end(self.slot().left(), link, desk);
        self.slot().end(link, desk);
    }

    fn is_done(&self) -> bool {
        self.slot().left() == 0 && self.in_flight == 0 && self.again == 0
    }

    fn is_waiting(&self) -> bool {
        self.in_flight > 0
    }

    fn is_in_a_reply(&self) -> bool {
        self.replies.is_in_one()
    }

    fn follows(&self, now: Instant) -> Option<Instant> {
        let spent = self.all.load.close && self.spent && self.in_flight == 0;
        spent.then(|| self.slot().follow(now))
    }

    fn owed(&self) -> String {
        format!(
            "{} of {} requests in flight unanswered",
            self.in_flight, self.all.load.pipeline
        )
    }
}
