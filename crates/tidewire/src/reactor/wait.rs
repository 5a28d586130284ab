//! How long a loop may wait, and what goes before and after.

use std::time::Duration;

use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::Stop;
use crate::reactor::Reactor;
use crate::reactor::accepting::PAUSE;
use crate::reactor::core::deadlines::sleep_ns;
use crate::reactor::driver::Driver;
use crate::vocabulary::time::Instant;

/// A time-out from here on is left to the driver's alarm, which is set once and rarely moved: to start and
/// to cancel a timer with each wait costs a twentieth of a lock-step request.
const LONG_NS: u64 = 20_000_000;

const FOR_EVER_NS: u64 = u64::MAX;

impl<D: Driver> Reactor<D> {
    /// How long the loop waits now. A thread that wakes it from here on writes to its descriptor.
    pub(crate) fn before_wait(&mut self) -> Option<Duration> {
        let mut ns = self.sleep_ns();
        if !self.wakeable && self.is_awaited() && !self.become_wakeable() {
            // Descriptors have run out, and no thread can wake this loop.
            ns = ns.min(PAUSE.as_nanos() as u64);
        }
        if ns >= LONG_NS && ns != FOR_EVER_NS && self.alarm_within(ns) {
            ns = FOR_EVER_NS;
        }
        // Asked last: to make room for the alarm or the wake-up a full queue may have been handed over,
        // and what that has brought is in hand already.
        if self.driver.has_work() && !mistaken(Mistake::WorkForgottenBeforeWait) {
            ns = 0;
        }
        if ns != 0 && self.busy.is_on() && self.busy_poll() {
            ns = 0;
        }
        self.slept = ns != 0;
        if self.slept && !self.waker.may_sleep() {
            ns = 0;
        }
        (ns != FOR_EVER_NS).then(|| Duration::from_nanos(ns))
    }

    /// The wait is over.
    pub(super) fn awake(&mut self) {
        self.waker.awake();
        let from = self.core.env.now;
        let now = self.core.env.clock.monotonic();
        self.core.env.now = now;
        self.alarm = self.alarm.filter(|at| *at > now);
        if self.slept && self.busy.is_on() {
            self.busy.slept(from, self.core.env.now);
        }
    }

    /// Whether a thread could wake this loop: a holder of a handle, or the starter of a stop, which
    /// may cut it short.
    fn is_awaited(&self) -> bool {
        self.waker.stopping() != Stop::No || self.core.reachable()
    }

    fn become_wakeable(&mut self) -> bool {
        match self.driver.watch(&self.waker) {
            Ok(()) => self.wakeable = true,
            Err(e) => tracing::debug!(error = %e, "no wake-up descriptor; looking now and then"),
        }
        self.wakeable
    }

    /// Sets an alarm, so that a wait ends within this time. The alarm stays where it is as long as it
    /// comes no later, so most waits need not set it.
    fn alarm_within(&mut self, ns: u64) -> bool {
        let at = Instant::from_nanos(self.core.env.now.as_nanos().saturating_add(ns));
        if self.alarm.is_none_or(|set| set > at) {
            let set = self.driver.set_alarm(at) || mistaken(Mistake::AlarmTakenForSet);
            self.alarm = set.then_some(at);
        }
        self.alarm.is_some()
    }

    fn busy_poll(&mut self) -> bool {
        // Replies must not wait for the end of the poll.
        if self.driver.submit().is_err() {
            return false;
        }
        let (driver, waker) = (&mut self.driver, &self.waker);
        let clock = self.core.env.clock.clone();
        let hit = self
            .busy
            .poll(&clock, || driver.has_news() || waker.is_pending());
        if hit {
            self.core.env.counters.busy_poll_hits.add(1);
        }
        hit
    }

    /// In nanoseconds, as far as the core and the loop know.
    fn sleep_ns(&self) -> u64 {
        if self.driver.has_work() {
            return 0;
        }
        let quiet = self.waker.stopping() == Stop::No && self.accepting.is_quiet();
        let extra_ns = if quiet { u64::MAX } else { self.next_ns() };
        sleep_ns(&self.core, extra_ns)
    }

    /// When a stop or accepting goes on by itself.
    #[cold]
    fn next_ns(&self) -> u64 {
        let stop = (self.waker.stopping() != Stop::No).then(|| self.next_of_stop());
        let next = [stop.flatten(), self.accepting.next()];
        let next = next.into_iter().flatten().min();
        next.map_or(u64::MAX, Instant::as_nanos)
    }
}
