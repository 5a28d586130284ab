//! The time at which a wait is to end in any case: a timer that the ring watches.

use crate::driver::completion::ring::{Completion, Ring};
use crate::driver::completion::token::{Kind, Token};
use crate::kernel::calls::Sys;
use crate::kernel::queues::{Operation, Queues};
use crate::vocabulary::time::Instant;

/// The timer of a loop.
pub(super) enum Alarm<S: Sys> {
    NotMade,
    Made {
        timer: S::Fd,
        watched: bool,
    },
    /// There is none, for want of a descriptor.
    Without,
}

impl<S: Sys> Alarm<S> {
    pub(super) fn set(&mut self, ring: &mut Ring<impl Queues<Sys = S>>, at: Instant) -> bool {
        if let Alarm::NotMade = self {
            *self = match ring.sys().timer() {
                Ok(timer) => Alarm::Made {
                    timer,
                    watched: false,
                },
                Err(_) => Alarm::Without,
            };
        }
        let Alarm::Made { timer, watched } = self else {
            return false;
        };
        if ring.sys().set_timer(timer, at).is_err() {
            return false;
        }
        if !std::mem::replace(watched, true) {
            let (fd, events, multi) = (S::number(timer), libc::POLLIN, true);
            let token = Token::of_loop(Kind::Alarm, 0);
            ring.start(Operation::Poll { fd, events, multi }, token);
        }
        true
    }

    /// It has gone off, or the watch has ended: it is watched again when it is next set, because it
    /// would be found as it is until then.
    pub(super) fn went_off(&mut self, done: Completion) {
        if let Alarm::Made { watched, .. } = self {
            *watched = done.more();
        }
    }
}
