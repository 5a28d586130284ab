//! The messages in flight on one connection, and when the next may be sent.
//!
//! The idea: every message has two times, when it was to be sent and when it was. From the first counts
//! what a user would have waited; from the second, what the server took. How much later than possible
//! it was sent is the generator's own fault, and kept apart (slip).

use std::collections::VecDeque;

use tidewire::{Instant, Link};

use super::pace::Pace;
use super::stage::Desk;

/// Sends that are remembered one by one; later ones are merged under the time of the first.
const SENDS_MAX: usize = 1 << 20;

/// Messages that were sent together.
struct Sent {
    messages: u64,
    intended: Instant,
    at: Instant,
}

/// One connection's messages.
pub(super) struct Flight {
    sends: VecDeque<Sent>,
    /// The times, unless messages are sent as replies come.
    pace: Option<Pace>,
    /// Since when more could have been sent.
    room_since: Option<Instant>,
    /// The round in which messages were sent last, where there are rounds.
    round: u64,
}

impl Flight {
    pub(super) fn new(pace: Option<Pace>) -> Flight {
        Flight {
            sends: VecDeque::new(),
            pace,
            room_since: None,
            round: 0,
        }
    }

    /// Whether messages are sent by the clock.
    pub(super) fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// Nothing can be sent for now, whatever is due.
    pub(super) fn blocked(&mut self) {
        self.room_since = None;
    }

    /// How many messages, of at most `room`, are to be sent now; they count as sent. By the clock,
    /// the messages that are due, and the timer is set to the next time.
    pub(super) fn take(&mut self, room: u64, link: &mut Link<'_>, desk: &mut Desk) -> u64 {
        if room == 0 || link.full() {
            self.room_since = None;
            return 0;
        }
        let now = link.clock();
        let Some(mut pace) = self.pace.take() else {
            if !desk.stage.may_send(&mut self.round) {
                return 0;
            }
            self.remember(room, now, now);
            return room;
        };
        let since = *self.room_since.get_or_insert(now);
        let mut taken = 0;
        while taken < room
            && let Some(intended) = pace.take_due(now)
        {
            self.remember(1, intended, now);
            if desk.counts(intended) {
                desk.slip(now.since(intended.max(since)));
            }
            taken += 1;
        }
        if taken == room {
            self.room_since = None;
        } else {
            link.set_timer(pace.next(now));
        }
        self.pace = Some(pace);
        taken
    }

    /// Messages were sent `at` a time.
    pub(super) fn remember(&mut self, messages: u64, intended: Instant, at: Instant) {
        let lump = self.sends.len() >= SENDS_MAX;
        match self.sends.back_mut() {
            Some(last) if lump => last.messages += messages,
            _ => self.sends.push_back(Sent {
                messages,
                intended,
                at,
            }),
        }
    }

    /// Removes `messages` from the front: they are answered.
    pub(super) fn answered(&mut self, mut messages: u64, link: &Link<'_>, desk: &mut Desk) {
        let open = desk.is_open_loop();
        let now = (open || desk.measuring()).then(|| link.clock());
        if let (Some(now), false) = (now, open) {
            desk.answered(now);
        }
        while messages > 0 {
            let first = self.sends.front_mut().expect("every message was sent");
            let these = messages.min(first.messages);
            match now {
                Some(now) if !open => desk.latency(now.since(first.at), these),
                Some(now) if desk.counts(first.intended) => {
                    desk.latency(now.since(first.at), these);
                    desk.latency_intended(now.since(first.intended), these);
                }
                _ => {}
            }
            first.messages -= these;
            messages -= these;
            if first.messages == 0 {
                self.sends.pop_front();
            }
        }
        if self.sends.is_empty() {
            desk.stage.all_answered();
        }
    }

    /// Removes all messages: they will not be answered.
    pub(super) fn forget(&mut self) {
        self.sends.clear();
    }

    /// Sends nothing more. Messages that were due, at most `left`, count as unsent, and as having
    /// waited until now.
    pub(super) fn end(&mut self, left: u64, link: &mut Link<'_>, desk: &mut Desk) {
        if let Some(pace) = &mut self.pace {
            link.clear_timer();
            unsent(pace, left, link.clock(), desk);
        }
        self.pace = None;
    }
}

/// Messages left behind that are counted one by one, on each connection.
const UNSENT_EACH: u64 = 1 << 16;

/// Counts what a schedule has left behind at its end. Beyond [`UNSENT_EACH`] so many are taken
/// together with the first of them that their times are right to a sixty-fourth: a rate beyond
/// reach must not take as long to count as to send.
pub(super) fn unsent(pace: &mut Pace, mut left: u64, now: Instant, desk: &mut Desk) {
    let end = desk.end_of_measuring().unwrap_or(now);
    if !pace.has_begun() {
        return;
    }
    let mut seen = 0u64;
    while left > 0 {
        let Some(intended) = pace.take_due(end) else {
            return;
        };
        let together = match seen {
            0..UNSENT_EACH => 1,
            _ => 1 + pace.skip_due((seen / 64).min(left - 1), end),
        };
        if desk.counts(intended) {
            desk.unsent(end.since(intended), together);
        }
        seen += together;
        left -= together;
    }
}
