//! Connections come and go.

use crate::admission::door::Permit;
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::activity::Callback;
use crate::reactor::core::{Core, lines};
use crate::reactor::drive::Event;
use crate::reactor::errand::Errand;
use crate::reactor::facts::{Flag, Phase, Writing};
use crate::reactor::state::State;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::peer::{Origin, Peer};

impl Core {
    /// Takes in an accepted connection that the rules allow; returns its index, or why it is
    /// refused after all.
    pub(crate) fn admit(
        &mut self,
        service: u16,
        peer: Peer,
        permit: Permit,
    ) -> Result<u32, Refusal> {
        let index = self.insert(service, peer);
        if let Err(why) = self.establish(index) {
            self.free(index);
            return Err(why);
        }
        self.env.of_service(service).accepted.add(1);
        self.states[index as usize].counts_as(permit.keep());
        Ok(index)
    }

    /// Counts and logs a connection that was accepted and cannot be taken in.
    pub(crate) fn refuse_accepted(&mut self, service: u16, why: Refusal, peer: &Peer) {
        self.env.of_service(service).accepted.add(1);
        self.env.refuse(service, why, peer);
    }

    /// Calls `opened`. Apart from `admit` so that the engine can set up its side in between.
    pub(crate) fn open(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        let limits = &self.limits[state.service as usize];
        state.flags.add(Flag::Opened);
        state.phase_ends = limits.lifetime.map(|time| self.env.now + time);
        if matches!(state.peer.origin, Origin::Accepted(_)) {
            state.await_first_byte(self.env.now, limits.first_byte);
        }
        self.env.of_service(state.service).open.add(1);
        if self.log_connections {
            lines::opened(state, &self.env);
        }
        self.call(index, Event::Opened);
        self.touch(index);
    }

    /// Forgets a connection of which nothing is in use any more.
    pub(crate) fn free(&mut self, index: u32) {
        if !mistaken(Mistake::TimerSurvives) {
            self.wheel.forget(index);
        }
        let removed = self.states.remove(index as usize);
        let mut state = removed.expect("a connection is forgotten once");
        if state.out.holds().is_some_and(|h| h.listed) {
            let there = |id: ConnId| {
                let state = self.states.get(id.index as usize);
                state.is_some_and(|s| s.id == id)
            };
            self.env.barriers.forget(state.service, there);
        }
        if state.out.clear(&mut self.env.blocks).is_err() {
            self.env.count_owner(&state);
        }
        self.meter.change(state.counted as usize, 0);
        if let Some(attempts) = &state.attempts {
            self.dialling[state.service as usize] -= 1;
            if let Some(by) = attempts.by {
                self.tied.release(state.id, by);
            }
        }
    }

    pub(super) fn insert(&mut self, service: u16, peer: Peer) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let (generation, now) = (self.generation, self.env.now);
        let (limits, making) = (&self.limits[service as usize], &self.env.making);
        let index = self.states.insert_with(|index| {
            let index = u32::try_from(index).expect("fewer than 2^32 connections");
            let id = ConnId::new(index, generation);
            let mut state = State::new(id, service, peer, limits, now);
            state.mark = making.mark(state.high);
            state
        });
        index as u32
    }

    pub(super) fn establish(&mut self, index: u32) -> Result<(), Refusal> {
        if self.meter.refuses() {
            return Err(Refusal::MemoryLimit);
        }
        let state = &mut self.states[index as usize];
        self.env.enter(state.service, Callback::Accept);
        self.hosts[state.service as usize].accept(state)
    }

    pub(super) fn bury(&mut self, index: u32, why: Closed) {
        let state = &mut self.states[index as usize];
        state.phase = Phase::Buried(why);
        if self.tied.has(state.id) {
            self.env.errands.push(Errand::Orphaned(state.id));
        }
        state.carry = Vec::new();
        if state.writing == Writing::Shut {
            self.env.of_service(state.service).lingering.sub(1);
        }
        if !state.was_opened() {
            return;
        }
        self.env
            .door(state.service)
            .gone(&state.peer, state.counted_as());
        self.waker.carries_less();
        let counters = self.env.of_service(state.service);
        counters.open.sub(1);
        counters.closed[why.kind()].add(1);
        if let Closed::ByProtocol(reason) = why {
            counters.closed_because(reason);
        }
        let unsent = state.out.len();
        let cut = unsent > 0 && why.is_cut();
        if cut {
            counters.cut_unsent.add(1);
            counters.bytes_cut.add(unsent as u64);
        }
        lines::closed(state, why, &self.env);
        match why {
            _ if cut => {
                if let Some(held_back) = self.env.throttles.cuts.pass(self.env.now) {
                    let peer = &state.peer.endpoint;
                    tracing::warn!(%peer, reason = %why, unsent, held_back, "connection cut, its output lost");
                }
            }
            Closed::Finished | Closed::Reset | Closed::Stopped => {
                tracing::trace!(peer = %state.peer.endpoint, reason = %why, "connection closed");
            }
            Closed::Idle
            | Closed::FirstByteLate
            | Closed::RequestLate
            | Closed::Lifetime
            | Closed::Aborted
            | Closed::LingerExpired
            | Closed::ByProtocol(_) => {
                tracing::debug!(peer = %state.peer.endpoint, reason = %why, "connection closed");
            }
            _ => {
                if let Some(held_back) = self.env.throttles.ended(why, self.env.now) {
                    tracing::warn!(peer = %state.peer.endpoint, reason = %why, held_back, "connection closed");
                }
            }
        }
        if mistaken(Mistake::ClosedNotTold) && why != Closed::Finished {
            return;
        }
        self.env.enter(state.service, Callback::Closed);
        self.hosts[state.service as usize].closed(state, why, &mut self.env);
    }
}
