//! Connections that follow each other, one for each request.
//!
//! The idea: state that has to outlive a connection is in a slot that all connections of one token
//! share: the remaining work, and when the next connection begins.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidewire::{Instant, Link};

use super::flight::{self, Flight};
use super::pace::Pace;
use super::stage::Desk;

/// State that the connections of one token share. These connections follow each other, so none
/// waits for the slot's lock.
pub(super) struct Slot {
    /// Requests still to be sent; `u64::MAX` has no end.
    left: AtomicU64,
    turn: Mutex<Turn>,
}

struct Turn {
    /// The times, unless each connection follows the one before at once.
    pace: Option<Pace>,
    /// When the present connection was to be dialled, and when it was.
    dialled: Option<(Instant, Instant)>,
}

impl Slot {
    pub(super) fn new(left: u64, pace: Option<Pace>) -> Slot {
        Slot {
            left: AtomicU64::new(left),
            turn: Mutex::new(Turn {
                pace,
                dialled: None,
            }),
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn left(&self) -> u64 {
        self.left.load(Relaxed)
    }

    /// Notes that `requests` requests are sent.
    pub(super) fn spend(&self, requests: u64) {
        let left = self.left();
        if left != u64::MAX {
            self.left.store(left - requests, Relaxed);
        }
    }

    /// Has the present connection's request counted as sent, its time from when the connection was
    /// dialled: making it is a part of the cost. The first one of all was there before; it waits
    /// for its time, by a timer, and is false until then.
    pub(super) fn begin(&self, flight: &mut Flight, link: &mut Link<'_>) -> bool {
        let now = link.clock();
        let mut turn = self.turn();
        let (intended, at) = match (turn.dialled.take(), &mut turn.pace) {
            (Some(dialled), _) => dialled,
            (None, None) => (now, now),
            (None, Some(pace)) => match pace.take_due(now) {
                Some(intended) => (intended, now),
                None => {
                    link.set_timer(pace.next(now));
                    return false;
                }
            },
        };
        flight.remember(1, intended, at);
        true
    }

    /// A connection has ended at `now`: when the next one is due.
    pub(super) fn follow(&self, now: Instant) -> Instant {
        let mut turn = self.turn();
        let next = match &mut turn.pace {
            None => now,
            Some(pace) => {
                let next = pace.next(now);
                let taken = pace.take_due(next.max(now));
                taken.unwrap_or(next)
            }
        };
        turn.dialled = Some((next, next.max(now)));
        next
    }

    /// Tells the connections that no more messages are sent.
    pub(super) fn end(&self, link: &mut Link<'_>, desk: &mut Desk) {
        link.clear_timer();
        let left = self.left.swap(0, Relaxed);
        if let Some(pace) = &mut self.turn().pace {
            flight::unsent(pace, left, link.clock(), desk);
        }
    }
}
