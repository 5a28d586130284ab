//! The time at which a wait is to end in any case: a timer among the descriptors.

use crate::driver::readiness::Poller;
use crate::kernel::calls::Sys;
use crate::vocabulary::time::Instant;

/// The alarm's token; connections and listeners have smaller ones.
pub(super) const ALARM: u64 = u64::MAX - 1;

/// The timer of a loop. `None` if there was no free descriptor, or if the poller takes no timers.
pub(super) struct Alarm<S: Sys>(Option<S::Fd>);

impl<S: Sys> Alarm<S> {
    pub(super) fn new<P: Poller<Sys = S>>(poller: &mut P, token: u64) -> Alarm<S> {
        if !P::EDGE_TRIGGERED {
            return Alarm(None);
        }
        let timer = poller.sys().timer().ok();
        Alarm(timer.filter(|timer| poller.add_timer(timer, token)))
    }

    pub(super) fn set(&self, sys: &S, at: Instant) -> bool {
        let timer = self.0.as_ref();
        timer.is_some_and(|timer| sys.set_timer(timer, at).is_ok())
    }
}
