//! Deadlines of connections, and timers of services.

use std::io;
use std::time::Duration;

use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::facts::{Hint, Owed, Phase};
use crate::reactor::host::Event;
use crate::reactor::state::State;
use crate::reactor::wheel::Wheel;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::time::Instant;

/// Deadlines dealt with before input gets its turn.
const EXPIRE_MAX: usize = 4096;

impl Core {
    /// When `expire` will have something to do.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let next = self.next_deadline_ns.min(self.env.timers_ns);
        (next != u64::MAX).then(|| Instant::from_nanos(next))
    }

    /// Deals with deadlines that have passed.
    #[inline]
    pub(crate) fn expire(&mut self, io: &mut impl Transport) {
        let now_ns = self.env.now.as_nanos();
        if self.next_deadline_ns <= now_ns {
            self.expire_due(io);
        }
        if self.env.timers_ns <= now_ns {
            self.expire_services();
        }
    }

    #[cold]
    pub(super) fn expire_due(&mut self, io: &mut impl Transport) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel
            .expire(self.env.now.as_nanos(), EXPIRE_MAX, &mut due);
        for index in due.drain(..) {
            if let Some(state) = self.states.get_mut(index as usize) {
                state.wheel_ns = u64::MAX;
            }
            self.expire_one(io, index);
        }
        self.due = due;
        self.next_deadline_ns = self.wheel.next().unwrap_or(u64::MAX);
    }

    #[cold]
    pub(super) fn expire_services(&mut self) {
        let now_ns = self.env.now.as_nanos();
        // What is set again meanwhile lowers it again.
        self.env.timers_ns = u64::MAX;
        for host in &mut self.hosts {
            let next = host.expire(now_ns, &mut self.states, &mut self.env);
            self.env.timers_ns = self.env.timers_ns.min(next);
        }
    }

    pub(super) fn expire_one(&mut self, io: &mut impl Transport, index: u32) {
        let now = self.env.now;
        let Some(state) = self.states.get_mut(index as usize) else {
            return;
        };
        let phase_over = state.phase_ends.is_some_and(|t| t <= now);
        match state.phase {
            Phase::Dialling if phase_over => {
                if state.attempts.as_ref().is_some_and(|a| a.connecting) {
                    io.cancel_connect(self, index);
                    self.connect_failed(index, &io::ErrorKind::TimedOut.into());
                } else {
                    self.attempt(io, index);
                }
                return;
            }
            Phase::Finishing(_) if phase_over => self.flushing_over(index),
            Phase::Lingering(_) if phase_over => state.end(Closed::LingerExpired, false),
            Phase::Open => {
                let early = mistaken(Mistake::TimerEarly) && state.timer.is_some();
                let stale = mistaken(Mistake::TimerSurvives) && state.timer.is_none();
                if state.timer.is_some_and(|t| t <= now) || early || stale {
                    state.timer = None;
                    self.call(index, Event::Expired);
                }
                self.expire_peer(index);
                self.expire_idle(index);
            }
            _ => {}
        }
        if let Some(state) = self.states.get_mut(index as usize) {
            self.env.touch(state);
        }
    }

    /// Flushing has taken as long as it may without progress, unless bytes have left meanwhile: then
    /// it goes on for as long again from the last of them.
    pub(super) fn flushing_over(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let ends = state.last_progress + self.limits[state.service as usize].linger;
        if ends > self.env.now {
            state.phase_ends = Some(ends);
        } else {
            state.kill(Closed::LingerExpired);
        }
    }

    /// What the peer owes, and the connection's lifetime.
    pub(super) fn expire_peer(&mut self, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        if !state.is_open() {
            return;
        }
        if state.has_stalled(now) {
            return state.kill(Closed::Stalled);
        }
        if let Some(hint) = state.is_late(now) {
            state.hint = hint;
            self.call(index, Event::Overdue);
            self.states[index as usize].hint = Hint::Finished;
        }
        let state = &mut self.states[index as usize];
        let grace = self.limits[state.service as usize].linger;
        if state.outlive(now, grace) {
            state.owed.add(Owed::Draining);
        }
    }

    pub(super) fn expire_idle(&mut self, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        let idle = Duration::from_nanos(state.deadlines.idle_ns());
        if !state.is_open() || idle.is_zero() || state.last_progress + idle > now {
            return;
        }
        if state.out.may_send() {
            state.kill(Closed::Stalled);
        } else if state.is_paused() || !state.out.is_empty() {
            // It waits because its protocol told it to, or for output that is held back.
            state.last_progress = now;
        } else {
            state.last_progress = now;
            state.hint = Hint::Idle;
            self.call(index, Event::Idle);
            self.states[index as usize].hint = Hint::Finished;
        }
    }

    /// Makes sure that the wheel fires no later than the connection's next deadline. A later one
    /// leaves it as it is: it fires early, and is armed again then.
    #[inline]
    pub(super) fn rearm(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        Self::rearm_state(state, &mut self.wheel, &mut self.next_deadline_ns);
    }

    #[inline(always)]
    pub(super) fn rearm_state(state: &mut State, wheel: &mut Wheel, next_deadline_ns: &mut u64) {
        let next = state.next_deadline_ns();
        if next < state.wheel_ns {
            state.wheel_ns = next;
            wheel.arm(state.id.index, next);
            *next_deadline_ns = (*next_deadline_ns).min(next);
        }
    }
}

/// A deadline farther away than this may be slept towards from the time of this turn's start.
const NEAR_NS: u64 = 20_000_000;

/// How long a loop may sleep: until its next deadline, not at all if it has work.
#[inline]
pub(crate) fn sleep_for(core: &Core, extra: Option<Instant>) -> Option<Duration> {
    if core.has_work() {
        return Some(Duration::ZERO);
    }
    let next = match (core.next_deadline(), extra) {
        (Some(a), Some(b)) => a.min(b),
        (a, b) => a.or(b)?,
    };
    let from_turn_ns = next.as_nanos().saturating_sub(core.env.now.as_nanos());
    if from_turn_ns > NEAR_NS {
        // The turn may have taken a while; wake a little early rather than ask the clock each time.
        return Some(Duration::from_nanos(from_turn_ns - NEAR_NS / 2));
    }
    Some(next.since(core.env.clock.monotonic()))
}
