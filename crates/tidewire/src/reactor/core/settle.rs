//! Settling: the callbacks that are due are made, and what the record calls for is done.

use crate::memory::budget::Meter;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::core::Core;
use crate::reactor::core::dialling::ORPHANED;
use crate::reactor::deadlines::{FIRST_LOOK, IDLE_LINGER};
use crate::reactor::drive;
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::errand::Errand;
use crate::reactor::facts::{Awaits, Flag, Owed, Phase, Rest, Writing};
use crate::reactor::state::State;

/// Times that settling goes round callbacks and flushing before others get their turn.
const ROUNDS: usize = 64;

impl Core {
    /// Puts the connection on the list of connections to settle.
    pub(crate) fn touch(&mut self, index: u32) {
        self.env.touch(&mut self.states[index as usize]);
    }

    /// Settles every connection that changed, including changes meanwhile, and does what their
    /// callbacks asked for beside.
    #[inline(always)]
    pub(crate) fn settle_all(&mut self, io: &mut impl Transport) {
        self.settle_touched(io);
        if self.env.is_awaited() {
            self.serve_on(io);
        }
        if !self.meter.is_calm() {
            self.mind_memory(io);
        }
    }

    /// Serves connections that wait for their turn.
    #[inline(never)]
    fn serve_on(&mut self, io: &mut impl Transport) {
        if self.env.making.is_awaited() {
            self.make_on(io);
        }
        if self.env.sending.is_awaited() {
            self.send_on(io);
        }
    }

    /// Has connections make more output whose turn it is, until this turn's budget is spent.
    fn make_on(&mut self, io: &mut impl Transport) {
        let mut is_first = true;
        while let Some(index) = self.env.making.next(is_first) {
            is_first = false;
            let waited = self.makers.served(index, self.env.now);
            let state = self.states.get_mut(index as usize);
            // The connection may be gone, and another in its place.
            if !state.is_some_and(|state| state.flags.remove(Flag::AwaitsMaking)) {
                continue;
            }
            self.makers.tell("turn", waited, self.env.now);
            let had = self.env.making.begin_serving(index);
            self.settle(io, index);
            self.env.making.end_serving(had);
            self.settle_touched(io);
        }
        if let Some(last) = self.env.making.last() {
            self.makers.goes_on(last, self.env.now);
        }
    }

    /// Has connections send whose turn it is, until this turn's budget is spent.
    fn send_on(&mut self, io: &mut impl Transport) {
        while let Some(index) = self.env.sending.next() {
            let waited = self.senders.served(index, self.env.now);
            let state = self.states.get_mut(index as usize);
            // The connection may be gone, and another in its place.
            if !state.is_some_and(|state| state.flags.remove(Flag::AwaitsTurn)) {
                continue;
            }
            self.senders.tell("send", waited, self.env.now);
            let had = self.env.sending.begin_serving();
            self.settle(io, index);
            self.env.sending.end_serving(had);
            self.settle_touched(io);
        }
        if let Some(last) = self.env.sending.last() {
            self.senders.goes_on(last, self.env.now);
        }
    }

    #[inline(always)]
    pub(super) fn settle_touched(&mut self, io: &mut impl Transport) {
        if !self.env.dirty.is_empty() || self.env.has_errands() {
            self.settle_listed(io);
        }
    }

    #[inline(never)]
    fn settle_listed(&mut self, io: &mut impl Transport) {
        for _ in 0..ROUNDS {
            while let Some(index) = self.env.dirty.pop() {
                // The connection may have been settled since, or be gone.
                self.settle_if(io, index, |state| state.flags.has(Flag::Listed));
            }
            if !self.env.has_errands() {
                return;
            }
            self.run_errands(io);
        }
    }

    /// Delivers what connections told each other, starts the dials that callbacks asked for, and goes on with others.
    #[cold]
    pub(super) fn run_errands(&mut self, io: &mut impl Transport) {
        self.deliver_told();
        for errand in std::mem::take(&mut self.env.errands) {
            match errand {
                Errand::Dial { service, dial, by } => self.dial(io, service, dial, by),
                Errand::GoOn(dial) => {
                    if let Some(index) = self.dial_of(dial) {
                        self.race_on(io, index);
                    }
                }
                Errand::Won(dial) => self.end_race(io, dial),
                Errand::Orphaned(by) => self.cancel_tied(io, by, None, ORPHANED),
                Errand::Cancel { by, token } => {
                    self.cancel_tied(io, by, Some(token), "the dial was given up");
                }
            }
        }
    }

    #[cold]
    pub(super) fn deliver_told(&mut self) {
        if self.env.begin_delivery() {
            for host in &mut self.hosts {
                host.deliver(&mut self.states, &mut self.env);
            }
            self.env.end_delivery();
        }
    }

    /// Makes the callbacks that are due for one connection and has the engine do what its record
    /// calls for. Delivers the messages that the connection sent to other connections, so that a
    /// connection that is held back by another learns of it before it gets more input.
    pub(crate) fn settle(&mut self, io: &mut impl Transport, index: u32) {
        if self.env.dirty.last() == Some(&index) {
            // Just received from: there need not be another visit.
            self.env.dirty.pop();
        }
        self.settle_if(io, index, |_| true);
        if self.env.told {
            self.deliver_told();
        }
    }

    // Always in line, as are the three below: calls of each other are a tenth of what a request costs.
    #[inline(always)]
    pub(super) fn settle_if(
        &mut self,
        io: &mut impl Transport,
        index: u32,
        due: impl FnOnce(&State) -> bool,
    ) {
        let Some(state) = self.states.get_mut(index as usize) else {
            return;
        };
        if !due(state) {
            return;
        }
        // Connections that are touched from here on are seen by this very loop, not by another
        // call.
        state.flags.add(Flag::Listed);
        if !Self::settle_plainly(state, &mut self.env, &mut self.meter, io) {
            return self.settle_fully(io, index);
        }
        state.flags.remove(Flag::Listed);
        Self::rearm_state(state, &mut self.wheel, &mut self.next_deadline_ns);
    }

    /// Settles a connection that owes no callback: nearly every one, nearly always. False if it is
    /// not one, or not any more.
    #[inline(always)]
    pub(super) fn settle_plainly(
        state: &mut State,
        env: &mut Env,
        meter: &mut Meter,
        io: &mut impl Transport,
    ) -> bool {
        if !state.is_plain() {
            return false;
        }
        if state.may_flush() {
            io.flush(state, env);
            if !state.is_plain() {
                return false;
            }
        }
        state.watch_output(env.now);
        let on = Self::count(meter, env, state, !state.is_paused());
        io.set_reading(state, env, on);
        // The look-ahead may have shown that the connection is broken.
        state.is_open()
    }

    #[inline(never)]
    pub(super) fn settle_fully(&mut self, io: &mut impl Transport, index: u32) {
        let mut rounds = 0;
        loop {
            let state = &mut self.states[index as usize];
            let end_due = state.end_of_input_due() || state.owed.has(Owed::EndInside);
            if end_due && matches!(state.phase, Phase::Open) && state.may_flush() {
                // The replies leave before the protocol is told of the peer's end: a protocol may abort then. With a
                // driver that reports the end together with the last input, the replies have had no other chance to
                // leave.
                io.flush(state, &mut self.env);
            }
            self.advance(index);
            if self.env.told {
                self.deliver_told();
            }
            let state = &mut self.states[index as usize];
            let sending = matches!(state.phase, Phase::Open | Phase::Finishing(_));
            if sending && state.may_flush() {
                io.flush(state, &mut self.env);
            }
            let state = &mut self.states[index as usize];
            if !state.may_owe_callbacks() || !state.callback_due() {
                break;
            }
            rounds += 1;
            if rounds == ROUNDS {
                self.env.backlog.push(index);
                break;
            }
            if !self.env.sending.may_go_on(state) {
                break;
            }
        }
        self.conclude(io, index);
        if let Some(state) = self.states.get_mut(index as usize) {
            state.flags.remove(Flag::Listed);
            if matches!(state.phase, Phase::Dead { .. }) {
                // The engine's operation has failed.
                return self.touch(index);
            }
            self.rearm(index);
        }
    }

    /// Brings connections that had too much work in an earlier turn back onto the list.
    #[inline(always)]
    pub(crate) fn take_backlog(&mut self) {
        if !self.env.backlog.is_empty() {
            self.list_backlog();
        }
    }

    #[cold]
    fn list_backlog(&mut self) {
        let backlog = std::mem::take(&mut self.env.backlog);
        if mistaken(Mistake::BacklogForgotten) {
            return;
        }
        for index in backlog {
            if let Some(state) = self.states.get_mut(index as usize) {
                self.env.touch(state);
            }
        }
    }

    /// Whether the loop has work that needs no event from outside.
    pub(crate) fn has_work(&self) -> bool {
        !self.env.backlog.is_empty()
            || self.env.is_awaited()
            || self.env.self_signalled
            || !self.env.dirty.is_empty()
            || self.env.has_errands()
    }

    /// Callbacks that the record calls for by itself.
    #[inline]
    pub(super) fn advance(&mut self, index: u32) {
        if self.states[index as usize].may_owe_callbacks() {
            self.call_back(index);
        }
    }

    pub(super) fn call_back(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let service = state.service as usize;
        let (host, carried) = (&mut *self.hosts[service], self.limits[service].carried);
        drive::call_back(host, state, &mut self.env, carried);
    }

    /// Acts on the phase that callbacks and the kernel have led to.
    pub(super) fn conclude(&mut self, io: &mut impl Transport, index: u32) {
        let state = &mut self.states[index as usize];
        if state.phase == Phase::Open {
            state.watch_output(self.env.now);
            let on = state.wants_input();
            if state.shut_due() {
                self.shut(io, index);
            }
            let state = &mut self.states[index as usize];
            let on = Self::count(&mut self.meter, &self.env, state, on);
            return io.set_reading(state, &mut self.env, on);
        }
        Self::count(&mut self.meter, &self.env, state, false);
        let linger = self.limits[state.service as usize].linger;
        if let Phase::Failing { why, rest } = state.phase {
            if !state.takes_the_rest(rest) {
                state.kill(why);
            } else if rest == Rest::Unread {
                let rest = Rest::BeingRead;
                state.phase = Phase::Failing { why, rest };
                // Nothing is waited for: this ends what cannot be.
                state.phase_ends = Some(self.env.now + linger);
                io.read_rest(index);
            }
        }
        let state = &mut self.states[index as usize];
        if let Phase::Finishing(why) = state.phase {
            let sent = state.out.is_empty();
            if sent && state.awaits == Awaits::Nothing && io.has_emptied(index) {
                state.end(why, false);
            } else if sent || mistaken(Mistake::HalfCloseTooEarly) {
                state.phase = Phase::Lingering(why);
                let most = match state.awaits {
                    Awaits::Delivery => linger.min(IDLE_LINGER),
                    Awaits::PeerEnd | Awaits::Nothing => linger,
                };
                state.phase_ends = Some(self.env.now + most);
                if state.writing != Writing::Shut {
                    self.shut(io, index);
                }
            } else if !state.out.may_send() {
                // The peer cannot take output that is held back.
                state.phase_ends = None;
            } else if state.phase_ends.is_none() {
                state.last_progress = self.env.now;
                state.phase_ends = Some(self.env.now + linger / FIRST_LOOK);
            }
        }
        let state = &mut self.states[index as usize];
        if let Phase::Lingering(why) = state.phase
            && (state.input_ended() || mistaken(Mistake::ClosedWithoutLingering))
        {
            state.end(why, false);
        }
        match state.phase {
            Phase::Dead { why, reset } => {
                self.bury(index, why);
                io.close(self, index, reset);
            }
            Phase::Open | Phase::Failing { .. } | Phase::Finishing(_) | Phase::Lingering(_) => {
                let on = state.wants_input();
                io.set_reading(state, &mut self.env, on);
            }
            Phase::Dialling | Phase::Racing(_) | Phase::Buried(_) => {}
        }
    }

    /// All is said: the peer sees the end of our output.
    fn shut(&mut self, io: &mut impl Transport, index: u32) {
        let state = &mut self.states[index as usize];
        state.writing = Writing::Shut;
        self.env.of_service(state.service).lingering.add(1);
        io.shut_write(self, index);
    }
}
