//! Stopping: serve clients that are connected, read what is there, let all finish.

use std::time::Duration;

use crate::mistakes::{Mistake, mistaken};
use crate::reach::waker::Stop;
use crate::reactor::Reactor;
use crate::reactor::driver::Driver;
use crate::reactor::setup::Spread;
use crate::reactor::stage::Stage;
use crate::vocabulary::time::Instant;

/// Longest wait for operations that were taken back. The kernel ends them at once; but completions
/// of others may come first, as many as the queue has no room for.
pub(crate) const QUIET_WAIT: Duration = Duration::from_secs(5);

/// Longest time for which handshakes under way are waited for: a round trip to far away. Clients
/// that they bring can send their request meanwhile.
const HANDSHAKES: Duration = Duration::from_millis(100);
/// That time as a part of the time that the stop may take.
const HANDSHAKES_SHARE: u32 = 4;

impl<D: Driver> Reactor<D> {
    /// Goes on with a stop, if there is one; true when the loop is to end.
    #[inline]
    pub(crate) fn stopped(&mut self) -> bool {
        let stop = self.waker.stopping();
        stop != Stop::No && self.go_on_stopping(stop)
    }

    fn go_on_stopping(&mut self, stop: Stop) -> bool {
        self.setup.clock.pass_on(&mut self.core.passed_on);
        if self.stage == Stage::Running {
            let until = self.last_call(stop);
            self.stage = Stage::LastCall { until };
        }
        if let Stage::LastCall { until } = self.stage {
            if self.core.env.now < until && stop != Stop::Now {
                return false;
            }
            self.core.begin_drain(&mut self.driver, &self.setup.clock);
            self.driver.pause_accepting();
            let until = self.core.env.now + QUIET_WAIT;
            self.stage = Stage::Closing { until };
        }
        if let Stage::Closing { until } = self.stage
            && (self.driver.accepting_over() || self.core.env.now >= until)
        {
            self.begin_drain();
        }
        if self.stage == Stage::Draining {
            let given_up = self.setup.clock.given_up(self.core.env.now);
            self.core.give_up_unserved(given_up);
        }
        let over = self.core.env.now >= self.setup.clock.deadline();
        let cut = (stop == Stop::Now || over) && !mistaken(Mistake::NotCutAtDeadline);
        self.stop_spread(if cut { Stop::Now } else { Stop::Graceful });
        if cut {
            self.core.cut_all(&mut self.driver);
        }
        self.stage == Stage::Draining
            && !self.spread_lives()
            && (cut || self.waiting.is_done())
            // A connection handed over just before the stop waits among the commands.
            && self.core.is_done()
    }

    /// When the handshakes under way are over.
    fn last_call(&mut self, stop: Stop) -> Instant {
        let now = self.core.env.now;
        let waits = self.begin_no_more() && !mistaken(Mistake::LastCallLeftOut);
        if stop == Stop::Now || !waits {
            return now;
        }
        let left = self.setup.clock.deadline().since(now);
        now + HANDSHAKES.min(left / HANDSHAKES_SHARE)
    }

    /// Connected clients are served: clients of the last wait have been taken in, now clients that
    /// wait in the queue.
    fn begin_drain(&mut self) {
        self.stage = Stage::Draining;
        self.close_listeners();
        // The acceptor has ended before, but what it sent may have come after the last look.
        self.obey();
        // Data that was received already does not count as the kernel's.
        self.hear();
        self.open = None;
        if mistaken(Mistake::SweepLeftOut) {
            let all: Vec<u32> = self.core.states.iter().map(|(i, _)| i as u32).collect();
            return all.into_iter().for_each(|index| self.core.owe_drain(index));
        }
        self.driver.sweep(&mut self.core);
    }

    /// The time at which a stop takes its next step by itself. Once the deadline has passed,
    /// everything is cut, and the cut connections report when they are closed.
    pub(super) fn next_of_stop(&self) -> Option<Instant> {
        let deadline = self.setup.clock.deadline();
        let next = match self.stage {
            Stage::LastCall { until } | Stage::Closing { until } => until.min(deadline),
            Stage::Draining => match self.setup.clock.unserved_until() {
                Some(until) if until > self.core.env.now => until.min(deadline),
                _ => deadline,
            },
            Stage::Running => deadline,
        };
        (next > self.core.env.now).then_some(next)
    }

    fn stop_spread(&mut self, how: Stop) {
        if let Spread::Threads(spawner) = &self.setup.spread
            && self.spread_stopped < how
        {
            self.spread_stopped = how;
            spawner.stop(how);
        }
    }

    fn spread_lives(&self) -> bool {
        match &self.setup.spread {
            Spread::Threads(spawner) => spawner.live() > 0,
            Spread::Here | Spread::Loops(_) => false,
        }
    }
}
