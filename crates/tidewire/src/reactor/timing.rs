//! The timers of a protocol in its connection's record: one timer without a key, which is a time, or several
//! timers with keys.

use crate::reactor::drive::Event;
use crate::reactor::state::State;
use crate::reactor::timers::{Due, Timers};
use crate::vocabulary::time::Instant;

impl State {
    /// Sets or forgets the timer that has no key.
    #[inline]
    pub(crate) fn set_timer(&mut self, at: Option<Instant>) {
        match &mut self.timers {
            None => self.timer = at,
            Some(timers) => {
                timers.set_own(at);
                self.timer = timers.next();
            }
        }
    }

    /// When the timer that has no key expires.
    pub(crate) fn own_timer(&self) -> Option<Instant> {
        match &self.timers {
            None => self.timer,
            Some(timers) => timers.own(),
        }
    }

    pub(crate) fn set_keyed_timer(&mut self, key: u64, at: Instant) {
        let own = self.timer;
        let timers = self
            .timers
            .get_or_insert_with(|| Box::new(Timers::beside(own)));
        timers.set(key, at, self.kept.get_or_insert_default());
        self.timer = timers.next();
    }

    pub(crate) fn clear_keyed_timer(&mut self, key: u64) {
        if let Some(timers) = &mut self.timers {
            timers.clear(key);
            self.timer = timers.next();
        }
    }

    pub(crate) fn keyed_timer(&self, key: u64) -> Option<Instant> {
        self.timers.as_ref()?.at(key)
    }

    /// How many timers are due, of those that expire before others get their turn.
    pub(crate) fn timers_due(&self, now: Instant) -> usize {
        match &self.timers {
            None => usize::from(self.timer.is_some_and(|at| at <= now)),
            Some(timers) => timers.due(now),
        }
    }

    /// Takes out the first timer that is due: the callback that it asks for.
    pub(crate) fn take_due_timer(&mut self, now: Instant) -> Option<Event> {
        let Some(timers) = &mut self.timers else {
            self.timer.take_if(|at| *at <= now)?;
            return Some(Event::Expired);
        };
        let due = timers.take_due(now);
        self.timer = timers.next();
        due.map(|due| match due {
            Due::Own => Event::Expired,
            Due::Key(key) => Event::TimerExpired(key),
        })
    }

    /// Forgets all.
    pub(crate) fn drop_timers(&mut self) {
        (self.timer, self.timers) = (None, None);
    }
}
