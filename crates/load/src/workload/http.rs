//! The HTTP load: one request, over and over; every reply is checked.
//!
//! The idea: all replies must say the same. The first whole body that comes to any connection is what
//! all others are compared with, unless it has to be the request's own.

use std::sync::{Arc, OnceLock};

use serde::Serialize;
use tidewire::{Instant, Link};

use super::client::Driver;
use super::fault::Wrong;
use super::flight::Flight;
use super::http_reply::{Expected, Replies};
use super::stage::Desk;
use super::turns::Slot;

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
}

/// What makes the connections.
pub(super) struct Https {
    load: HttpLoad,
    slots: Arc<[Slot]>,
    expected: Arc<OnceLock<Vec<u8>>>,
}

impl Https {
    pub(super) fn new(load: HttpLoad, slots: Arc<[Slot]>) -> Https {
        let expected = OnceLock::new();
        if let Some(body) = load.body {
            let _ = expected.set(body.to_vec());
        }
        Https {
            load,
            slots,
            expected: Arc::new(expected),
        }
    }

    /// `flight` has the times, unless each request has a connection: then the slot has them.
    pub(super) fn connection(self: &Arc<Https>, connection: u64, flight: Flight) -> Http {
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
            flight,
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
        for _ in 0..requests {
            link.write(self.all.load.request);
        }
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong> {
        let (used, replies) = self.replies.take(bytes, self.in_flight)?;
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
