//! The log of a service, and the loops that wait for it.

use std::sync::Arc;
use std::time::Duration;

use tidewire::{Alarm, Bell, Conns, Instant, Link, LoopHandle, Protocol};
use tidewire_log::{Wake, Watch};

use crate::durable::KvLog;
use crate::store::Effects;

/// Why connections are cut whose replies will never be true.
const LOG_FAILED: &str = "the log has failed, or another server has the store";

/// A log that wakes loops.
pub(crate) struct Durable<M> {
    pub(crate) log: Arc<KvLog>,
    alarm: Arc<Alarm<M>>,
    /// Keeps the log ringing the alarm.
    _watch: Watch,
}

impl<M: Send + 'static> Durable<M> {
    pub(crate) fn new(log: Arc<KvLog>) -> Durable<M> {
        let alarm = Arc::new(Alarm::default());
        let rung = alarm.clone();
        let wake: Wake = Arc::new(move || rung.ring());
        let _watch = log.watch(wake);
        Durable { log, alarm, _watch }
    }

    /// The part of this state that a loop of the service keeps.
    pub(crate) fn on_loop(&self, at: LoopHandle<M>) -> Waiting<M> {
        Waiting {
            log: self.log.clone(),
            bell: self.alarm.bell(at),
            held_for: 0,
            first: None,
        }
    }
}

/// A loop whose connections hold replies until the log has committed what they tell of.
pub(crate) struct Waiting<M> {
    log: Arc<KvLog>,
    bell: Bell<M>,
    /// The largest ticket for which a reply was held.
    held_for: u64,
    /// The ticket of the first reply that is held, and since when.
    first: Option<(u64, Instant)>,
}

impl<M: Send + 'static> Waiting<M> {
    /// Has this loop woken when the log moves from now on, if anything is ever held for that.
    #[inline]
    pub(crate) fn arm(&self) {
        if self.log.holds_replies() {
            self.bell.arm();
        }
    }

    /// Holds what is written to `link` from now on until this ticket has settled. The loop was
    /// [armed](Waiting::arm) before the ticket was found. False if it never will: then the connection
    /// is cut, and nothing is to be written.
    pub(crate) fn hold(&mut self, ticket: u64, link: &mut Link<'_>) -> bool {
        if ticket <= self.log.settled() || !self.log.holds_replies() || ticket <= self.log.update()
        {
            return true;
        }
        if self.log.never_settles() {
            link.abort_because(LOG_FAILED);
            return false;
        }
        self.held_for = self.held_for.max(ticket);
        self.first.get_or_insert((ticket, link.now()));
        link.hold_until(ticket);
        true
    }

    /// The loop was woken, perhaps by the log: lets go of what has settled. If that never will, the
    /// connections that wait for it are cut. Returns how long the first of the replies that were let go had waited.
    pub(crate) fn woken<P: Protocol<Message = M>>(
        &mut self,
        local: &mut P::Local,
        all: &mut Conns<'_, P>,
    ) -> Option<Duration> {
        if self.held_for > self.log.settled() {
            self.arm();
        }
        let settled = self.log.update();
        all.release_all(settled);
        if self.log.never_settles() && self.log.holds_replies() {
            all.each(local, |_, cx| {
                if cx.link.held_len() > 0 {
                    cx.link.abort_because(LOG_FAILED);
                }
            });
        }
        let first = self.first.take_if(|(ticket, _)| *ticket <= settled);
        first.map(|(_, since)| all.now() - since)
    }
}
