//! The time at which a wait is to end in any case: a timer among the descriptors.

use crate::driver::readiness::Poller;
use crate::kernel::calls::Sys;
use crate::vocabulary::time::Instant;

/// The timer of a loop.
pub(super) enum Alarm<S: Sys> {
    NotMade,
    Made(S::Fd),
    /// There is none, for want of a descriptor or because the poller takes none.
    Without,
}

impl<S: Sys> Alarm<S> {
    pub(super) fn set<P: Poller<Sys = S>>(
        &mut self,
        poller: &mut P,
        token: u64,
        at: Instant,
    ) -> bool {
        if let Alarm::NotMade = self {
            *self = Alarm::make(poller, token);
        }
        match self {
            Alarm::Made(timer) => poller.sys().set_timer(timer, at).is_ok(),
            Alarm::NotMade | Alarm::Without => false,
        }
    }

    #[cold]
    fn make<P: Poller<Sys = S>>(poller: &mut P, token: u64) -> Alarm<S> {
        if !P::EDGE_TRIGGERED {
            return Alarm::Without;
        }
        match poller.sys().timer() {
            Ok(timer) if poller.add_timer(&timer, token) => Alarm::Made(timer),
            _ => Alarm::Without,
        }
    }
}
