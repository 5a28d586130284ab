//! The HTTP load: one request, over and over; every reply is checked.
//!
//! The idea: all replies must say the same. The first whole body that comes to any connection is what
//! all others are compared with, unless it has to be the request's own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use tidewire::{Instant, Link};

use super::client::Driver;
use super::http_reply::{Expected, Replies};
use super::pace::Pace;
use super::stage::Desk;

/// A request and its reply.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HttpLoad {
    /// The request as it is sent. Made once for the whole process, so that loads can be copied.
    #[serde(skip)]
    pub request: &'static [u8],
    /// Its method and target, to be shown.
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
    /// A connection for each request. The request has to ask for it.
    pub close: bool,
    /// Requests a second, over all connections, each sent at its time as far as the pipeline has
    /// room, its latency counted from that time. `None` sends as soon as there is room. Not with
    /// `close`.
    pub rate: Option<f64>,
}

/// What the connections that follow each other with one token share.
struct Turn {
    /// Requests still to be sent; `u64::MAX` has no end.
    left: AtomicU64,
    /// When the present connection was dialled, nanoseconds; 0 if not by the one before.
    dialled: AtomicU64,
}

/// What makes the connections.
pub(super) struct Https {
    load: HttpLoad,
    turns: Vec<Turn>,
    expected: Arc<OnceLock<Vec<u8>>>,
}

impl Https {
    /// `count` says how many requests each connection sends.
    pub(super) fn new(load: HttpLoad, connections: usize, count: impl Fn(u64) -> u64) -> Https {
        let turn = |connection| Turn {
            left: AtomicU64::new(count(connection)),
            dialled: AtomicU64::new(0),
        };
        let expected = OnceLock::new();
        if let Some(body) = load.body {
            let _ = expected.set(body.to_vec());
        }
        Https {
            load,
            turns: (0..connections as u64).map(turn).collect(),
            expected: Arc::new(expected),
        }
    }

    pub(super) fn connection(self: &Arc<Https>, connection: u64) -> Http {
        let connections = self.turns.len();
        let expected = Expected {
            head: self.load.head,
            status: self.load.status,
            length: self.load.length,
            body: self.expected.clone(),
        };
        Http {
            all: self.clone(),
            connection,
            in_flight: 0,
            replies: Replies::new(expected),
            sends: VecDeque::new(),
            pace: self
                .load
                .rate
                .map(|rate| Pace::new(rate, connection, connections)),
            spent: false,
        }
    }
}

/// One connection of it.
pub(super) struct Http {
    all: Arc<Https>,
    connection: u64,
    in_flight: u32,
    replies: Replies,
    /// How many requests were sent when, for those in flight.
    sends: VecDeque<(u32, Instant)>,
    pace: Option<Pace>,
    /// Its one request is sent.
    spent: bool,
}

impl Http {
    fn turn(&self) -> &Turn {
        &self.all.turns[self.connection as usize]
    }

    fn left(&self) -> u64 {
        self.turn().left.load(Relaxed)
    }

    fn room(&self) -> u32 {
        let load = &self.all.load;
        let room = match load.close {
            true => u32::from(!self.spent),
            false => load.pipeline - self.in_flight,
        };
        room.min(u32::try_from(self.left()).unwrap_or(u32::MAX))
    }

    fn sent(&mut self, requests: u32) {
        // Connections of one token follow each other, so nobody else writes here.
        let left = self.left();
        if left != u64::MAX {
            self.turn().left.store(left - u64::from(requests), Relaxed);
        }
        self.in_flight += requests;
        self.spent = true;
    }

    /// Takes `replies` off the front of those in flight.
    fn answered(&mut self, mut replies: u32, link: &Link<'_>, desk: &mut Desk) {
        self.in_flight -= replies;
        let now = desk.measuring().then(|| link.clock());
        while replies > 0 {
            let (waiting, at) = self.sends.front_mut().expect("every request was sent");
            let these = replies.min(*waiting);
            if let Some(now) = now {
                desk.latency(now.since(*at), u64::from(these));
            }
            *waiting -= these;
            replies -= these;
            if *waiting == 0 {
                self.sends.pop_front();
            }
        }
    }
}

impl Driver for Http {
    fn send(&mut self, link: &mut Link<'_>, _: &mut Desk) {
        let mut requests = self.room();
        if requests == 0 || link.full() {
            return;
        }
        let now = link.clock();
        if let Some(pace) = &mut self.pace {
            let sends = &mut self.sends;
            let due = pace.take_due(requests.into(), now, |at| sends.push_back((1, at)));
            requests = due as u32;
            if let Some(next) = pace.next(now) {
                link.set_timer(next);
            }
            if requests == 0 {
                return;
            }
        } else {
            // A connection for each request costs the client its making, too.
            let since = match self.turn().dialled.load(Relaxed) {
                0 => now,
                ns => Instant::from_nanos(ns),
            };
            self.sends.push_back((requests, since));
        }
        self.sent(requests);
        for _ in 0..requests {
            link.write(self.all.load.request);
        }
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, String> {
        let (used, replies) = self.replies.take(bytes, self.in_flight)?;
        if replies > 0 {
            desk.count(replies.into(), used as u64);
            self.answered(replies, link, desk);
            if !self.all.load.close {
                self.send(link, desk);
            }
        }
        Ok(used)
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.send(link, desk);
    }

    fn end(&mut self, link: &mut Link<'_>) {
        link.clear_timer();
        self.turn().left.store(0, Relaxed);
    }

    fn is_done(&self) -> bool {
        self.left() == 0 && self.in_flight == 0
    }

    fn is_waiting(&self) -> bool {
        self.in_flight > 0
    }

    fn follows(&self, now: Instant) -> bool {
        self.turn().dialled.store(now.as_nanos(), Relaxed);
        self.all.load.close && self.spent && self.in_flight == 0
    }

    fn owed(&self) -> String {
        format!(
            "{} of {} requests in flight unanswered",
            self.in_flight, self.all.load.pipeline
        )
    }
}
