//! Deadlines of connections, and timers of services.

use std::io;
use std::time::Duration;

use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::deadlines::FIRST_LOOK;
use crate::reactor::drive::Event;
use crate::reactor::driver::Transport;
use crate::reactor::facts::{Awaits, Flag, Hint, Owed, Phase};
use crate::reactor::state::State;
use crate::reactor::wheel::Wheel;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::time::Instant;

/// Deadlines that are handled before input gets its turn.
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
        // A timer that is set in a callback lowers this value again.
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
            Phase::Dialling if phase_over && mistaken(Mistake::DialWithoutDeadline) => return,
            Phase::Dialling if phase_over => {
                if state.race().is_some() {
                    self.race_timer(io, index);
                } else if state.attempts.as_ref().is_some_and(|a| a.connecting) {
                    io.cancel_connect(self, index);
                    self.connect_failed(index, &io::ErrorKind::TimedOut.into());
                } else {
                    self.attempt(io, index);
                }
                return;
            }
            Phase::Finishing(_) if phase_over => self.flushing_over(io, index),
            Phase::Lingering(why) if phase_over => self.lingering_over(io, index, why),
            Phase::Failing { why, .. } if phase_over => state.kill(why),
            Phase::Open => {
                let early = mistaken(Mistake::TimerEarly) && state.timer.is_some();
                let stale = mistaken(Mistake::TimerSurvives) && state.timer.is_none();
                if state.timer.is_some_and(|t| t <= now) {
                    self.expire_timers(index);
                } else if early || stale {
                    state.set_timer(None);
                    self.call(index, Event::Expired);
                }
                self.expire_peer(io, index);
                self.expire_idle(io, index);
            }
            _ => {}
        }
        if mistaken(Mistake::TimerNotRearmed) {
            return;
        }
        if let Some(state) = self.states.get_mut(index as usize) {
            if matches!(state.phase, Phase::Finishing(_) | Phase::Lingering(_)) {
                state.outlive_finished(now, self.limits[state.service as usize].linger);
            }
            self.env.touch(state);
        }
    }

    /// Timers of the protocol that are due now, and none that is set meanwhile in place of another.
    fn expire_timers(&mut self, index: u32) {
        let now = self.env.now;
        for _ in 0..self.states[index as usize].timers_due(now) {
            let state = &mut self.states[index as usize];
            let Some(due) = state.take_due_timer(now).filter(|_| state.is_open()) else {
                return;
            };
            self.call(index, due);
        }
    }

    /// The peer has not ended within the linger limit. That of a connection between two requests is short.
    fn lingering_over(&mut self, io: &mut impl Transport, index: u32, why: Closed) {
        let state = &mut self.states[index as usize];
        if state.awaits != Awaits::Delivery {
            return state.end(Closed::LingerExpired, false);
        }
        state.awaits = Awaits::PeerEnd;
        if io.has_emptied(index) && io.untaken(index) == Some(0) {
            return state.end(why, false);
        }
        self.linger_on(index);
    }

    /// The connection lingers for as long as any other from now on.
    pub(super) fn linger_on(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let linger = self.limits[state.service as usize].linger;
        state.awaits = Awaits::PeerEnd;
        if matches!(state.phase, Phase::Lingering(_)) {
            state.phase_ends = Some(self.env.now + linger);
        }
    }

    /// Whether the peer has taken enough, for this limit, of the bytes in the kernel's send buffer; `None` at the
    /// first look. Without this look, a slow peer and a stopped peer cannot be told apart: the kernel takes more
    /// output only when a third of its buffer, which may have megabytes, is free.
    fn peer_takes(&mut self, io: &mut impl Transport, index: u32, limit: Duration) -> Option<bool> {
        let untaken = io.untaken(index);
        // The time is read now, not when the turn began: a loop that was held up in between would look
        // again too early, and cut a peer that had no time to take anything.
        let looked = self.env.clock.monotonic();
        let state = &mut self.states[index as usize];
        let takes = state.deadlines.look(untaken, limit);
        if takes != Some(false) {
            state.last_progress = looked;
            state.deadlines.watch_again(looked);
        }
        takes
    }

    /// Flushing has taken as long as it may without progress, unless the peer has taken something
    /// meanwhile, of us or of the kernel: then it goes on for as long again.
    pub(super) fn flushing_over(&mut self, io: &mut impl Transport, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        let linger = self.limits[state.service as usize].linger;
        if state.excuses_peer(now) {
            state.phase_ends = Some(now + linger);
            return;
        }
        if state.last_progress + linger > now {
            state.deadlines.forget_look();
        }
        let first_look = state.last_progress + linger / FIRST_LOOK;
        if !state.deadlines.has_looked() && first_look > now {
            state.phase_ends = Some(first_look);
        } else if self.peer_takes(io, index, linger) == Some(false) {
            self.states[index as usize].kill(Closed::LingerExpired);
        } else {
            let state = &mut self.states[index as usize];
            state.phase_ends = Some(state.last_progress + linger);
        }
    }

    /// The deadlines of the peer, and the connection's lifetime.
    pub(super) fn expire_peer(&mut self, io: &mut impl Transport, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        if !state.is_open() {
            return;
        }
        let limit = state.deadlines.write_limit();
        if state.has_stalled(now) {
            if state.excuses_peer(now) {
                state.deadlines.watch_again(now);
            } else if self.peer_takes(io, index, limit) == Some(false) {
                return self.states[index as usize].kill(Closed::Stalled);
            }
        }
        let state = &mut self.states[index as usize];
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

    pub(super) fn expire_idle(&mut self, io: &mut impl Transport, index: u32) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        let idle = Duration::from_nanos(state.deadlines.idle_ns());
        if !state.is_open() || idle.is_zero() || state.last_progress + idle > now {
            return;
        }
        if state.out.may_send() {
            if !state.excuses_peer(now) && self.peer_takes(io, index, idle) == Some(false) {
                self.states[index as usize].kill(Closed::Stalled);
            }
        } else if state.is_paused() || !state.out.is_empty() || state.flags.has(Flag::AwaitsMaking)
        {
            // The connection waits because its protocol told it to, for held output, or for its
            // turn to make more output.
            state.last_progress = now;
        } else {
            state.last_progress = now;
            state.hint = Hint::Idle;
            self.call(index, Event::Idle);
            self.states[index as usize].hint = Hint::Finished;
        }
    }

    /// Makes sure that the wheel fires no later than the connection's next deadline. If the
    /// deadline is later than the armed time, the wheel is left alone: it fires early, and is armed
    /// again then.
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

/// How long a loop may sleep, in nanoseconds: until its next deadline or `extra_ns`, not at all if it
/// has work; `u64::MAX` if nothing limits it.
#[inline]
pub(crate) fn sleep_ns(core: &Core, extra_ns: u64) -> u64 {
    if core.has_work() {
        return 0;
    }
    let next_ns = core.next_deadline_ns.min(core.env.timers_ns).min(extra_ns);
    if next_ns == u64::MAX {
        return u64::MAX;
    }
    let from_turn_ns = next_ns.saturating_sub(core.env.now.as_nanos());
    if from_turn_ns > NEAR_NS {
        // The turn may have taken a while; wake a little early rather than ask the clock each time.
        return from_turn_ns - NEAR_NS / 2;
    }
    next_ns.saturating_sub(core.env.clock.monotonic().as_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use crate::reactor::by_hand::ByHand;
    use crate::reactor::sending::SendShares;

    /// Time that the peer takes between two looks of the loop counts, so a limit lies between the looks,
    /// however late the first look was.
    #[test]
    fn a_loop_that_was_held_up_gives_the_peer_its_time() {
        let second = Duration::from_secs(1);
        let limits = Limits {
            idle: Some(second),
            ..Limits::default()
        };
        let mut by_hand = ByHand::new(1, limits, Default::default());
        by_hand.kernel.is_stuck = true;
        by_hand.write(0, 5000);
        by_hand.turn();
        by_hand.kernel.untaken = Some(5000);
        by_hand.kernel.held_up = second * 9 / 10;
        for (at, is_open) in [(10, true), (20, true), (28, true), (29, false)] {
            by_hand.at(second * at / 10);
            by_hand.core.expire_one(&mut by_hand.kernel, 0);
            assert_eq!(
                by_hand.core.states[0].is_open(),
                is_open,
                "after {at} tenths"
            );
        }
    }

    /// One of two connections with much output has its turn; returns the other, whose turn comes
    /// late.
    fn waits_for_its_turn(limits: Limits) -> (ByHand, u32) {
        let shares = SendShares {
            all: 1000,
            one: 250,
            small: 10,
        };
        let mut by_hand = ByHand::new(2, limits, shares);
        (0..2).for_each(|index| by_hand.write(index, 5000));
        by_hand.turn();
        by_hand.kernel.untaken = Some(0);
        let waits = |index: &u32| {
            by_hand.core.states[*index as usize]
                .flags
                .has(Flag::AwaitsTurn)
        };
        let waiting = (0..2)
            .find(|index| waits(index) && by_hand.core.states[*index as usize].out.len() == 5000);
        let waiting = waiting.expect("one has had nothing");
        (by_hand, waiting)
    }

    fn none() -> Limits {
        Limits {
            idle: None,
            write: None,
            linger: Duration::from_secs(1),
            ..Limits::default()
        }
    }

    /// The phase of a connection after ten seconds in which only its deadlines are looked at.
    fn long_after(by_hand: &mut ByHand, index: u32) -> Phase {
        for tenth in 1..100 {
            by_hand.at(Duration::from_millis(100) * tenth);
            by_hand.core.expire_due(&mut by_hand.kernel);
            by_hand.core.settle_touched(&mut by_hand.kernel);
        }
        by_hand.core.states[index as usize].phase
    }

    #[test]
    fn a_peer_is_not_late_while_its_connection_waits_for_its_turn_to_send() {
        let second = Some(Duration::from_secs(1));
        for (idle, write) in [(None, second), (second, None), (second, second)] {
            let (mut by_hand, index) = waits_for_its_turn(Limits {
                idle,
                write,
                ..none()
            });
            assert_eq!(
                long_after(&mut by_hand, index),
                Phase::Open,
                "{idle:?}, {write:?}"
            );
        }
        let (mut by_hand, index) = waits_for_its_turn(none());
        by_hand.core.states[index as usize].finish(Closed::Finished);
        by_hand.core.touch(index);
        let finishing = Phase::Finishing(Closed::Finished);
        assert_eq!(long_after(&mut by_hand, index), finishing);
    }

    #[test]
    fn who_waits_for_its_turn_to_make_output_is_not_idle() {
        let limits = Limits {
            idle: Some(Duration::from_secs(1)),
            ..none()
        };
        let mut by_hand = ByHand::new(1, limits, Default::default());
        by_hand.core.env.making.wait(&mut by_hand.core.states[0]);
        assert_eq!(long_after(&mut by_hand, 0), Phase::Open);
    }
}
