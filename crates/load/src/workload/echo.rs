//! The echo load: messages that must come back as they were sent.

use std::collections::VecDeque;

use tidewire::{Instant, Link};

use super::EchoLoad;
use super::client::Driver;
use super::pace::Pace;
use super::pattern::Pattern;
use super::stage::Desk;

/// One connection of it.
pub(super) struct Echo {
    load: EchoLoad,
    /// Messages still to be sent; `u64::MAX` has no end.
    left: u64,
    in_flight: u32,
    /// Positions in the stream of bytes.
    sent_to: u64,
    received_to: u64,
    /// Bytes of the message at the front that have come.
    partial: usize,
    /// How many messages were sent when, for those in flight.
    sends: VecDeque<(u32, Instant)>,
    pace: Option<Pace>,
}

impl Echo {
    pub(super) fn new(load: EchoLoad, count: u64, connection: u64, connections: usize) -> Echo {
        let start = Pattern::start(connection);
        Echo {
            load,
            left: count,
            in_flight: 0,
            sent_to: start,
            received_to: start,
            partial: 0,
            sends: VecDeque::new(),
            pace: load
                .rate
                .map(|rate| Pace::new(rate, connection, connections)),
        }
    }

    fn next_batch(&self) -> u32 {
        let room = self.load.pipeline - self.in_flight;
        let left = u32::try_from(self.left).unwrap_or(u32::MAX);
        let most = match self.load.batch {
            _ if self.pace.is_some() => room,
            0 => room,
            batch => batch.min(self.load.pipeline),
        }
        .min(left);
        if most <= room { most } else { 0 }
    }

    /// Takes `messages` off the front of those in flight.
    fn answered(&mut self, mut messages: u32, link: &Link<'_>, desk: &mut Desk) {
        self.in_flight -= messages;
        let bytes = u64::from(messages) * self.load.size as u64;
        desk.count(u64::from(messages), bytes);
        let now = desk.measuring().then(|| link.clock());
        while messages > 0 {
            let (waiting, at) = self.sends.front_mut().expect("every message was sent");
            let these = messages.min(*waiting);
            if let Some(now) = now {
                desk.latency(now.since(*at), u64::from(these));
            }
            *waiting -= these;
            messages -= these;
            if *waiting == 0 {
                self.sends.pop_front();
            }
        }
    }
}

impl Driver for Echo {
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        let mut messages = self.next_batch();
        if messages == 0 || link.full() {
            return;
        }
        let now = link.clock();
        if let Some(pace) = &mut self.pace {
            let sends = &mut self.sends;
            let due = pace.take_due(messages.into(), now, |at| sends.push_back((1, at)));
            messages = due as u32;
            if let Some(next) = pace.next(now) {
                link.set_timer(next);
            }
            if messages == 0 {
                return;
            }
        } else {
            self.sends.push_back((messages, now));
        }
        self.left -= if self.left == u64::MAX {
            0
        } else {
            u64::from(messages)
        };
        self.in_flight += messages;
        let end = self.sent_to + u64::from(messages) * self.load.size as u64;
        while self.sent_to < end {
            let piece = desk
                .stage
                .pattern
                .slice(self.sent_to, (end - self.sent_to) as usize);
            link.write(piece);
            self.sent_to += piece.len() as u64;
        }
    }

    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, String> {
        let owed = self.sent_to - self.received_to;
        if bytes.len() as u64 > owed {
            return Err(format!("{} bytes came back, {owed} were sent", bytes.len()));
        }
        if let Some(at) = desk.stage.pattern.difference(self.received_to, bytes) {
            let message = (self.partial + at) / self.load.size + 1;
            return Err(format!(
                "byte {at} of {} received is {:#04x}, not what was sent (message {message} of {} in flight)",
                bytes.len(),
                bytes[at],
                self.in_flight
            ));
        }
        self.received_to += bytes.len() as u64;
        self.partial += bytes.len();
        if self.partial >= self.load.size {
            // At most what is in flight, which is a u32.
            let messages = (self.partial / self.load.size) as u32;
            self.partial %= self.load.size;
            self.answered(messages, link, desk);
            self.send(link, desk);
        }
        Ok(bytes.len())
    }

    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) {
        self.send(link, desk);
    }

    fn end(&mut self, link: &mut Link<'_>) {
        link.clear_timer();
        self.left = 0;
    }

    fn is_done(&self) -> bool {
        self.left == 0 && self.in_flight == 0
    }

    fn is_waiting(&self) -> bool {
        self.in_flight > 0
    }

    fn owed(&self) -> String {
        format!(
            "{} of {} messages in flight unanswered",
            self.in_flight, self.load.pipeline
        )
    }
}
