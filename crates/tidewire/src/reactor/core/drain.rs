//! The effects of a stop on connections.

use std::io;

use crate::kernel::descriptor::Descriptor;
use crate::reach::stop::{PassedOn, StopClock};
use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::env::service_bit;
use crate::reactor::facts::{Flag, Owed, Phase};
use crate::vocabulary::closed::Closed;
use crate::vocabulary::peer::Origin;

/// Looks into the inbox of a loop that is stopping and has nothing else left.
const LAST_LOOKS: u32 = 64;

impl Core {
    /// Gives all dials up. The engine then reads from each connection what the kernel holds for it
    /// and calls `owe_drain`.
    pub(crate) fn begin_drain(&mut self, io: &mut impl Transport, clock: &StopClock) {
        self.draining = true;
        self.env.stopping = true;
        self.env.closes_idle = !clock.is_succeeded();
        self.env.passes_on = clock.passes_on();
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            // Attempts of a dial go with it.
            let Some(state) = self.states.get_mut(index as usize) else {
                continue;
            };
            if state.phase == Phase::Dialling {
                let (id, is_won) = (state.id, state.race().is_some_and(|race| race.is_won));
                if is_won {
                    self.end_race(io, id);
                    continue;
                }
                self.take_back(io, index);
                self.connect_failed(index, &io::Error::other("the loops are stopping"));
            }
        }
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining
    }

    /// Whether a stop has ended: no connection and no command is left. A service that dials again
    /// after every failed dial would keep a stop going for ever, so the stop ends after some looks
    /// all the same.
    pub(crate) fn is_done(&mut self) -> bool {
        if !self.states.is_empty() {
            return false;
        }
        let errands = self.env.has_errands() || self.waker.is_pending();
        self.last_looks += u32::from(errands);
        !errands || self.last_looks > LAST_LOOKS
    }

    /// All that the kernel held for this connection has been received: `draining` is called once
    /// that has been offered.
    pub(crate) fn owe_drain(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        if !self.env.waits_for_unserved(state.service) {
            state.flags.remove(Flag::Unserved);
        }
        state.owed.add(Owed::Draining);
        self.env.touch(state);
    }

    /// Stops waiting for connections of these services that were never served: their protocols are told of the stop.
    pub(crate) fn give_up_unserved(&mut self, services: u64) {
        if self.env.unserved_given_up == services {
            return;
        }
        self.env.unserved_given_up = services;
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            let state = &mut self.states[index as usize];
            if state.owed.has(Owed::Draining) && services & service_bit(state.service) != 0 {
                state.flags.remove(Flag::Unserved);
                self.env.touch(state);
            }
        }
    }

    /// Whether the successor is to have this connection: it was accepted, nothing was read from it, and its protocol has
    /// written nothing.
    pub(crate) fn may_pass_on(&self, index: u32) -> bool {
        let state = &self.states[index as usize];
        self.env.passes_on
            && state.is_open()
            && state.flags.has(Flag::Unserved)
            && state.carry.is_empty()
            && state.out.is_empty()
            && !state.knows_peer_end()
            && matches!(state.peer.origin, Origin::Accepted(_))
    }

    /// The connection goes on at a successor: here it ends without a word to its peer.
    pub(crate) fn pass_on(&mut self, index: u32, socket: Descriptor) {
        let state = &mut self.states[index as usize];
        if let Origin::Accepted(listener) = state.peer.origin {
            self.passed_on.push(PassedOn { listener, socket });
        }
        state.end(Closed::Stopped, false);
        self.env.touch(state);
    }

    /// Cuts the remaining connections.
    pub(crate) fn cut_all(&mut self, io: &mut impl Transport) {
        let all: Vec<u32> = self.states.iter().map(|(i, _)| i as u32).collect();
        for index in all {
            let state = &mut self.states[index as usize];
            state.kill(Closed::StopDeadline);
            self.env.touch(state);
        }
        self.settle_all(io);
    }

    /// Whether nothing is left for this loop to do once it has stopped.
    pub(crate) fn is_empty(&self) -> bool {
        self.states.is_empty() && !self.env.has_errands()
    }
}
