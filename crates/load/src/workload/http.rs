//! The HTTP load: a request, or several of which one is drawn each time; every reply is checked.
//!
//! The idea: all replies to a request must say the same. The first whole body that comes to any connection is what
//! all others are compared with, unless it has to be the request's own.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use tidewire::{Instant, Link};

use super::client::Driver;
use super::fault::Wrong;
use super::flight::Flight;
use super::http_reply::{Expected, Replies};
use super::stage::Desk;
use super::turns::Slot;
use crate::random::SplitMix64;

/// A request of a load.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpRequest {
    /// It as it is sent.
    pub bytes: Vec<u8>,
    /// How often it is sent beside the others; above 0.
    pub weight: f64,
}

/// Requests and their replies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HttpLoad {
    /// The requests, 1 to [`HttpLoad::REQUESTS_MAX`]. Made once for the whole process, so that loads can be copied.
    #[serde(skip)]
    pub requests: &'static [HttpRequest],
    /// Their method and targets, to be shown.
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

/// What makes the connections.
pub(super) struct Https {
    load: HttpLoad,
    slots: Arc<[Slot]>,
    bodies: Arc<[OnceLock<Vec<u8>>]>,
}

impl Https {
    pub(super) fn new(load: HttpLoad, slots: Arc<[Slot]>) -> Https {
        let body = || match load.body {
            Some(body) => OnceLock::from(body.to_vec()),
            None => OnceLock::new(),
        };
        Https {
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
            replies: Replies::new(expected),
            flight,
            spent: false,
        }
    }
}

/// One connection of it.
pub(super) struct Http {
    all: Arc<Https>,
    connection: u64,
    /// The numbers of the requests in flight, if there are several to draw from.
    asked: VecDeque<u8>,
    random: SplitMix64,
    in_flight: u32,
    replies: Replies,
    flight: Flight,
    /// Its one request is sent.
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

impl Driver for Http {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
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
        if replies > 0 {
            desk.count(replies.into(), used as u64);
            self.in_flight -= replies;
            self.flight.answered(replies.into(), link, desk);
            if !self.all.load.close {
                self.send(link, desk);
            }
        }
        Ok(used)
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
        self.slot().left() == 0 && self.in_flight == 0
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
