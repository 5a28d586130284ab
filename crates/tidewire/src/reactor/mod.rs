//! The loop, written once: [`Reactor`] over a [`Driver`], which is what it waits, receives and sends
//! with.
//!
//! * [`turn`], [`wait`]: round and round.
//! * [`accept`], [`hand_over`]: connections that come in, and where they go; [`accepting`], [`waiting`]: the
//!   state of both.
//! * [`inbox`]: what others leave for the loop.
//! * [`making`], [`sending`]: how much output a turn makes, and how much it sends; [`queueing`]:
//!   connections that wait long for that.
//! * [`stop`]: how a loop stops, in [stages](stage).
//! * [`guard`]: running code that is not the loop's own.
//! * [`core`]: the state of connections; [`driver`]: the input and output of their bytes.

pub(crate) mod absent;
pub(crate) mod accept;
pub(crate) mod accepting;
pub(crate) mod activity;
pub(crate) mod barriers;
pub(crate) mod busy;
#[cfg(test)]
pub(crate) mod by_hand;
pub(crate) mod core;
pub(crate) mod counter;
pub(crate) mod counters;
pub(crate) mod deadlines;
pub(crate) mod drive;
pub(crate) mod driver;
pub(crate) mod env;
pub(crate) mod errand;
pub(crate) mod facts;
pub(crate) mod guard;
mod hand_over;
pub(crate) mod host;
mod inbox;
mod lateness;
pub(crate) mod life;
#[cfg(test)]
pub(crate) mod lines_of_tests;
pub(crate) mod making;
mod parting;
pub(crate) mod queueing;
pub(crate) mod race;
pub(crate) mod random;
pub(crate) mod receiving;
mod releasing;
pub(crate) mod sending;
pub(crate) mod setup;
mod stage;
pub(crate) mod state;
pub(crate) mod stop;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;
pub(crate) mod throttles;
pub(crate) mod tied;
pub(crate) mod timers;
mod timing;
mod turn;
mod wait;
mod waiting;
pub(crate) mod wheel;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::reach::stop::Open;
use crate::reach::waker::{Stop, Waker};
use crate::reactor::accepting::Accepting;
use crate::reactor::busy::BusyPoll;
use crate::reactor::core::Core;
use crate::reactor::driver::{Driver, Fd};
use crate::reactor::setup::{Listener, LoopSetup};
use crate::reactor::stage::Stage;
use crate::reactor::waiting::Waiting;
use crate::vocabulary::time::Instant;

/// One loop.
pub(crate) struct Reactor<D: Driver> {
    pub(crate) core: Core,
    pub(crate) driver: D,
    setup: LoopSetup,
    waker: Arc<Waker>,
    /// The wake-up descriptor is watched.
    wakeable: bool,
    /// The wait may have lasted.
    slept: bool,
    /// The time that the driver's alarm is set to, until the time has passed or the driver reports
    /// that the alarm is over.
    alarm: Option<Instant>,
    busy: BusyPoll,
    accepting: Accepting<Fd<D>>,
    waiting: Waiting,
    stage: Stage,
    /// State of accepting, until it ends.
    open: Option<Open>,
    /// The stop that the loops were told that took over accepted connections.
    spread_stopped: Stop,
}

impl<D: Driver> Reactor<D> {
    /// To be called on the loop's own thread.
    pub(crate) fn new(
        mut driver: D,
        core: Core,
        mut setup: LoopSetup,
        waker: Arc<Waker>,
    ) -> io::Result<Reactor<D>> {
        if D::ALWAYS_WAKEABLE {
            driver.watch(&waker)?;
        }
        let mut accepting = Accepting::default();
        let listeners = std::mem::take(&mut setup.listeners).into_iter();
        let sockets = listeners.map(|l| accepting.add(l)).collect();
        driver.listen(sockets, setup.spread.batch())?;
        Ok(Reactor {
            open: Some(Open::of(&setup.clock)),
            core,
            driver,
            busy: BusyPoll::new(setup.busy_poll),
            setup,
            waker,
            wakeable: D::ALWAYS_WAKEABLE,
            slept: false,
            alarm: None,
            accepting,
            waiting: Waiting::default(),
            stage: Stage::Running,
            spread_stopped: Stop::No,
        })
    }

    /// Listens to one more.
    pub(crate) fn listen(&mut self, listener: Listener) -> io::Result<()> {
        let socket = self.accepting.add(listener);
        self.driver.listen(vec![socket], self.setup.spread.batch())
    }

    /// Whether the loop waits for more than the timers of its services.
    pub(crate) fn has_more_to_do(&self) -> bool {
        !self.core.states.is_empty()
            || self.waker.stopping() != Stop::No
            || self.accepting.next().is_some()
    }

    /// Runs until stopped.
    pub(crate) fn run(self) -> io::Result<()> {
        self.until_the_end(|reactor| {
            while !reactor.stopped() {
                reactor.turn();
            }
        })
    }

    /// Runs until the last connection is gone and no command waits. Commands that come later are
    /// left to the acceptor.
    pub(crate) fn run_until_empty(self, acceptor: &Arc<Waker>) -> io::Result<()> {
        self.until_the_end(|reactor| {
            while !reactor.emptied(acceptor) {
                reactor.turn();
            }
        })
    }

    fn until_the_end(mut self, go: impl FnOnce(&mut Self)) -> io::Result<()> {
        let ran = catch_unwind(AssertUnwindSafe(|| go(&mut self)));
        // The driver finishes even if the loop has panicked: memory that the kernel still uses must
        // not be freed.
        let finished = self.driver.finish(self.core);
        match ran {
            Ok(()) => finished,
            Err(panic) => resume_unwind(panic),
        }
    }
}
