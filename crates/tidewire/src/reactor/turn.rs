//! A turn: wait, hear what happened, look into the inbox, let deadlines pass, receive, settle.

use std::sync::Arc;
use std::time::Duration;

use crate::kernel::calls::Sys;
use crate::reach::waker::Waker;
use crate::reactor::Reactor;
use crate::reactor::driver::{Driver, Outcome};

impl<D: Driver> Reactor<D> {
    pub(super) fn turn(&mut self) {
        let timeout = self.before_wait();
        if let Err(e) = self.driver.wait(timeout) {
            tracing::error!(error = %e, "cannot wait for the kernel");
            self.driver.sys().pause(Duration::from_millis(10));
        }
        self.after_wait();
    }

    /// The part of a turn that follows the wait.
    pub(crate) fn after_wait(&mut self) {
        self.awake();
        self.core.env.begin_turn();
        self.core.take_backlog();
        self.hear();
        self.obey();
        self.core.expire(&mut self.driver);
        self.resume_accepting();
        self.part();
        self.driver.receive(&mut self.core);
        self.core.settle_all(&mut self.driver);
        self.driver.resupply(&mut self.core);
    }

    /// Deals with everything that the wait has brought.
    pub(super) fn hear(&mut self) {
        while let Some(outcome) = self.driver.next_outcome(&mut self.core) {
            match outcome {
                Outcome::Accepted(which, accepted) => self.accepted(which, accepted),
                Outcome::AlarmOver => self.alarm = None,
                Outcome::Woken => {
                    if let Err(e) = self.driver.watch_again(&self.waker) {
                        tracing::error!(error = %e, "no wake-up descriptor; posts will be late");
                    }
                }
            }
        }
        self.crowd_over();
    }

    /// Between two turns of a loop that ends with its last connection: whether this is the end.
    pub(crate) fn emptied(&mut self, acceptor: &Arc<Waker>) -> bool {
        if self.stopped() {
            return true;
        }
        if !self.core.is_empty() {
            return false;
        }
        // A callback may have dialled, the last one of a connection included.
        self.obey();
        self.core.is_empty() && self.waker.end_if_idle(acceptor)
    }
}
