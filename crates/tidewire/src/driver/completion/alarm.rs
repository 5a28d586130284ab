//! The time at which a wait is to end in any case: a timer that the ring watches.

use crate::driver::completion::ring::{Completion, Ring};
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Operation, Queues, Target};
use crate::mistakes::{Mistake, mistaken};
use crate::vocabulary::time::Instant;

/// The timer of a loop.
pub(super) struct Alarm<S: Sys> {
    /// `None` if there was no free descriptor.
    timer: Option<S::Fd>,
    watched: bool,
}

impl<S: Sys> Alarm<S> {
    pub(super) fn new(sys: &S) -> Alarm<S> {
        Alarm {
            timer: sys.timer().ok(),
            watched: false,
        }
    }

    pub(super) fn set(&mut self, ring: &mut Ring<impl Queues<Sys = S>>, at: Instant) -> bool {
        let Some(timer) = &self.timer else {
            return false;
        };
        if ring.sys().set_timer(timer, at).is_err() {
            return false;
        }
        if !std::mem::replace(&mut self.watched, true) {
            let fd = Target::Number(S::number(timer));
            let (events, multi) = (libc::POLLIN, true);
            let token = Token::of_loop(Kind::Alarm, 0);
            ring.start(Operation::Poll { fd, events, multi }, token);
        }
        true
    }

    /// The alarm has gone off, or the watch has ended. The driver watches the alarm again when the
    /// loop next sets it; a watch that began now would find the expired alarm. If the queue of
    /// completions is full, this report may be late, and the loop may have set another time
    /// meanwhile; so the loop sets the alarm once more.
    pub(super) fn went_off(&mut self, done: Completion) {
        self.watched = done.more() || mistaken(Mistake::AlarmNotWatchedAgain);
    }
}
