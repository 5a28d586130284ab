//! How fast a body must come.

use std::time::Duration;

use tidewire::{Instant, Link};

use crate::settings::Settings;

/// The time that a body has taken so far: its sender's time, not ours.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    got: u64,
    /// Since when this side does not read.
    blocked: Option<Instant>,
}

impl Pace {
    pub(crate) fn new(link: &Link<'_>) -> Pace {
        Pace {
            began: link.now(),
            got: 0,
            blocked: None,
        }
    }

    /// The time by which the request must be complete, given the bytes received so far.
    pub(crate) fn deadline(&self, settings: &Settings) -> Instant {
        let earned = Duration::from_secs(self.got / settings.body_rate);
        self.began + settings.body_timeout + earned
    }

    pub(crate) fn took(&mut self, n: usize) {
        self.got += n as u64;
    }

    /// The connection waits for more of the request. A timer that is set already may be too early,
    /// which is seen when it expires.
    pub(crate) fn wait(&self, link: &mut Link<'_>, settings: &Settings) {
        if link.timer().is_none() {
            link.set_timer(self.deadline(settings));
        }
    }

    /// This side does not read for a while.
    pub(crate) fn block(&mut self, link: &mut Link<'_>) {
        link.clear_timer();
        self.blocked = self.blocked.or(Some(link.now()));
    }

    /// The connection reads from its client again.
    pub(crate) fn unblock(&mut self, link: &Link<'_>) {
        if let Some(since) = self.blocked.take() {
            self.began = self.began + (link.now() - since);
        }
    }
}
